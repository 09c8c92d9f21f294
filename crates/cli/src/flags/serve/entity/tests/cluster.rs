use super::*;

/// Goal: a password is a line with whatever is in it, and what is no line is refused without being shown.
#[test]
fn passwords_are_lines() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("password");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_password(&path)
    };
    for text in ["p w'\"\u{e4} ", "p w'\"\u{e4} \n", "p w'\"\u{e4} \r\n"] {
        assert_eq!(read(text).unwrap(), "p w'\"\u{e4} ");
    }
    for text in [
        "",
        "\n",
        "secret\n\n",
        "secret\nb",
        "secret\0b",
        "secret\rb",
    ] {
        let failure = read(text).unwrap_err();
        assert!(failure.sentence().contains("only line"), "{text:?}");
        assert!(!failure.sentence().contains("secret"));
    }
    let absent = read_password(&home.path().join("absent")).unwrap_err();
    assert!(absent.sentence().contains("absent cannot be read"));
}
