use super::*;

/// Goal: the written fields are the configured ones, and no change is allowed on which two sides could disagree.
#[test]
fn changes_are_read() {
    for text in ["X-A: b", "X-A: ", "+Set-Cookie: a=b; Path=/", "-Server"] {
        assert_eq!(text.parse::<FieldChange>().unwrap().to_string(), text);
    }
    for (text, part) in [
        ("", "is no change"),
        ("X-A", "is no change"),
        ("-X-A: b", "is no change"),
        ("X A: b", "is no change"),
        ("X-A: b\r\nX: c", "is no change"),
        ("Content-Length: 5", "cannot be changed"),
        ("-transfer_encoding", "cannot be changed"),
        ("Connection: x", "cannot be changed"),
        ("+Host: x", "cannot be changed"),
        ("X-Forwarded-For: 1.1.1.1", "cannot be changed"),
        ("-Via", "cannot be changed"),
        ("-X-*", "not a pattern"),
        ("X-A: b\r", "is no change"),
    ] {
        let error = text.parse::<FieldChange>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    let many = vec![FieldChange::Remove("X".to_owned()); CHANGES_MAX + 1];
    assert!(FieldChanges::new(&many).is_err());
    let long = FieldChange::Set("X".to_owned(), "y".repeat(LINES_BYTES_MAX));
    assert!(FieldChanges::new(&[long]).is_err());
}
