//! Servers that misbehave in one way each, in time, at the close and in TLS: exact counts, verdict and text, and beside
//! them what wrk, ab and curl make of the same servers. Responses that are wrong in their bytes are in `causes.rs`.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod modes;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod tools;

use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};
use millpond_load::{LoadConfig, LoadRecord, Stop};
use millpond_measure::record::LoadStatus;
use millpond_measure::report::wrk;
use modes::{ANSWERS, CLOSES, Mode, TIMING, TLS};
use server::{Server, Start};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::{MS, check_identities, try_run};

const REQUESTS: u64 = 6;
/// Of modes in which something does not come.
const SILENCE_NS: u64 = 1_000 * MS;

fn config(mode: &Mode, server: &Server) -> LoadConfig {
    let mut config = support::get(server.address);
    config.stop = Stop::after_requests(REQUESTS);
    if mode.is_silent {
        config.timeout_ns = SILENCE_NS;
    }
    // On a busy machine the next connection may take longer than a second.
    config.gone_after_ns = 3600 * 1000 * MS;
    // Only a handshake that never ends has a short bound: on a busy machine others take their time.
    let mut handshake_timeout_ns = config.connect_within_ns;
    if mode.is_silent && mode.start == Start::ClearToTls {
        (config.connect_within_ns, handshake_timeout_ns) = (SILENCE_NS, SILENCE_NS);
    }
    if mode.start != Start::Clear {
        let authority = server
            .certificates
            .as_ref()
            .map(server::Certificates::authority);
        let options = TlsClientOptions {
            host: "localhost".to_owned(),
            trust: authority.map_or(Trust::Anybody, Trust::File),
            identity: None,
            protocols: Vec::new(),
            handshake_timeout_ns,
            handshake_bytes_max: 1 << 18,
        };
        config.tls = Some(TlsClient::load(options).unwrap());
    }
    config
}

/// The outcome, in the table's form.
fn ours(mode: &Mode) -> Result<(), String> {
    let server = Server::start(mode.start, mode.conduct);
    let (right, failures, verdict, text) = match try_run(&config(mode, &server)) {
        Ok(mut record) => {
            check_identities(&record);
            forgive_the_machine(&mut record);
            let kinds = record.failures.iter();
            let kinds: Vec<String> = kinds
                .map(|one| format!("{} {}", one.kind.label(), one.count))
                .collect();
            let text = wrk::clocks(&record.to_report());
            (
                record.requests,
                kinds.join(", "),
                record.verdict.status,
                text,
            )
        }
        Err(error) => (
            0,
            "refused".to_owned(),
            LoadStatus::Invalid,
            error.to_string(),
        ),
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_told = words.join(" ").contains(mode.told);
    let is_right = (right, failures.as_str(), verdict) == (mode.right, mode.failures, mode.verdict);
    match is_right && is_told && server.connections() >= mode.connections {
        true => Ok(()),
        false => Err(format!(
            "{right} right, {failures:?}, {verdict:?}, {} connections, instead of {} right, {:?}, {:?}, {} \
             connections; {:?} is told: {is_told}\n{text}",
            server.connections(),
            mode.right,
            mode.failures,
            mode.verdict,
            mode.connections,
            mode.told
        )),
    }
}

/// A run that nothing but the hypervisor makes suspect is judged as on a machine that has its CPUs.
fn forgive_the_machine(record: &mut LoadRecord) {
    let verdict = &mut record.verdict;
    let is_machine = |reason: &String| reason.starts_with("the hypervisor withheld");
    if verdict.status == LoadStatus::Suspect && verdict.reasons.iter().all(is_machine) {
        (verdict.status, verdict.reasons) = (LoadStatus::Ok, Vec::new());
    }
}

/// Holds each of `modes` to its row by `check`, several at a time: most of them wait.
fn hold(modes: &[Mode], check: fn(&Mode) -> Result<(), String>) {
    const AT_ONCE: usize = 8;
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(mode) = modes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(what) = check(mode) {
                        wrong.lock().unwrap().push(format!("{}: {what}", mode.name));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Goal: a response that is late or comes in pieces is a right response, and one that does not come is a timeout.
#[test]
fn late_and_slow_answers() {
    hold(TIMING, ours);
}

/// Goal: connections that end with a response are no failure; each that ends without one costs one request.
#[test]
fn connections_that_end() {
    hold(CLOSES, ours);
}

/// Goal: bytes that no request asked for are a failure; responses that differ are none, unless their status is wrong.
#[test]
fn answers_nobody_asked_for() {
    hold(ANSWERS, ours);
}

/// Goal: a handshake that fails is named, and TLS changes nothing else.
#[test]
fn handshakes() {
    hold(TLS, ours);
}

/// Goal: the columns of wrk, ab and curl are what these programs say, where they are installed.
#[test]
#[ignore = "slow tier: those programs judge by time, and a busy machine changes what they say"]
fn references_are_what_the_tools_say() {
    for modes in [TIMING, CLOSES, ANSWERS, TLS] {
        hold(modes, tools::check);
    }
}
