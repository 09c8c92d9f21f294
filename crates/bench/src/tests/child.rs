use super::*;

/// Goal: the child reads what the parent writes, with libraries and without.
#[test]
fn words_come_back() {
    let path = |path: &str| Some(PathBuf::from(path));
    let both = [None, path("/lib/libx.so.2")];
    for (library, front) in both.into_iter().zip([path("/lib/libtrace.so"), None]) {
        let spec = ChildSpec {
            program: Program::ProducerConsumerMixed,
            memory: MemoryKind::Pool,
            iterations: 12,
            seed: 7,
            idle_seconds: 10,
            library,
            front,
        };
        assert_eq!(ChildSpec::parse(spec.to_arguments()), Ok(spec));
    }
}

/// Goal: each wrong word is named.
#[test]
fn wrong_words_are_named() {
    let parse = |text: &str| ChildSpec::parse(text.split(' ').map(OsString::from)).unwrap_err();
    for (text, part) in [
        ("", "no program is called"),
        ("pair slab", "\"slab\""),
        ("pair pool many", "\"many\""),
        ("pair pool 1 2", "idle seconds is missing"),
    ] {
        assert!(parse(text).contains(part), "{text}");
    }
}
