use super::*;

fn config(connections: usize, sources: Option<&str>) -> LoadConfig {
    let mut config = LoadConfig::for_tests();
    config.connections = connections;
    config.plan.sources = sources.map(|text| text.parse().unwrap());
    config
}

/// Goal: each source address has the ports of the kernel's range once, and what is missing is said with the number
/// of addresses that is enough.
#[test]
fn ports_are_counted_per_source_address() {
    assert_eq!(ports_in("32768\t60999\n"), Some(28_232));
    assert_eq!(ports_in("9 8"), Some(0));
    assert_eq!(
        (ports_in("9 7"), ports_in(""), ports_in("a b")),
        (None, None, None)
    );
    assert!(check_ports(&config(28_232, None), 28_232).is_ok());
    assert!(check_ports(&config(56_464, Some("127.0.0.1..127.0.0.2")), 28_232).is_ok());
    let error = check_ports(&config(1_000_000, None), 28_232).unwrap_err();
    let text = error.to_string();
    for part in [
        "1000000 connections",
        "28232 ports",
        "--source",
        "36 addresses",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let error = check_ports(&config(56_465, Some("127.0.0.1..127.0.0.2")), 28_232);
    assert!(matches!(
        error,
        Err(LoadError::FewPorts {
            sources_needed: 3,
            ..
        })
    ));
}
