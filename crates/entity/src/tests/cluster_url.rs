use super::*;

fn of(text: &str) -> Result<ClusterUrl, ClusterUrlError> {
    text.parse()
}

/// Goal: each part of it is read, and what is not said stays open.
#[test]
fn urls_are_read() {
    let url = of("cassandra://h1,h2:9043,[::1],[::2]:1/keys_1").unwrap();
    assert_eq!(url.nodes, ["h1:9042", "h2:9043", "[::1]:9042", "[::2]:1"]);
    assert_eq!(url.hosts(), ["h1", "h2", "::1", "::2"]);
    assert_eq!(url.keyspace, "keys_1");
    assert_eq!(
        (url.create, url.buckets, url.conditions),
        (None, None, None)
    );
    let url = of("cassandra://127.0.0.1/k?create=3&buckets=256&conditions=on").unwrap();
    assert_eq!(
        (url.create, url.buckets, url.conditions),
        (Some(3), Some(256), Some(true))
    );
    assert_eq!(url.to_string(), "cassandra://127.0.0.1:9042/k");
    assert_eq!(
        of("cassandra://h/k?conditions=off").unwrap().conditions,
        Some(false)
    );
}

/// Goal: a password goes to the nodes, and into no log.
#[test]
fn passwords_are_not_debugged() {
    let login = ClusterLogin {
        user: "reader".to_owned(),
        password: "secret".to_owned(),
    };
    let shown = format!("{login:?}");
    assert!(
        shown.contains("reader") && !shown.contains("secret"),
        "{shown}"
    );
}

/// Goal: the error names the invalid part.
#[test]
fn what_is_wrong_is_named() {
    for text in [
        "",
        "rocksdb:x",
        "cassandra:/h/k",
        "Cassandra://h/k",
        "./data",
    ] {
        assert!(
            matches!(of(text), Err(ClusterUrlError::Scheme { .. })),
            "{text}"
        );
    }
    for nodes in [
        "", ",", "h,", "h:", "h:x", "h:65536", "::1", "[::1", "a b", "h:1:2",
    ] {
        let text = format!("cassandra://{nodes}/k");
        assert!(
            matches!(of(&text), Err(ClusterUrlError::Node { .. })),
            "{text}"
        );
    }
    for login in ["user:secret@h", "@h", "h/k@"] {
        let error = of(&format!("cassandra://{login}/k")).unwrap_err();
        assert!(error.to_string().contains("--store-password-file"));
        assert!(!error.to_string().contains("secret"));
    }
    let long = "k".repeat(49);
    for keyspace in ["", "K", "1k", "a-b", "a/b", "a;b", "\"a\"", &long] {
        let text = format!("cassandra://h/{keyspace}");
        assert!(
            matches!(of(&text), Err(ClusterUrlError::Keyspace { .. })),
            "{text}"
        );
    }
    for setting in [
        "create",
        "create=",
        "create=0",
        "create=101",
        "buckets=0",
        "buckets=4097",
        "x=1",
        "conditions=yes",
        "create=3,buckets=2",
    ] {
        let text = format!("cassandra://h/k?{setting}");
        assert!(
            matches!(of(&text), Err(ClusterUrlError::Setting { .. })),
            "{text}"
        );
    }
}
