//! One run: http's server shards and load's threads in this process, until every request has its response.
//!
//! `child` calls [`run`]. The server's threads take the first CPUs and the client's the next ones,
//! so that with one of each on two CPUs neither waits for the other's. The earlier benchmark
//! counted from the first request on; its first second is there to be seen in the seconds.

use super::Answering;
use crate::loopback;
use crate::memory;
use millpond_http::{DriverChoice, LimitValues, ServeConfig, ServeReport};
use millpond_http::{Method, Running};
use millpond_io::allowed_cpus;
use millpond_load::{
    BodyCheck, ConnectionUse, LoadConfig, LoadRecord, Observer, Second, StatusSet, Stop, Target,
    Validation, Workload,
};
use millpond_measure::histogram::LatencySummary;
use millpond_measure::record::{LoadErrors, LoadSecond, PoolSetting, RunPart};
use millpond_mempool::PoolMode;
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::sync::atomic::AtomicBool;

/// A request that takes longer has failed. Far beyond what a machine that is busy takes.
const TIMEOUT_NS: u64 = 30_000_000_000;
/// The byte that the earlier benchmark's clients sent.
const REQUEST_BYTE: u8 = 42;
/// Descriptors of a process besides the two of each connection.
const OTHER_DESCRIPTORS: u64 = 128;

/// The work.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PairSpec {
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests of all connections together.
    pub requests: u64,
    /// Of the client, and as many of the server.
    pub threads: usize,
    /// Length of each request's body, sent in one chunk.
    pub request_bytes: usize,
    /// Length of each response's body, sent in one chunk.
    pub response_bytes: usize,
    /// Memory pools of both sides.
    pub pools: PoolSetting,
    /// Kernel interface of the server: `epoll` or `uring`.
    pub server_driver: String,
    /// Kernel interface of the client.
    pub client_driver: String,
}

/// How the requests spread over the connections.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    /// How many connections.
    pub connections: u64,
    /// Requests on one, on average.
    pub mean: f64,
    /// Variance of that.
    pub variance: f64,
    /// Fewest on one.
    pub min: u64,
    /// Most on one.
    pub max: u64,
    /// Jain's index: 1 if all carried the same, 1 / n if one of n carried all.
    pub fairness: f64,
}

impl From<&ConnectionUse> for Spread {
    fn from(found: &ConnectionUse) -> Self {
        Self {
            connections: found.connections,
            mean: found.mean(),
            variance: found.variance(),
            min: found.requests_min,
            max: found.requests_max,
            fairness: found.fairness(),
        }
    }
}

/// The results of one run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub struct PairSample {
    /// Successful requests: 200, and a body of the agreed length.
    pub requests: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From the first request to the last response.
    pub duration_ns: u64,
    /// Right responses per second of that.
    pub requests_per_s: f64,
    /// The best whole second; 0 where there was none.
    pub peak_requests_per_s: f64,
    /// From a request's write to the last byte of its response.
    pub latency_ns: LatencySummary,
    /// Connections that the server accepted.
    pub accepts: u64,
    /// The same by server thread.
    pub accepts_by_thread: Vec<u64>,
    /// How the requests spread over the connections.
    pub per_connection: Spread,
    /// CPU time of all threads, both sides.
    pub cpu_ns: u64,
    /// CPU of the busiest thread of the client, as a share of one CPU.
    pub client_cpu_share: f64,
    /// The most memory resident meanwhile, both sides.
    pub peak_rss_bytes: u64,
    /// The results of each second.
    pub seconds: Vec<LoadSecond>,
}

/// Passes seconds on.
struct Seconds<'a>(&'a dyn Fn(&LoadSecond));

impl Observer for Seconds<'_> {
    fn second(&self, second: &Second<'_>) {
        (self.0)(second.figures);
    }
}

/// There is room for all connections, and a third-party client gets the agreed response.
pub(super) fn check(spec: &PairSpec) -> Result<(), String> {
    make_room_for_descriptors(spec)?;
    let mut found = Ok(());
    let answer = answer(spec);
    serve(spec, |running| {
        found = match running.local_address().inet() {
            Some(address) => loopback::check(address, spec.request_bytes, &answer),
            None => Err("the server does not listen on TCP".to_owned()),
        };
    })?;
    found.map_err(|reason| format!("the responses are not right: {reason}"))
}

/// Runs it to its end; `each` gets every second.
pub(super) fn run(spec: &PairSpec, each: &dyn Fn(&LoadSecond)) -> Result<PairSample, String> {
    memory::forget_peak();
    let cpu_before_ns = process_cpu_ns();
    let mut driven = None;
    let served = serve(spec, |running| {
        let found = drive(spec, running, each);
        driven = Some((found, process_cpu_ns() - cpu_before_ns));
    })?;
    let (record, cpu_ns) = driven.ok_or("the server was not loaded")?;
    let record = record?;
    Ok(PairSample {
        cpu_ns,
        peak_rss_bytes: memory::peak_bytes(),
        ..sample(&record, &served)
    })
}

fn serve(spec: &PairSpec, control: impl FnOnce(&Running)) -> Result<ServeReport, String> {
    let listen = "127.0.0.1:0".parse().map_err(in_words)?;
    let config = ServeConfig {
        shards: spec.threads,
        pin: true,
        pool_mode: pool_mode(spec.pools),
        driver: driver(&spec.server_driver)?,
        limits: LimitValues {
            // The kernel deals them out, and may deal one thread more than its share.
            connections_max: LimitValues::DEFAULT
                .connections_max
                .max(2 * spec.connections),
            body_bytes_max: spec.request_bytes as u64 + 1,
            ..LimitValues::default()
        }
        .checked()
        .map_err(in_words)?,
        ..ServeConfig::new("loopback", listen)
    };
    let service = Answering {
        request_bytes: spec.request_bytes,
        answer: answer(spec).into(),
    };
    millpond_http::serve_with(&config, |_| Ok::<_, Infallible>(service.clone()), control)
        .map_err(in_words)
}

fn drive(
    spec: &PairSpec,
    running: &Running,
    each: &dyn Fn(&LoadSecond),
) -> Result<LoadRecord, String> {
    let config = load_config(spec, running)?;
    let record = millpond_load::run_observed(&config, &Seconds(each), &AtomicBool::new(false));
    record.map_err(in_words)
}

fn load_config(spec: &PairSpec, running: &Running) -> Result<LoadConfig, String> {
    let address = running.local_address().clone();
    let target = Target {
        host: address.to_string(),
        addresses: [address].into(),
        path: "/".to_owned(),
    };
    let workload = Workload::StaticChunked {
        method: Method::Get,
        fields: vec![("Content-Type".to_owned(), "octet-stream".to_owned())],
        body: vec![REQUEST_BYTE; spec.request_bytes],
        chunk_bytes: spec.request_bytes.max(1),
    };
    let cpus = allowed_cpus().map_err(in_words)?;
    let places = cpus.len();
    let behind_the_server = (0..places).map(|place| cpus[(spec.threads + place) % places]);
    Ok(LoadConfig {
        threads: spec.threads,
        connections: spec.connections,
        stop: Stop::after_requests(spec.requests),
        validation: Validation {
            length: Some(spec.response_bytes as u64),
            ..Validation::of(StatusSet::of(&[200]), BodyCheck::Ignore)
        },
        timeout_ns: TIMEOUT_NS,
        cpus: Some(behind_the_server.collect()),
        pool_mode: pool_mode(spec.pools),
        driver: driver(&spec.client_driver)?,
        ..LoadConfig::new(target, workload)
    })
}

fn sample(record: &LoadRecord, served: &ServeReport) -> PairSample {
    let is_whole =
        |second: &&LoadSecond| second.part == RunPart::Window && second.duration_ns >= 999_000_000;
    let whole = record.seconds.iter().filter(is_whole);
    let accepts = served.shards.iter().map(|shard| shard.driver.accepted);
    PairSample {
        requests: record.requests,
        errors: record.errors,
        duration_ns: record.duration_ns,
        requests_per_s: record.requests_per_s,
        peak_requests_per_s: whole.map(|it| it.requests_per_s).fold(0.0, f64::max),
        latency_ns: record.response.summary(),
        accepts: accepts.clone().sum(),
        accepts_by_thread: accepts.collect(),
        per_connection: Spread::from(&record.connection_use),
        client_cpu_share: record.generator_cpu_share,
        seconds: record.seconds.clone(),
        ..PairSample::default()
    }
}

/// Both ends of each connection are in this process.
fn make_room_for_descriptors(spec: &PairSpec) -> Result<(), String> {
    let needed = 2 * spec.connections as u64 + OTHER_DESCRIPTORS;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        return Err(format!(
            "{} connections take {needed} descriptors in a process that has both ends of them: raise \
             the limit with `ulimit -Hn {needed}`, or ask for fewer connections",
            spec.connections
        ));
    }
    limit.current = Some(needed);
    setrlimit(Resource::Nofile, limit).map_err(|error| format!("ulimit -n {needed}: {error}"))
}

fn pool_mode(setting: PoolSetting) -> PoolMode {
    match setting {
        PoolSetting::On => PoolMode::On,
        PoolSetting::Off => PoolMode::Off,
    }
}

fn driver(name: &str) -> Result<DriverChoice, String> {
    name.parse().map_err(in_words)
}

/// Text that no part of repeats, so that a response with a piece missing or twice is not taken for it.
fn answer(spec: &PairSpec) -> Vec<u8> {
    let numbers = (0..).flat_map(|number: u32| format!("<v>{number}</v>").into_bytes());
    numbers.take(spec.response_bytes).collect()
}

fn process_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
#[path = "tests/pair.rs"]
mod tests;
