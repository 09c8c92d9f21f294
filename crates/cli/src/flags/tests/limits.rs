use super::*;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    limits: LimitFlags,
}

fn limits_at(listen: &str, line: &str, shards: usize) -> LimitValues {
    let words = ["serve"].into_iter().chain(line.split_whitespace());
    let flags = Line::try_parse_from(words).unwrap().limits;
    let listen = (&listen.parse().unwrap(), false);
    flags.limits(listen, shards, flags.connections())
}

fn limits(line: &str, shards: usize) -> LimitValues {
    limits_at("127.0.0.1:80", line, shards)
}

/// 300 slow heads from one address kept `--max-connections 200` at 503 for all clients.
///
/// Goal: where other machines can connect, one address has half of the connections at most, this machine has all,
/// and a cap that is given is for both; "none" is none.
#[test]
fn one_address_has_half_of_the_connections() {
    let cap = |listen: &str, line: &str| {
        let limits = limits_at(listen, line, 2);
        (
            limits.connections_per_address_max,
            limits.counts_loopback_addresses,
        )
    };
    let line = "--max-connections 200";
    for remote in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80"] {
        assert_eq!(cap(remote, line), (50, false), "{remote}");
    }
    for local in ["127.0.0.1:80", "[::1]:80", "unix:/tmp/x"] {
        assert_eq!(cap(local, line), (usize::MAX, false), "{local}");
    }
    assert_eq!(
        cap("0.0.0.0:80", "--max-connections-per-address none").0,
        usize::MAX
    );
    assert_eq!(
        cap("0.0.0.0:80", "--max-connections-per-address 8"),
        (4, true)
    );
    assert_eq!(
        cap("127.0.0.1:80", "--max-connections-per-address 8"),
        (4, true)
    );
}

/// A balancer on the same machine was one that every client came from, and no client had a cap.
///
/// Goal: where the PROXY protocol reports addresses the cap is for them, also on loopback and a unix socket.
#[test]
fn told_addresses_have_a_cap_everywhere() {
    let flags = Line::try_parse_from(["serve", "--max-connections", "200"])
        .unwrap()
        .limits;
    for listen in ["127.0.0.1:80", "unix:/tmp/x"] {
        let listen = (&listen.parse().unwrap(), true);
        let limits = flags.limits(listen, 2, 200);
        assert_eq!(limits.connections_per_address_max, 50);
        assert!(!limits.counts_loopback_addresses);
    }
}

/// Goal: the help's defaults are the library's.
#[test]
fn defaults_are_the_library_s() {
    let library_s = LimitValues {
        counts_loopback_addresses: false,
        ..LimitValues::default()
    };
    assert_eq!(limits("", 1), library_s);
}

/// Goal: each flag reaches the field it names, in its unit; connections are shared out.
#[test]
fn flags_reach_the_limits() {
    let line = "--max-connections 10 --max-connections-per-address 4 --max-request-line 1KiB \
         --max-head 2KiB --max-fields 3 --max-body 4GiB --max-chunk-extension 5 \
         --max-trailer 6 --max-pipelined 7 --max-output 8 --head-timeout 9ms \
         --idle-timeout 1m --idle-timeout-min 10ms --body-grace 11ms --min-body-rate 12 --contended-grace 16ms \
         --write-stall 13ms --min-write-rate 14 --drain-timeout 15ms";
    let expected = LimitValues {
        request_line_bytes_max: 1024,
        head_bytes_max: 2048,
        fields_max: 3,
        body_bytes_max: 4 << 30,
        bodies_bytes_max: u64::MAX,
        chunk_extension_bytes_max: 5,
        trailer_bytes_max: 6,
        pipelined_per_tick_max: 7,
        output_bytes_max: 8,
        head_timeout_ns: 9_000_000,
        idle_timeout_ns: 60_000_000_000,
        idle_timeout_min_ns: 10_000_000,
        body_grace_ns: 11_000_000,
        body_rate_bytes_per_s_min: 12,
        contended_grace_ns: 16_000_000,
        write_stall_ns: 13_000_000,
        write_rate_bytes_per_s_min: 14,
        drain_timeout_ns: 15_000_000,
        connections_max: 4,
        connections_per_address_max: 2,
        counts_loopback_addresses: true,
    };
    assert_eq!(limits(line, 3), expected);
}

/// Goal: what the library refuses is reported by the flag's name, with what to write.
#[test]
fn refusals_name_the_flag() {
    let refused = |line| in_flags(&limits(line, 1).checked().unwrap_err());
    assert_eq!(
        refused("--max-fields 500"),
        "--max-fields 500: use a value from 1 to 128"
    );
    assert_eq!(
        refused("--min-body-rate 0"),
        "--min-body-rate 0: use at least 1"
    );
    for (field, flag) in FLAGS {
        let arg = flag.trim_start_matches("--");
        let command = <Line as clap::CommandFactory>::command();
        let mut args = command.get_arguments();
        assert!(args.any(|it| it.get_long() == Some(arg)), "{flag}: {field}");
    }
}
