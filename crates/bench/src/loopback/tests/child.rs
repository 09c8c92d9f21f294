use super::*;
use millpond_measure::record::PoolSetting;

/// Goal: the child reads what the parent writes; an unreadable word is named.
#[test]
fn words_come_back() {
    let spec = ChildSpec {
        pair: PairSpec {
            connections: 500,
            requests: 2_500_000,
            threads: 1,
            request_bytes: 1_024,
            response_bytes: 740,
            pools: PoolSetting::Off,
            server_driver: "uring".to_owned(),
            client_driver: "epoll".to_owned(),
        },
        library: Some("/lib/libx.so.2".into()),
        front: None,
        tells_seconds: true,
    };
    let [word, text] = spec.to_arguments().unwrap();
    assert_eq!(word, WORD);
    assert_eq!(ChildSpec::parse(Some(text)), Ok(spec));
    assert!(ChildSpec::parse(None).unwrap_err().contains("missing"));
    let unreadable = ChildSpec::parse(Some("{}".into())).unwrap_err();
    assert!(unreadable.contains("cannot be read"), "{unreadable}");
}
