//! One run from the first connection to the record: connect all, warm up, count, drain, judge.
//!
//! `cli` and `lab` call [`run`]; it starts the workers, sets the schedule once every connection has
//! been tried, watches, and merges what the threads counted.

mod watch;
mod assembly;
mod sets;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use millpond_io::tls::Tls;
use millpond_io::{
    Address, Driver, DriverCounters, DriverKind, EpollDriver, IoError, Shard, ShardConfig,
    UringDriver,
};
use millpond_measure::record::{LoadCookies, LoadErrors, LoadSteadiness, LoadWarmUp};
use millpond_mempool::PoolMode;
use rustix::process::{Resource, getrlimit};

use crate::config::{LoadConfig, WarmUp};
use crate::connection_plan::ConnectionUse;
use crate::connection_plan::Openings;
use crate::error::{ConnectFailure, LoadError};
use crate::outages::Steadiness;
use crate::outcome::{Outcome, add_errors};
use crate::record::LoadRecord;
use crate::samples::BatchClocks;
use crate::samples::Samples;
use crate::schedule::{Arrival, Origin, Schedule};
use crate::script::{Runner, Script};
use crate::shared::AbortWatch;
use crate::shared::Opener;
use crate::shared::Shared;
use crate::timeline::{Lost, Second, Timeline};
use crate::worker::Worker;
use crate::workload::Requests;

use self::assembly::{assemble, samples_of};
use self::watch::{Watch, show_seconds};

/// How far a run is; handed out about four times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// True until the window begins.
    pub is_warm_up: bool,
    /// Right responses in the window so far.
    pub completed: u64,
    /// Failures so far.
    pub errors: LoadErrors,
    /// Right responses per second since the last progress.
    pub rate_per_s: f64,
    /// Time since the run began sending.
    pub elapsed_ns: u64,
    /// Time left, estimated from the rate when a count ends the run; `None` if not known yet.
    pub remaining_ns: Option<u64>,
}

/// How far the opening of connections is, before anything is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Connecting {
    /// Connections that are open.
    pub open: u64,
    /// Connections that are to be open before anything is sent.
    pub asked: u64,
    /// Time since the first was asked for.
    pub elapsed_ns: u64,
    /// Why the last attempt failed; `None`: none has.
    pub last_failure: Option<ConnectFailure>,
}

/// Observes a running run, on the thread that started it.
///
/// Of several sets of connections one after another the window's edges are those of each.
pub trait Observer {
    /// Connections are being opened: about four times a second, from a quarter of a second on.
    fn connecting(&self, _now: &Connecting) {}
    /// Sending begins at `at`, a few milliseconds from now.
    fn started(&self, _at: SystemTime) {}
    /// The window has begun, some 50 us ago on a quiet machine, and any time ago on a busy one: for readings
    /// that are to cover it. They take their time from a CPU that the threads of the run may need.
    fn window_began(&self) {}
    /// The window is over, as above, or all of its requests have their response. Not called if the run is cut short.
    fn window_ended(&self) {}
    /// All responses came, and with [`LoadConfig::holds_connections`] all connections are open still. Not called if the
    /// run is cut short.
    fn connections_held(&self) {}
    /// About four times a second.
    fn progress(&self, _now: &Progress) {}
    /// Asked after each progress: true ends the run at once, with what was measured until then.
    fn has_seen_enough(&self) -> bool {
        false
    }
    /// Once for every second, in order, within some 30 ms of its end; warm-up included.
    fn second(&self, _second: &Second<'_>) {}
    /// The run has ended, but threads have not: their script does not return. `record` is the final
    /// one. If this returns, the run waits for them, perhaps for ever.
    fn stuck(&self, _record: &LoadRecord) {}
}

/// Progress alone.
struct Counter<'a>(&'a (dyn Fn(&Progress) + Sync));

impl Observer for Counter<'_> {
    fn progress(&self, now: &Progress) {
        (self.0)(now);
    }
}

/// [`run_observed`], for callers that want the progress and no more.
///
/// # Errors
/// As there.
pub fn run(
    config: &LoadConfig,
    progress: &(dyn Fn(&Progress) + Sync),
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    run_observed(config, &Counter(progress), stop)
}

/// Runs `config` to its end and blocks meanwhile. `stop` ends it within some 50 ms, with what was
/// measured until then.
///
/// # Errors
/// If nothing was measured: a setting is wrong, the target cannot be reached, or the operating
/// system refuses threads, sockets or memory. Requests that fail are counted in the record.
pub fn run_observed(
    config: &LoadConfig,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    config.check()?;
    check(config)?;
    if config.has_sets() {
        return sets::run(config, observer, stop);
    }
    let mut abort = AbortWatch::new(config.abort.as_ref(), config.timeout_ns);
    let part = Part {
        config,
        origin: Origin::default(),
    };
    Ok(run_part(&part, None, observer, &mut abort, stop)?.record)
}

/// As [`run_observed`], with the requests that `script` makes instead of the workload's; `script` was loaded
/// for this `config`.
///
/// # Errors
/// As for [`run()`]. The script's errors meanwhile are in [`Script::errors`].
pub fn run_script(
    config: &LoadConfig,
    script: &mut Script,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    config.check()?;
    check(config)?;
    let refuse = |name, problem: &str| {
        Err(LoadError::Setting {
            name,
            problem: problem.to_owned(),
        })
    };
    if config.cookies.is_some() {
        return refuse(
            "cookies",
            "a script writes its requests itself, cookies too",
        );
    }
    if config.has_sets() {
        let name = match config.plan.reconnect {
            Some(_) => "reconnect-every",
            None => "repeat",
        };
        return refuse(
            name,
            "a script sets up its threads for one set of connections: run the command several times instead",
        );
    }
    let mut abort = AbortWatch::new(config.abort.as_ref(), config.timeout_ns);
    let part = Part {
        config,
        origin: Origin::default(),
    };
    Ok(run_part(&part, Some(script), observer, &mut abort, stop)?.record)
}

/// The work of one set of connections.
struct Part<'a> {
    config: &'a LoadConfig,
    /// The work of earlier sets.
    origin: Origin,
}

/// Its result.
struct PartEnd {
    record: LoadRecord,
    /// How much of the run it took.
    took: Origin,
}

/// Runs the workers over one set of connections; `part` is checked.
fn run_part(
    part: &Part<'_>,
    mut script: Option<&mut Script>,
    observer: &dyn Observer,
    abort: &mut AbortWatch<'_>,
    stop: &AtomicBool,
) -> Result<PartEnd, LoadError> {
    let config = part.config;
    let threads = config.threads.min(config.connections);
    let requests = Requests::new(config)?;
    let driver = config.driver.choose()?.kind;
    let shared = Shared {
        origin: part.origin,
        ..Shared::new(config, config.pace()?, requests, threads)
    };
    let shares = (0..threads).map(|index| share_of(config, threads, index));
    let runners = script
        .as_mut()
        .map_or_else(Vec::new, |script| script.lend(shares));
    std::thread::scope(|scope| {
        let opener = Opener(&shared.gate);
        let workers = start_workers(scope, &shared, driver, threads, runners)?;
        let mut timeline = Timeline::new(&shared.exchange, threads);
        let watch = Watch::new(&shared, &workers, observer, stop);
        let watch = watch.over_scripts(script.is_some());
        let watched = watch.to_the_end(&mut timeline, abort);
        // Whatever ended the watch ends the threads; those that are done do not mind.
        shared.cut_off.store(true, Ordering::Release);
        drop(opener);
        if script.is_some()
            && let Ok(watched) = &watched
            && !all_ended(&workers)
        {
            let (ends, lost) = split_stuck(workers, &mut timeline);
            show_seconds(&shared, observer, &mut timeline);
            let record = LoadRecord {
                driver: driver.name(),
                ..assemble(&shared, &ends, &lost, watched, timeline)
            };
            observer.stuck(&record);
            return Ok(PartEnd::of(record, &shared));
        }
        let ends = workers.into_iter().map(join).collect::<Result<Vec<_>, _>>();
        let (mut ends, watched) = (ends?, watched?);
        if let Some(script) = script {
            script.take_back(ends.iter_mut().filter_map(|end| end.script.take()));
        }
        show_seconds(&shared, observer, &mut timeline);
        let record = assemble(&shared, &ends, &[], &watched, timeline);
        let record = LoadRecord {
            driver: driver.name(),
            samples: samples_of(&shared, &mut ends, record.started_unix_ns),
            ..record
        };
        Ok(PartEnd::of(record, &shared))
    })
}

impl PartEnd {
    fn of(record: LoadRecord, shared: &Shared<'_>) -> Self {
        let counted_ns = shared
            .schedule
            .get()
            .and_then(Schedule::process_time_ns)
            .unwrap_or(record.rate_window.duration_ns);
        let took = Origin {
            requests: record.offered.unwrap_or(record.sent),
            time_ns: counted_ns,
        };
        Self { record, took }
    }
}

/// No connection is lost to the division: the first threads take one more.
fn share_of(config: &LoadConfig, threads: usize, index: usize) -> usize {
    config.connections / threads + usize::from(index < config.connections % threads)
}

/// The results of a thread.
struct WorkerEnd {
    leftover: Option<Arrival>,
    outcome: Outcome,
    cpu_share: f64,
    driver: DriverCounters,
    script: Option<Box<Runner>>,
    cookies: Option<LoadCookies>,
    batches: Option<BatchClocks>,
    samples: Option<Samples>,
    openings: Openings,
    connection_use: ConnectionUse,
}

type WorkerHandle<'scope> = ScopedJoinHandle<'scope, Result<WorkerEnd, LoadError>>;

fn start_workers<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared<'env>,
    driver: DriverKind,
    threads: usize,
    runners: Vec<Runner>,
) -> Result<Vec<WorkerHandle<'scope>>, LoadError> {
    let mut runners = runners.into_iter();
    let supervisor = std::thread::current();
    let mut workers = Vec::with_capacity(threads);
    for index in 0..threads {
        let share = share_of(shared.config, threads, index);
        let runner = runners.next().map(Box::new);
        let supervisor = supervisor.clone();
        let body = move || {
            let end = match driver {
                DriverKind::Uring => {
                    let make = |mode| UringDriver::busy_polling(mode, shared.config.busy_poll_ns);
                    work(shared, index, share, runner, make)
                }
                DriverKind::Epoll => work(shared, index, share, runner, EpollDriver::new),
            };
            if end.is_err() {
                shared.cut_off.store(true, Ordering::Release);
            }
            supervisor.unpark();
            end
        };
        let builder = std::thread::Builder::new().name(format!("load-{index}"));
        match builder.spawn_scoped(scope, body) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                shared.cut_off.store(true, Ordering::Release);
                return Err(error.into());
            }
        }
    }
    Ok(workers)
}

/// One thread, from its driver to its counts.
fn work<D: Driver>(
    shared: &Shared<'_>,
    index: usize,
    connections: usize,
    runner: Option<Box<Runner>>,
    make_driver: impl FnOnce(PoolMode) -> Result<D, IoError>,
) -> Result<WorkerEnd, LoadError> {
    let pool_mode = shared.config.pool_mode;
    let cpu = shared
        .config
        .cpus
        .as_ref()
        .map(|cpus| cpus[index % cpus.len()]);
    if shared.config.raises_priority {
        // Without the permission it is measured as it is.
        let _ = millpond_io::raise_thread_priority();
    }
    let driver = make_driver(pool_mode)?;
    let config = ShardConfig {
        index,
        cpu,
        pool_mode,
    };
    match &shared.config.tls {
        None => work_on(shared, config, connections, runner, driver),
        Some(tls) => {
            let driver = Tls::client(driver, tls, pool_mode);
            work_on(shared, config, connections, runner, driver)
        }
    }
}

/// The same with the driver made.
fn work_on<D: Driver>(
    shared: &Shared<'_>,
    config: ShardConfig,
    connections: usize,
    runner: Option<Box<Runner>>,
    mut driver: D,
) -> Result<WorkerEnd, LoadError> {
    let index = config.index;
    driver.set_busy_poll(shared.config.busy_poll_ns);
    let mut shard = Shard::new(config, driver);
    let mut worker = Worker::new(shared, index, connections);
    if let Some(runner) = runner {
        worker.take_script(runner);
    }
    let driver = shard.run(&mut worker)?.driver;
    if let Some(error) = worker.failure {
        return Err(error);
    }
    if shared.config.holds_connections {
        shared.gate.wait();
    }
    worker.end_seconds();
    worker.end_connections();
    let cpu_share = worker.cpu_share();
    let cookies = worker.cookies.as_ref().map(|cookies| cookies.counts);
    Ok(WorkerEnd {
        cookies,
        batches: worker.batches.map(|batches| batches.clocks),
        samples: worker.samples.map(|samples| *samples),
        openings: worker.openings,
        connection_use: worker.connection_use,
        leftover: worker.leftover,
        outcome: worker.outcome,
        cpu_share,
        driver,
        script: worker.script,
    })
}

fn join(worker: WorkerHandle<'_>) -> Result<WorkerEnd, LoadError> {
    worker.join().unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(LoadError::Bug {
            message: text.unwrap_or("unknown panic").to_owned(),
        })
    })
}

// Whether this process and its addresses have room for all connections, before the first is opened.
//
// A run that lacks a thousand descriptors or ports would only find out after it has opened all others.

/// Of each thread: its ring or epoll, what wakes it, a timer, a spare one.
const FILES_PER_THREAD: u64 = 4;
/// Of the process, where the kernel does not report which are open.
const FILES_OPEN_DEFAULT: u64 = 16;

/// Refuses more connections than there are descriptors or ports for.
fn check(config: &LoadConfig) -> Result<(), LoadError> {
    let limit = getrlimit(Resource::Nofile);
    let connections = config.connections as u64;
    if let Some(open_max) = limit.current {
        let others = files_open() + FILES_PER_THREAD * config.threads as u64;
        let room = open_max.saturating_sub(others);
        if connections > room {
            return Err(LoadError::FewDescriptors {
                connections,
                room,
                open_max,
                needed: connections + others,
            });
        }
    }
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let ports = range.ok().as_deref().and_then(ports_in);
    match (ports, &config.target.addresses[0]) {
        (Some(ports), Address::Inet(_)) => check_ports(config, ports),
        _ => Ok(()),
    }
}

fn check_ports(config: &LoadConfig, ports: u64) -> Result<(), LoadError> {
    let connections = config.connections as u64;
    let sources = config.plan.sources.map_or(1, |sources| sources.len());
    // Any one of several addresses may take all connections, where the others refuse.
    let room = u128::from(ports).saturating_mul(sources);
    if u128::from(connections) <= room {
        return Ok(());
    }
    Err(LoadError::FewPorts {
        connections,
        ports,
        sources,
        sources_needed: connections.div_ceil(ports.max(1)),
    })
}

/// Files that this process has open.
fn files_open() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(FILES_OPEN_DEFAULT, |files| files.count() as u64)
}

/// How many ports a line of two numbers spans.
fn ports_in(range: &str) -> Option<u64> {
    let mut numbers = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    (last + 1).checked_sub(first)
}

// When a warm-up of unknown length ends: as soon as it is steady, or at its limit.

/// From the decision to the window: every thread reads the schedule several times meanwhile.
const NOTICE_NS: u64 = 100_000_000;

/// Watches over one warm-up.
#[derive(Debug)]
struct WarmUpWatch {
    plan: WarmUp,
    decided: Option<LoadSteadiness>,
}

impl WarmUpWatch {
    fn new(plan: WarmUp) -> Self {
        Self {
            plan,
            decided: None,
        }
    }

    /// Ends the warm-up if it is time.
    fn look(&mut self, schedule: &Schedule, steadiness: &Steadiness, now_ns: u64) {
        let WarmUp::UntilSteady { limit_ns } = self.plan else {
            return;
        };
        if self.decided.is_some() {
            return;
        }
        let limit_at_ns = schedule.start_ns().saturating_add(limit_ns);
        let soonest_ns = now_ns.max(schedule.start_ns()).saturating_add(NOTICE_NS);
        let transient_ns = steadiness.transient_ns();
        if transient_ns.is_none() && soonest_ns < limit_at_ns {
            return;
        }
        schedule.begin_window(soonest_ns);
        self.decided = Some(LoadSteadiness {
            limit_ns,
            became_steady: transient_ns.is_some(),
            transient_ns,
            slices: steadiness.slices() as u64,
        });
    }

    /// Its outcome by `end_ns`; `None`: there was none.
    fn outcome(&self, schedule: &Schedule, end_ns: u64) -> Option<LoadWarmUp> {
        let end_ns = end_ns.min(schedule.window_start_ns());
        let duration_ns = end_ns.saturating_sub(schedule.start_ns());
        let until_steady = match self.plan {
            WarmUp::Lasting { duration_ns: 0 } => return None,
            WarmUp::Lasting { .. } => None,
            // The run ended first.
            WarmUp::UntilSteady { limit_ns } => Some(self.decided.unwrap_or(LoadSteadiness {
                limit_ns,
                ..LoadSteadiness::default()
            })),
        };
        Some(LoadWarmUp {
            duration_ns,
            until_steady,
        })
    }
}

// Threads whose script does not return: the run continues to its results without them.

/// How long a thread may take to notice the end of the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// Waits until all have ended, but not for ever. True: they have.
fn all_ended(workers: &[WorkerHandle<'_>]) -> bool {
    let give_up = Instant::now() + PATIENCE;
    while !workers.iter().all(ScopedJoinHandle::is_finished) {
        if Instant::now() >= give_up {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// The ends of those that have ended, and what the others had handed over until then.
fn split_stuck(
    workers: Vec<WorkerHandle<'_>>,
    timeline: &mut Timeline<'_>,
) -> (Vec<WorkerEnd>, Vec<Lost>) {
    let (mut ends, mut lost) = (Vec::new(), Vec::new());
    for (place, worker) in workers.into_iter().enumerate() {
        if worker.is_finished() {
            // Of a thread that failed nothing is known.
            ends.extend(join(worker));
        } else {
            lost.push(timeline.give_up_on(place));
        }
    }
    (ends, lost)
}

/// Adds what is known of the lost ones, except their clocks, which the seconds hold.
fn add(total: &mut Outcome, lost: &[Lost]) {
    for Lost { counts, answers } in lost {
        add_errors(&mut total.errors, &counts.errors);
        total.sent += counts.sent;
        total.shed += counts.shed;
        total.received_bytes += counts.received_bytes;
        total.rate_bytes += counts.received_bytes;
        total.answered_in_window += answers;
    }
}

/// What they had sent and not reported counts as under way.
fn close(record: &mut LoadRecord, lost: usize) {
    if lost == 0 {
        return;
    }
    record.threads += lost;
    record.stuck_threads = lost;
    let failed = record.errors.total() - record.errors.connect - record.unsent;
    record.abandoned = record.sent.saturating_sub(record.requests + failed);
}

#[cfg(test)]
#[path = "tests/room.rs"]
mod room_tests;

#[cfg(test)]
#[path = "tests/warm_up.rs"]
mod warm_up_tests;
