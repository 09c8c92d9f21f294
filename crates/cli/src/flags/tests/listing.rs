use super::*;

/// Goal: the example of each server is a file of that server, fits 80 columns where its words let it,
/// and shows each flag once with a key that exists.
#[test]
fn examples_show_every_flag() {
    for kind in ServerKind::ALL {
        if kind == ServerKind::Entity && cfg!(not(feature = "entity")) {
            continue;
        }
        let text = example(kind);
        let shown: Vec<&str> = text
            .lines()
            .take_while(|line| !line.contains("--- Upstreams"))
            .filter_map(|line| line.strip_prefix("# ")?.split_once(" = "))
            .map(|(key, _)| key)
            .filter(|key| !key.contains(' '))
            .collect();
        let command = kind.command();
        for key in &shown {
            assert!(argument(&command, key).is_some(), "{key} of {kind:?}");
        }
        for key in [
            "listen",
            "reuse-port",
            "max-connections",
            "tls-cert",
            "log-format",
        ] {
            let count = shown.iter().filter(|shown| **shown == key).count();
            assert_eq!(count, 1, "{key} in {text}");
        }
        assert_eq!(shown.contains(&"directory"), kind == ServerKind::Files);
        assert!(!shown.contains(&"config"));
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(WIDTH), "{widest:?}: {text}");
    }
}

/// Goal: quotes and backslashes survive.
#[test]
fn quoting_is_toml() {
    let text = format!("a = {}", quoted(r#"C:\x "y""#));
    let table: std::collections::BTreeMap<String, String> = toml::from_str(&text).unwrap();
    assert_eq!(table["a"], r#"C:\x "y""#);
}
