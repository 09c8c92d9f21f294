use super::*;

/// Goal: a printed address parses back to the same address.
#[test]
fn addresses_print_as_they_parse() {
    for text in [
        "127.0.0.1:8080",
        "[::1]:80",
        "unix:/run/pond.sock",
        "0.0.0.0:0",
    ] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
}

/// Goal: nothing that lacks a part is guessed at, and the sentence repeats what was given.
#[test]
fn incomplete_addresses_are_refused_with_the_text() {
    for text in [
        "",
        "8080",
        ":8080",
        "127.0.0.1",
        "127.0.0.1:65536",
        "unix:",
        "::1:80x",
        "/a",
    ] {
        let error = text.parse::<Address>().unwrap_err();
        assert_eq!(
            error,
            IoError::AddressUnreadable {
                text: text.to_owned()
            }
        );
        assert!(
            error.to_string().contains(&format!("\"{text}\"")),
            "{error}"
        );
    }
}

/// Goal: names need `resolve`; literals pass through it unchanged; nonsense is not looked up.
#[test]
fn only_resolve_looks_names_up() {
    assert!("localhost:80".parse::<Address>().is_err());
    let local = Address::resolve("localhost:80").unwrap().inet().unwrap();
    assert!(local.ip().is_loopback() && local.port() == 80, "{local}");
    assert_eq!(
        Address::resolve("unix:/a").unwrap(),
        Address::Unix("/a".into())
    );
    assert!(matches!(
        Address::resolve("localhost"),
        Err(IoError::AddressUnreadable { .. })
    ));
}

/// Goal: a name brings all of its addresses, families in turn, and a literal needs no resolver.
#[test]
fn a_name_brings_all_of_its_addresses() {
    let lookup = |host: &str, port: u16| {
        assert_eq!((host, port), ("two.test", 81));
        Ok(["[::1]:81", "[::2]:81", "127.0.0.1:81", "[::1]:81"]
            .map(|text| text.parse().unwrap())
            .to_vec())
    };
    let found = Address::resolve_all_with("two.test:81", lookup).unwrap();
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["[::1]:81", "127.0.0.1:81", "[::2]:81"]);
    for literal in ["[::1]:80", "127.0.0.1:1", "unix:/a"] {
        let nobody = |_: &str, _: u16| panic!("{literal} was looked up");
        let found = Address::resolve_all_with(literal, nobody).unwrap();
        assert_eq!(found[..], [literal.parse().unwrap()]);
    }
    let error = Address::resolve_all_with("none.test:1", |_, _| Ok(Vec::new())).unwrap_err();
    assert!(error.to_string().contains("has no address"), "{error}");
}
