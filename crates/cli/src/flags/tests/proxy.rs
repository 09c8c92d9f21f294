use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;

fn parse(line: &str) -> Result<ProxyFlags, String> {
    let words = ["millpond", "proxy"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Proxy(flags) => Ok(*flags),
        other => Err(format!("{other:?}")),
    }
}

/// Goal: each flag reaches the setting it names.
#[test]
fn flags_reach_the_settings() {
    let line = "--upstream a:1,weight=3 --upstream b:2 --balance two-choices --host upstream \
         --forwarded x --trust 10.0.0.0/8 --upgrade --upstream-connections 4 \
         --upstream-pending 5 --upstream-proxy-protocol v2 --tries 6 --retry-budget 7 --connect-timeout 8s \
         --first-byte-timeout 9s --between-bytes-timeout 10s --total-timeout 11s \
         --tunnel-idle-timeout 18s --half-close allow --half-close-timeout 19s \
         --health /h --health-interval 12s --health-timeout 13s --health-successes 14 \
         --health-failures 15 --eject-after 0 --eject-for 16s --eject-for-max 17s \
         --upstream-idle 20s --upstream-max-head 21KiB --upstream-max-fields 22 --quiet-errors \
         --request-header -X-A --response-header X-B:c \
         --upstream-ca ca --upstream-cert cert --upstream-key key";
    let settings = parse(line)
        .unwrap()
        .settings()
        .unwrap_or_else(|_| panic!("{line}"));
    let time = |seconds: u64| {
        Some(Time {
            ns: seconds * 1_000_000_000,
        })
    };
    assert_eq!(settings.upstream[0].address.weight, 3);
    assert_eq!(settings.upstream[1].address.name, "b:2");
    for upstream in &settings.upstream {
        assert_eq!(upstream.proxy_protocol, Some(ProxyProtocol::V2));
    }
    assert_eq!(settings.balance, Some(Balance::TwoChoices));
    assert_eq!(settings.host, Some(Host::Upstream));
    assert_eq!(settings.half_close, Some(HalfClosePolicy::Allow));
    assert_eq!(settings.forwarded.unwrap().to_string(), "x");
    assert_eq!(settings.trust.len(), 1);
    assert_eq!(settings.upgrade, Some(UpgradeProtocols::websocket()));
    assert_eq!((settings.connections, settings.pending), (Some(4), Some(5)));
    assert_eq!((settings.tries, settings.retry_percent), (Some(6), Some(7)));
    let expected = TimeoutSettings {
        connect: time(8),
        write: None,
        first_byte: time(9),
        between_bytes: time(10),
        total: time(11),
        tunnel_idle: time(18),
        half_close: time(19),
        idle: time(20),
    };
    assert_eq!(settings.upstream_max_head, Some(Size(21 << 10)));
    assert_eq!(settings.upstream_max_fields, Some(22));
    assert!(settings.quiet_errors);
    assert_eq!(settings.request_headers[0].to_string(), "-X-A");
    assert_eq!(settings.response_headers[0].to_string(), "X-B: c");
    assert_eq!(settings.timeouts, expected);
    let expected = HealthSettings {
        path: "/h".to_owned(),
        interval: time(12),
        timeout: time(13),
        successes: Some(14),
        failures: Some(15),
    };
    assert_eq!(settings.health, Some(expected));
    let expected = EjectionSettings {
        failures: Some(0),
        base: time(16),
        longest: time(17),
    };
    assert_eq!(settings.ejection, expected);
    assert_eq!(settings.tls.ca, Some("ca".into()));
    assert_eq!(
        (settings.tls.cert, settings.tls.key),
        (Some("cert".into()), Some("key".into()))
    );
}

/// Goal: the same of the flags of mirrors.
#[test]
fn mirror_flags_reach_the_settings() {
    let line = "--upstream a:1 --mirror m:1,percent=0.5 --mirror-methods all --mirror-max-body 23KiB \
         --mirror-timeout 24s";
    let flags = parse(line).unwrap();
    let settings = flags.settings().unwrap_or_else(|_| panic!("{line}"));
    assert_eq!(settings.mirror[0].address.name, "m:1");
    assert_eq!(settings.mirror[0].share.unwrap().to_string(), "0.5%");
    let mirroring = MirroringSettings {
        methods: Some(MirrorMethodsChoice::All),
        max_body: Some(Size(23 << 10)),
        timeout: Some(Time { ns: 24_000_000_000 }),
    };
    assert_eq!(settings.mirroring, mirroring);
}

/// Goal: what cannot work is refused with the flag's name and the alternative.
#[test]
fn wrong_values_are_named() {
    for (line, part) in [
        ("--upstream 8080", "HOST:PORT"),
        ("--upstream a:1 --balance random", "two-choices"),
        ("--upstream a:1 --config x", "--config"),
        ("--config x --tries 2", "--tries"),
        ("--upstream a:1 --trust x", "ADDRESS/BITS"),
        ("--upstream a:1 --health-interval 1s", "--health"),
        ("--upstream a:1 --health x", "begins with /"),
        ("--upstream a:1 --forwarded y", "standard"),
        ("--upstream a:1 --upstream-proxy-protocol v3", "v1 or v2"),
        ("--upstream a:1 --retry-budget 101", "--retry-budget"),
        ("--upstream a:1 --upstream-cert c", "--upstream-key"),
        ("--upstream a:1 --tries 0", "at least 1"),
        ("--upstream a:1 --upgrade h2c", "unchecked"),
        (
            "--upstream a:1 --request-header Host:x",
            "cannot be changed",
        ),
        ("--upstream a:1 --upgrade a,,b", "no protocol"),
        ("--upstream a:1 --mirror m:1,percent=0", "0.0001 to 100"),
        ("--upstream a:1 --mirror-methods all", "--mirror"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
