use super::*;

const WHOLE: &str = r#"
balance = "hash:cookie:id"
host = "upstream"
forwarded = "x"
trust = ["10.0.0.0/8", "unix"]
upgrade = true
connections = 10
pending = 3
tries = 4
retry-percent = 5
half-close = "allow"

[timeouts]
connect = "1s"
write = "2s"
first-byte = "3s"
between-bytes = "4s"
total = "5s"
tunnel-idle = "13s"
half-close = "14s"

[health]
path = "/health"
interval = "6s"
timeout = "7s"
successes = 8
failures = 9

[ejection]
failures = 10
base = "11s"
longest = "12s"

[mirroring]
methods = "all"
max-body = "5KiB"
timeout = "15s"

[[mirror]]
address = "127.0.0.1:9000"
percent = 5

[[mirror]]
address = "b:9000"

[[upstream]]
address = "127.0.0.1:8081"
weight = 3

[[upstream]]
address = "app:80"
proxy-protocol = "v1"
"#;

/// Goal: each key reaches the field it names; counts are shared out among the shards.
#[test]
fn keys_reach_the_configuration() {
    const SECOND_NS: u64 = 1_000_000_000;
    let config = Settings::parse(WHOLE).unwrap().config(4).unwrap();
    assert_eq!(config.balance.to_string(), "hash:cookie:id");
    assert_eq!(config.host, HostPolicy::Upstream);
    assert_eq!(config.upgrades, UpgradeProtocols::websocket());
    assert_eq!(config.forwarded.to_string(), "x");
    assert_eq!(config.trusted.len(), 2);
    assert_eq!((config.connections_max, config.pending_max), (3, 1));
    assert_eq!((config.tries_max, config.retry_percent), (4, 5));
    let expected = Timeouts {
        connection_ns: SECOND_NS,
        write_ns: 2 * SECOND_NS,
        first_byte_ns: 3 * SECOND_NS,
        between_bytes_ns: 4 * SECOND_NS,
        total_ns: 5 * SECOND_NS,
        tunnel_idle_ns: 13 * SECOND_NS,
    };
    let timeout_ns = 14 * SECOND_NS;
    assert_eq!(config.half_close, HalfClose::Allow { timeout_ns });
    assert_eq!(config.timeouts, expected);
    let expected = ProbePolicy {
        path: "/health".to_owned(),
        interval_ns: 6 * SECOND_NS,
        timeout_ns: 7 * SECOND_NS,
        successes_min: 8,
        failures_max: 9,
    };
    assert_eq!(config.probe, Some(expected));
    let expected = EjectionPolicy {
        failures_max: 10,
        base_ns: 11 * SECOND_NS,
        longest_ns: 12 * SECOND_NS,
    };
    assert_eq!(config.ejection, expected);
    let expected = MirrorPolicy {
        methods: MirrorMethods::All,
        body_bytes_max: 5 << 10,
        timeout_ns: 15 * SECOND_NS,
    };
    assert_eq!(config.mirroring, expected);
    let mirrors = config.mirrors.iter();
    let mirrors: Vec<_> = mirrors
        .map(|it| (&*it.name, it.share.to_string()))
        .collect();
    let expected = [("127.0.0.1:9000", "5%"), ("b:9000", "100%")];
    assert_eq!(
        mirrors,
        expected.map(|(name, share)| (name, share.to_owned()))
    );
    let weights: Vec<u32> = config.upstreams.iter().map(|it| it.weight).collect();
    assert_eq!(weights, [3, 1]);
    let heads: Vec<_> = config
        .upstreams
        .iter()
        .map(|it| it.proxy_protocol)
        .collect();
    assert_eq!(heads, [None, Some(ProxyProtocol::V1)]);
}

/// Goal: a mistake is named with its line and key, and with what is allowed.
#[test]
fn errors_name_line_key_and_what_is_allowed() {
    for (text, begin, part) in [
        ("\nbalance = \"random\"", "2: balance: ", "two-choices"),
        ("balnce = \"x\"", "1: balnce: ", "retry-percent"),
        ("[timeouts]\ntotal = \"soon\"", "2: total: ", "soon"),
        (
            "[[upstream]]\naddress = \"8080\"",
            "2: address: ",
            "HOST:PORT",
        ),
        (
            "[[upstream]]\naddress = \"a:1\"\nweight = 0",
            "3: weight: ",
            "1 to 1000",
        ),
        (
            "[[upstream]]\naddress = \"a:1\"\nproxy-protocol = \"v3\"",
            "3: proxy-protocol: ",
            "v1 or v2",
        ),
        ("tries = \"two\"", "1: tries: ", "u32"),
        ("host = \"other\"", "1: host: ", "`keep`"),
        ("[health]\npath = \"health\"", "2: path: ", "begins with /"),
        ("trust = [\"x\"]", "1: trust: ", "ADDRESS/BITS"),
        ("upgrade = 3", "1: upgrade: ", "[\"websocket\"]"),
        ("upgrade = [\"h2c\"]", "1: upgrade: ", "unchecked"),
        ("tries = ", "1: tries: ", ""),
        (
            "[[mirror]]\naddress = \"m:1\"\npercent = 101",
            "3: percent: ",
            "0.0001 to 100",
        ),
        (
            "[[mirror]]\naddress = \"m:1,percent=5\"",
            "2: address: ",
            "HOST:PORT",
        ),
    ] {
        let error = Settings::parse(text).unwrap_err();
        assert!(
            error.starts_with(begin) && error.contains(part),
            "{text:?}: {error}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

/// Goal: an empty file has the library's defaults, but no upstream.
#[test]
fn defaults_are_the_library_s() {
    let config = Settings::parse("").unwrap().config(1).unwrap();
    let default = ProxyConfig::new(Vec::new());
    assert_eq!(config.timeouts, default.timeouts);
    assert_eq!(config.ejection, default.ejection);
    assert_eq!(config.half_close, default.half_close);
    assert_eq!(config.tries_max, default.tries_max);
    assert_eq!(config.mirroring, default.mirroring);
    assert!(config.mirrors.is_empty());
    assert!(config.upstreams.is_empty() && config.probe.is_none());
}
