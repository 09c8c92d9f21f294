//! Real servers, which count for themselves: our own and Python's.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_http::{Plaintext, ServeConfig, ServeError, ServeReport, serve_with};
use millpond_io::Address;
use millpond_load::{BodyCheck, LoadConfig, LoadRecord, Mode, Stop};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use support::{check_identities, get, run};

/// Runs the load against a plaintext server of ours; returns both sides' words.
fn against_plaintext(
    shards: usize,
    change: impl FnOnce(&mut LoadConfig),
) -> (LoadRecord, ServeReport) {
    let mut serve_config = ServeConfig::new("plaintext", "127.0.0.1:0".parse().unwrap());
    serve_config.shards = shards;
    let mut record = None;
    let report: Result<ServeReport, ServeError> = serve_with(
        &serve_config,
        |_| Ok::<_, std::io::Error>(Plaintext),
        |running| {
            let Address::Inet(address) = running.local_address() else {
                panic!("inet was asked for")
            };
            let mut config = get(*address);
            config.validation.body = BodyCheck::Exact;
            change(&mut config);
            record = Some(run(&config));
        },
    );
    (record.unwrap(), report.unwrap())
}

/// Goal: our server and our generator agree on the count, in every shape of load.
#[test]
fn our_own_server_counts_the_same() {
    for (threads, connections, pipeline) in [(1, 1, 1), (2, 64, 1), (2, 7, 16), (1, 2, 300)] {
        let (record, report) = against_plaintext(2, |config| {
            config.threads = threads;
            config.connections = connections;
            config.pipeline = pipeline;
            config.stop = Stop::after_requests(20_001);
        });
        check_identities(&record);
        assert_eq!(
            (record.requests, record.errors.total()),
            (20_001, 0),
            "{:?}",
            record.errors
        );
        assert_eq!(report.requests, 20_001);
    }
}

/// Goal: the same at a constant rate, with two threads that share one schedule.
#[test]
fn our_own_server_sees_the_whole_schedule() {
    let (record, report) = against_plaintext(1, |config| {
        config.threads = 2;
        config.connections = 16;
        config.mode = Mode::ConstantRate { per_s: 4_000.0 };
        config.stop = Stop::after_ns(500 * support::MS);
    });
    check_identities(&record);
    assert_eq!(
        (record.requests, record.errors.total()),
        (2_000, 0),
        "{:?}",
        record.errors
    );
    assert_eq!((report.requests, record.offered), (2_000, Some(2_000)));
}

/// Goal: without pools the generator does the same work.
#[test]
fn pools_off_changes_nothing_but_memory() {
    let (record, report) = against_plaintext(1, |config| {
        config.pool_mode = millpond_mempool::PoolMode::Off;
        config.connections = 4;
        config.pipeline = 4;
        config.stop = Stop::after_requests(3_000);
    });
    check_identities(&record);
    assert_eq!((record.requests, report.requests), (3_000, 3_000));
}

/// A Python process that ends with the test.
struct Python {
    child: Child,
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goal: a server we did not write, in both its protocols, logs exactly the requests we counted.
#[test]
fn pythons_server_logs_the_same_requests() {
    for protocol in ["HTTP/1.0", "HTTP/1.1"] {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("page"), vec![b'p'; 10_000]).unwrap();
        let script = "import sys, http.server as h\n\
             H = h.SimpleHTTPRequestHandler\n\
             H.protocol_version = sys.argv[1]\n\
             s = h.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
             print(s.server_address[1], flush=True)\n\
             s.serve_forever()\n";
        let spawned = Command::new("python3")
            .args(["-u", "-c", script, protocol])
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(child) = spawned else {
            eprintln!("skipped: python3 is not installed");
            return;
        };
        let mut python = Python { child };
        let mut port = String::new();
        BufReader::new(python.child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        let mut config = get(format!("127.0.0.1:{}", port.trim()).parse().unwrap());
        config.target.path = "/page".into();
        config.connections = 3;
        config.validation.body = BodyCheck::Exact;
        config.stop = Stop::after_requests(60);
        let record = run(&config);
        let mut log = String::new();
        python.child.kill().unwrap();
        python
            .child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        check_identities(&record);
        let errors = record.errors;
        assert_eq!(
            (record.requests, errors.total()),
            (60, 0),
            "{protocol} {errors:?} {log}"
        );
        assert_eq!(
            log.lines()
                .filter(|line| line.contains("GET /page"))
                .count(),
            60,
            "{log}"
        );
        assert!(record.bytes_received >= 600_000);
    }
}
