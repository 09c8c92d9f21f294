//! Every attack: how its clients behave, and what the server has to do.
//!
//! Expectations are exact where they can be: the only responses the clients may get, and the counters of `/metrics`
//! that show what happened.

use super::crowd::{Behaviour, Then};
use super::exchanges;
use std::time::Duration;

/// The server that is attacked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Plaintext,
    Files,
}

/// One way to be hostile.
#[derive(Debug)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Flags of the server besides those of all.
    pub(super) flags: &'static [&'static str],
    /// Connections of the crowd.
    pub(super) count: usize,
    /// The same, for a quick check.
    pub(super) smoke_count: usize,
    pub(super) behaviour: fn() -> Behaviour,
    /// The statuses that the crowd gets; no other is allowed.
    pub(super) answers: &'static [u16],
    /// Samples of `/metrics` that must have grown.
    pub(super) counted: &'static [&'static str],
    /// The well-behaved client is there first: later there is no room for it, as is right.
    pub(super) is_good_first: bool,
}

const HEAD_TIME: &str = "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"head_timeout_ns\"}";
const IDLE_TIME: &str = "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"idle_timeout_ns\"}";
const BODY_RATE: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"body_rate_bytes_per_s_min\"}";
const WRITE_STALL: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"write_stall_ns\"}";
const CONNECTIONS: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"connections_max\"}";
const ADDRESS: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"connections_per_address_max\"}";
const HEAD_BYTES: &str = "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"head_bytes_max\"}";
const PIPELINED: &str =
    "millpond_http_limit_exceeded_total{shard=\"0\",limit=\"pipelined_per_tick_max\"}";
const OK: &str = "millpond_http_responses_total{shard=\"0\",status=\"200\"}";
const BAD: &str = "millpond_http_responses_total{shard=\"0\",status=\"400\"}";
const REFUSED_METHOD: &str = "millpond_http_responses_total{shard=\"0\",status=\"405\"}";
const ACCEPTED: &str = "millpond_http_connections_accepted_total{shard=\"0\"}";

const PLAIN: Attack = Attack {
    name: "",
    kind: Kind::Plaintext,
    flags: &[],
    count: 500,
    smoke_count: 50,
    behaviour: Behaviour::default,
    answers: &[],
    counted: &[],
    is_good_first: false,
};

/// A file that takes longer to send than any socket buffer hides.
pub(super) const LARGE_FILE: &str = "/large";

impl Attack {
    /// Whether it is a deadline that ends it. The others run under the servers' own deadlines, which
    /// no machine is too busy to keep.
    pub(super) fn meets_deadline(&self) -> bool {
        let deadlines = [HEAD_TIME, BODY_RATE, WRITE_STALL];
        self.counted.iter().any(|sample| deadlines.contains(sample))
    }
}

/// All there are.
pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "slowloris-head",
        behaviour: || Behaviour {
            opening: |_| exchanges::GET[..exchanges::GET.len() - 2].to_vec(),
            repeat: b"X-Slow: 1\r\n".to_vec(),
            bytes_per_round: 1,
            pace: Duration::from_millis(20),
            ..Behaviour::default()
        },
        answers: &[408],
        counted: &[HEAD_TIME],
        ..PLAIN
    },
    Attack {
        name: "slowloris-body",
        kind: Kind::Files,
        behaviour: || Behaviour {
            // A length that the server is ready to read for the sake of the connection.
            opening: |_| {
                b"POST / HTTP/1.1\r\nHost: hostile\r\nContent-Length: 60000\r\n\r\n".to_vec()
            },
            repeat: b"x".to_vec(),
            bytes_per_round: 1,
            pace: Duration::from_millis(20),
            ..Behaviour::default()
        },
        answers: &[405],
        counted: &[BODY_RATE, REFUSED_METHOD],
        ..PLAIN
    },
    Attack {
        name: "expect-never-followed",
        behaviour: || Behaviour {
            opening: |_| {
                b"POST / HTTP/1.1\r\nHost: hostile\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n"
                    .to_vec()
            },
            ..Behaviour::default()
        },
        answers: &[405],
        counted: &[REFUSED_METHOD],
        ..PLAIN
    },
    Attack {
        name: "slow-readers",
        // Enough that what the server kept for them shows.
        smoke_count: 200,
        behaviour: || Behaviour {
            repeat: exchanges::pipeline(100),
            reads: false,
            ..Behaviour::default()
        },
        counted: &[WRITE_STALL],
        ..PLAIN
    },
    Attack {
        name: "slow-readers-of-files",
        kind: Kind::Files,
        behaviour: || Behaviour {
            opening: |_| format!("GET {LARGE_FILE} HTTP/1.1\r\nHost: hostile\r\n\r\n").into_bytes(),
            reads: false,
            ..Behaviour::default()
        },
        counted: &[WRITE_STALL],
        ..PLAIN
    },
    Attack {
        name: "abandoned-connections",
        flags: &["--idle-timeout", "1500ms"],
        count: 10_000,
        smoke_count: 300,
        behaviour: || Behaviour {
            pace: Duration::from_millis(20),
            ..Behaviour::default()
        },
        counted: &[IDLE_TIME],
        ..PLAIN
    },
    Attack {
        name: "garbage",
        behaviour: || Behaviour {
            opening: exchanges::garbage,
            ..Behaviour::default()
        },
        answers: &[400],
        counted: &[BAD],
        ..PLAIN
    },
    Attack {
        name: "tls-garbage",
        behaviour: || Behaviour {
            opening: exchanges::client_hello,
            ..Behaviour::default()
        },
        answers: &[400],
        counted: &[BAD],
        ..PLAIN
    },
    Attack {
        name: "half-closed",
        behaviour: || Behaviour {
            opening: |serial| match serial % 2 {
                0 => exchanges::pipeline(3),
                // The end of a head that never comes: there is no response.
                _ => exchanges::GET[..exchanges::GET.len() - 2].to_vec(),
            },
            then: Then::HalfClose,
            ..Behaviour::default()
        },
        answers: &[200],
        counted: &[OK, ACCEPTED],
        ..PLAIN
    },
    Attack {
        name: "pipelined-flood",
        count: 16,
        smoke_count: 8,
        behaviour: || Behaviour {
            repeat: exchanges::pipeline(1000),
            pace: Duration::ZERO,
            ..Behaviour::default()
        },
        answers: &[200],
        counted: &[OK, PIPELINED],
        ..PLAIN
    },
    Attack {
        name: "reset-storm",
        count: 100,
        behaviour: || Behaviour {
            opening: |serial| {
                exchanges::pipeline(2)[..exchanges::GET.len() + serial as usize % 40].to_vec()
            },
            then: Then::Reset,
            reads: false,
            pace: Duration::from_millis(1),
            ..Behaviour::default()
        },
        counted: &[ACCEPTED],
        ..PLAIN
    },
    Attack {
        name: "reset-storm-of-files",
        kind: Kind::Files,
        count: 100,
        behaviour: || Behaviour {
            opening: |_| format!("GET {LARGE_FILE} HTTP/1.1\r\nHost: hostile\r\n\r\n").into_bytes(),
            then: Then::Reset,
            reads: false,
            pace: Duration::from_millis(1),
            ..Behaviour::default()
        },
        counted: &[ACCEPTED],
        ..PLAIN
    },
    Attack {
        name: "connection-flood",
        flags: &["--max-connections", "100"],
        count: 300,
        smoke_count: 150,
        behaviour: || Behaviour {
            opening: |_| exchanges::GET.to_vec(),
            ..Behaviour::default()
        },
        answers: &[200, 503],
        counted: &[CONNECTIONS],
        is_good_first: true,
        ..PLAIN
    },
    Attack {
        name: "connection-flood-from-one-address",
        flags: &["--max-connections-per-address", "100"],
        count: 300,
        smoke_count: 150,
        behaviour: || Behaviour {
            opening: |_| exchanges::GET.to_vec(),
            from_elsewhere: true,
            ..Behaviour::default()
        },
        answers: &[200, 503],
        counted: &[ADDRESS],
        ..PLAIN
    },
    Attack {
        name: "widest-heads",
        count: 16,
        smoke_count: 8,
        behaviour: || Behaviour {
            repeat: exchanges::widest_head(),
            pace: Duration::ZERO,
            ..Behaviour::default()
        },
        answers: &[200],
        counted: &[OK],
        ..PLAIN
    },
    Attack {
        name: "heads-too-wide",
        behaviour: || Behaviour {
            opening: |_| exchanges::head_of(16 * 1024 + 1, 50),
            ..Behaviour::default()
        },
        answers: &[431],
        counted: &[HEAD_BYTES],
        ..PLAIN
    },
    Attack {
        name: "one-byte-chunks",
        count: 64,
        smoke_count: 16,
        behaviour: || Behaviour {
            opening: |_| {
                b"POST /plaintext HTTP/1.1\r\nHost: hostile\r\nTransfer-Encoding: chunked\r\n\r\n"
                    .to_vec()
            },
            repeat: b"1\r\nx\r\n".repeat(5000),
            pace: Duration::ZERO,
            ..Behaviour::default()
        },
        answers: &[405],
        counted: &[REFUSED_METHOD],
        ..PLAIN
    },
    Attack {
        name: "hoarded-bodies",
        count: 100,
        smoke_count: 20,
        behaviour: || Behaviour {
            // All but the end of the longest body allowed, which no handler reads.
            opening: |_| {
                b"POST /plaintext HTTP/1.1\r\nHost: hostile\r\nContent-Length: 67108864\r\n\r\n"
                    .to_vec()
            },
            repeat: vec![b'x'; 64 * 1024],
            bytes_per_round: 16 * 1024,
            ..Behaviour::default()
        },
        answers: &[405],
        counted: &[REFUSED_METHOD],
        ..PLAIN
    },
    Attack {
        name: "range-abuse",
        kind: Kind::Files,
        count: 16,
        smoke_count: 8,
        behaviour: || Behaviour {
            repeat: exchanges::many_ranges("/small"),
            pace: Duration::ZERO,
            ..Behaviour::default()
        },
        answers: &[200],
        counted: &[OK],
        ..PLAIN
    },
];

/// The attack of that name.
pub(super) fn named(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

/// Goal: attacks are distinguished by their names, and each says how it shows.
#[test]
fn every_attack_has_a_name_and_shows() {
    let mut names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ATTACKS.len());
    assert!(
        ATTACKS
            .iter()
            .all(|attack| !attack.counted.is_empty() && attack.smoke_count > 0)
    );
}
