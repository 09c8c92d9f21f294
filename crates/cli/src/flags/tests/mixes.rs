use super::*;

/// Goal: each operation is a class of its own with the API's method, path and responses.
#[test]
fn mixes_become_classes() {
    let mix = Mix::parse("read=4,update=3,insert=2,delete=1,scan=5,rmw=6").unwrap();
    let classes = mix.classes("/v0/entity", &[]).unwrap();
    let seen: Vec<_> = classes
        .iter()
        .map(|class| (&class.name[..], class.weight, class.method, class.is_second))
        .collect();
    assert_eq!(
        seen,
        [
            ("read", 4, Method::Get, false),
            ("update", 3, Method::Put, false),
            ("insert", 2, Method::Put, false),
            ("delete", 1, Method::Delete, false),
            ("scan", 5, Method::Get, false),
            ("rmw-read", 6, Method::Get, false),
            ("rmw-update", 6, Method::Put, true),
        ]
    );
    assert_eq!(
        classes[4].target,
        "/v0/entities?start={key}&end={scan_end:100}"
    );
    assert_eq!(classes[2].key, KeyUse::New);
    // A deleted key is correctly absent; without deletes it must be there.
    assert!(classes[0].validation.statuses.contains(404));
    let reads = Mix::parse("read=1").unwrap().classes("/e", &[]).unwrap();
    assert!(!reads[0].validation.statuses.contains(404));
    assert!(Mix::parse("scan=1").unwrap().classes("/e", &[]).is_err());
}

#[test]
fn wrong_mixes_are_refused() {
    for (text, part) in [
        ("", "read=95"),
        ("read", "read=95"),
        ("read=x", "read=95"),
        ("write=5", "none of read"),
        ("read=1,read=2", "twice"),
        ("read=0,update=0", "every weight"),
    ] {
        let error = Mix::parse(text).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert_eq!(Mix::parse("read=1,scan=0"), Mix::parse("read=1"));
    assert!(Ycsb::parse("g").is_err());
    assert_eq!(
        Ycsb::parse("D").unwrap().mix,
        Mix::parse("read=95,insert=5").unwrap()
    );
}
