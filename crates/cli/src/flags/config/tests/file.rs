use super::*;

fn parse(text: &str) -> Result<ConfigFile, String> {
    ConfigFile::parse(Path::new("a.toml"), text).map_err(|failure| match failure {
        Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
    })
}

/// Goal: every form of a value is taken, in the order of the lines; tables are distinguished.
#[test]
fn values_and_lines() {
    let text = "server = \"entity\"\n\nlisten = \"[::1]:1\"\nshards = 0x10\nno-pin = true\n\
                tls-key = [\"a\", 1_000]\n[health]\npath = \"/\"\n";
    let file = parse(text).unwrap();
    assert_eq!(file.kind.map(|(kind, _)| kind), Some(ServerKind::Entity));
    let found: Vec<_> = file
        .settings
        .iter()
        .map(|one| (one.line, one.key.as_str(), one.value.clone()))
        .collect();
    let keys = ["a".to_owned(), "1000".to_owned()];
    let expected = [
        (3, "listen", Value::Text("[::1]:1".to_owned())),
        (4, "shards", Value::Text("16".to_owned())),
        (5, "no-pin", Value::Switch(true)),
        (6, "tls-key", Value::Texts(keys.to_vec())),
        (7, "health", Value::Other("table")),
    ];
    assert_eq!(found, expected);
    let of_proxy: Vec<_> = file
        .flags_of(ServerKind::Proxy)
        .map(|one| one.line)
        .collect();
    assert_eq!(of_proxy, [3, 4, 5, 6]);
}

/// Goal: invalid TOML, and a server that does not exist, are named with line and key.
#[test]
fn faults_name_line_and_key() {
    for (text, begin, part) in [
        ("\nlisten = ", "a.toml:2: listen: ", ""),
        ("listen = 1\nlisten = 2", "a.toml:2: listen: ", "duplicate"),
        ("server = \"web\"", "a.toml:1: server: ", "\"files\""),
        ("\n\nserver = 1", "a.toml:3: server: ", "\"files\""),
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            error.starts_with(begin) && error.contains(part),
            "{text:?}: {error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
    let file = parse("\nserver = \"files\"").unwrap();
    let Err(Failure::Usage(error)) = file.check_kind(ServerKind::Proxy) else {
        unreachable!()
    };
    assert!(
        error.starts_with("a.toml:2: server: ") && error.contains("millpond proxy"),
        "{error}"
    );
    assert!(parse("").unwrap().kind().is_err());
}
