use super::*;
use crate::target::ServerRequests;

/// Goal: both forms are read correctly: lists of variables with commas in their values, and
/// commands with quotes.
#[test]
fn variants_are_read() {
    let py =
        Variant::parse("py=env:PYTHONMALLOC=malloc,MALLOC_CONF=narenas:2,thp:never,E=").unwrap();
    let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
    assert_eq!(py.name, "py");
    assert_eq!(
        py.variables(),
        [
            pair("PYTHONMALLOC", "malloc"),
            pair("MALLOC_CONF", "narenas:2,thp:never"),
            pair("E", "")
        ]
    );
    let musl =
        Variant::parse("musl=command:./server --name 'a b' \"it's \\\"x\\\"\" '' {port}").unwrap();
    let words = ["./server", "--name", "a b", "it's \"x\"", "", "{port}"];
    assert_eq!(musl.command().unwrap(), words.map(OsString::from));
}

/// Goal: text that is no variant is refused with how to write one.
#[test]
fn wrong_variants_are_named() {
    for (text, part) in [
        ("py", "write NAME=env:"),
        ("py=PYTHONMALLOC=malloc", "write NAME=env:"),
        ("=env:A=1", "the name needs"),
        ("a/b=env:A=1", "may not have"),
        ("py=env:", "no VARIABLE=VALUE"),
        ("py=env:=1", "no VARIABLE=VALUE"),
        ("py=env:LD_PRELOAD=/x.so", "--allocators NAME="),
        ("x=command:", "no command"),
        ("x=command:a 'b", "without its second"),
        ("x=command:a \\", "backslash"),
    ] {
        let sentence = Variant::parse(text).unwrap_err();
        assert!(sentence.contains(part), "{text}: {sentence}");
    }
}

/// Goal: a command that cannot take the place of the server's is refused before anything is started.
#[test]
fn commands_that_cannot_be_started_are_refused() {
    let address = "127.0.0.1:1".parse().unwrap();
    let requests = Box::new(ServerRequests::get(address, "/"));
    let words = vec!["sh".into(), "{port}".into()];
    let server = Target::Command { words, requests };
    let refused = |text: &str, target: &Target| {
        let variant = Variant::parse(text).unwrap();
        variant
            .check(target, &[])
            .err()
            .map(|error| error.to_string())
    };
    assert_eq!(refused("x=command:sh -p {port}", &server), None);
    assert_eq!(refused("x=env:A=1", &server), None);
    let told = refused("x=command:sh -p 8080", &server).unwrap();
    assert!(told.contains("has no {port}"), "{told}");
    let told = refused("x=command:/nowhere/x {port}", &server).unwrap();
    assert!(told.contains("/nowhere/x was not found"), "{told}");
    let own = Target::Entity { extra: Vec::new() };
    let told = refused("x=command:sh", &own).unwrap();
    assert!(told.contains("a server of yours"), "{told}");
}
