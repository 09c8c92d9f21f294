//! One run from the first connection to the record: connect all, warm up, count, drain, judge.
//!
//! On the path: `cli` and `lab` call [`run`]; it starts the workers, sets the schedule once every
//! connection has been tried, watches, and merges what the threads counted.
//! Absent on purpose: signals (the caller raises the stop flag) and printing.
mod stuck;
mod watch;
mod warm_up;

use self::watch::{Watch, Watched, show_seconds};
use crate::arrivals::Arrivals;
use crate::batches::BatchClocks;
use crate::config::{LoadConfig, Workload};
use crate::error::{ConnectFailure, LoadError};
use crate::openings::Openings;
use crate::outcome::Outcome;
use crate::record::{ClassRecord, Ended, LoadRecord};
use crate::samples::Samples;
use crate::schedule::{Arrival, Pace, Schedule};
use crate::script::{Runner, Script};
use crate::shared::Shared;
use crate::timeline::{Lost, Second, Timeline};
use crate::worker::Worker;
use crate::workload::Requests;
use millpond_io::tls::Tls;
use millpond_io::{
    Driver, DriverCounters, DriverKind, EpollDriver, Errno, IoError, Shard, ShardConfig,
    UringDriver,
};
use millpond_measure::record::{LoadCookies, LoadErrors};
use millpond_mempool::PoolMode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most arrivals never sent that are recorded one by one.
const UNSENT_ONE_BY_ONE: u64 = 100_000;

/// How far a run is; handed out about four times a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// True until the window begins.
    pub is_warm_up: bool,
    /// Right answers in the window so far.
    pub completed: u64,
    /// Failures so far.
    pub errors: LoadErrors,
    /// Right answers per second since the last progress.
    pub rate_per_s: f64,
    /// Time since the run began sending.
    pub elapsed_ns: u64,
    /// Time left, estimated from the rate when a count ends the run; `None` if not known yet.
    pub remaining_ns: Option<u64>,
}

/// Sees a run while it goes on, on the thread that started it.
pub trait Observer {
    /// Sending begins at `at`, a few milliseconds from now.
    fn started(&self, _at: SystemTime) {}
    /// About four times a second.
    fn progress(&self, _now: &Progress) {}
    /// Once for every second, in order, within some 30 ms of its end; warm-up included.
    fn second(&self, _second: &Second<'_>) {}
    /// The run is over, but threads are not: their script does not come back. `record` is all there
    /// is and ever will be. If this returns, the run waits for them, perhaps for ever.
    fn stuck(&self, _record: &LoadRecord) {}
}

/// Progress alone.
struct Counter<'a>(&'a (dyn Fn(&Progress) + Sync));

impl Observer for Counter<'_> {
    fn progress(&self, now: &Progress) {
        (self.0)(now);
    }
}

/// [`run_observed`], for who wants to know how far it is and no more.
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
    run_with(config, None, observer, stop)
}

/// As [`run_observed`], with the requests that `script` makes instead of the workload's; `script` was loaded
/// for this `config`.
///
/// # Errors
/// As for [`run()`]. What the script does wrong meanwhile is in [`Script::errors`].
pub fn run_script(
    config: &LoadConfig,
    script: &mut Script,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    run_with(config, Some(script), observer, stop)
}

fn run_with(
    config: &LoadConfig,
    mut script: Option<&mut Script>,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    config.check()?;
    if script.is_some() && config.cookies.is_some() {
        return Err(LoadError::Setting {
            name: "cookies",
            problem: "a script writes its requests itself, cookies too".into(),
        });
    }
    let threads = config.threads.min(config.connections);
    let requests = Requests::new(config)?;
    let driver = config.driver.choose()?.kind;
    let shared = Shared::new(config, config.pace()?, requests, threads);
    let shares = (0..threads).map(|index| share_of(config, threads, index));
    let runners = script
        .as_mut()
        .map_or_else(Vec::new, |script| script.lend(shares));
    std::thread::scope(|scope| {
        let workers = start_workers(scope, &shared, driver, threads, runners)?;
        let mut timeline = Timeline::new(&shared.exchange, threads);
        let watch = Watch::new(&shared, &workers, observer, stop);
        let watch = watch.over_scripts(script.is_some());
        let watched = watch.to_the_end(&mut timeline);
        // Whatever ended the watch ends the threads; those that are done do not mind.
        shared.cut_off.store(true, Ordering::Release);
        if script.is_some()
            && let Ok(watched) = &watched
            && !stuck::all_ended(&workers)
        {
            let (ends, lost) = stuck::part(workers, &mut timeline);
            show_seconds(&shared, observer, &mut timeline);
            let record = LoadRecord {
                driver: driver.name(),
                ..assemble(&shared, &ends, &lost, watched, timeline)
            };
            observer.stuck(&record);
            return Ok(record);
        }
        let ends = workers.into_iter().map(join).collect::<Result<Vec<_>, _>>();
        let (mut ends, watched) = (ends?, watched?);
        if let Some(script) = script {
            script.take_back(ends.iter_mut().filter_map(|end| end.script.take()));
        }
        show_seconds(&shared, observer, &mut timeline);
        let record = assemble(&shared, &ends, &[], &watched, timeline);
        Ok(LoadRecord {
            driver: driver.name(),
            samples: samples_of(&shared, &mut ends, record.started_unix_ns),
            ..record
        })
    })
}

/// No connection is lost to the division: the first threads take one more.
fn share_of(config: &LoadConfig, threads: usize, index: usize) -> usize {
    config.connections / threads + usize::from(index < config.connections % threads)
}

/// What a thread leaves behind.
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
    worker.end_seconds();
    let cpu_share = worker.cpu_share();
    let cookies = worker.cookies.as_ref().map(|cookies| cookies.counts);
    Ok(WorkerEnd {
        cookies,
        batches: worker.batches.map(|batches| batches.clocks),
        samples: worker.samples.map(|samples| *samples),
        openings: worker.openings,
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

/// Merges the threads' counts and judges the whole.
fn assemble(
    shared: &Shared<'_>,
    ends: &[WorkerEnd],
    lost: &[Lost],
    watched: &Watched,
    timeline: Timeline<'_>,
) -> LoadRecord {
    let mut total = Outcome::with_classes(shared.classes());
    total.change(timeline.totals);
    ends.iter().for_each(|end| total.merge(&end.outcome));
    stuck::add(&mut total, lost);
    let config = shared.config;
    let mut record = LoadRecord {
        threads: ends.len(),
        connections: config.connections,
        pipeline: config.pipeline,
        generator_cpu_share: ends.iter().map(|end| end.cpu_share).fold(0.0, f64::max),
        busy_poll_ns: config.busy_poll_ns,
        spins_paid: ends.iter().map(|end| end.driver.spins_paid).sum(),
        spins_vain: ends.iter().map(|end| end.driver.spins_vain).sum(),
        spun_ns: ends.iter().map(|end| end.driver.spun_ns).sum(),
        steal_share: watched.steal_share,
        started_unix_ns: watched.started.map_or(0, unix_ns),
        thread_rates: watched.thread_rates.clone(),
        ended: watched.ended,
        aborted: watched.aborted.clone(),
        ..LoadRecord::default()
    };
    record.warm_up = watched.warm_up;
    if let Some(schedule) = shared.schedule.get() {
        // A user who interrupts does not hold the backlog against the target.
        record.offered = schedule.offered_until(watched.end_ns);
        if let Some(offered) = record.offered
            && !matches!(watched.ended, Ended::Interrupted | Ended::Aborted)
        {
            count_unsent(schedule, offered, watched.end_ns, ends, &mut total);
        }
        (record.duration_ns, record.requests_per_s) = window_of(schedule, watched, &total);
    }
    if let Pace::Open(arrivals) = &shared.pace {
        record.arrivals = Some(arrivals.to_string());
        record.rate_per_s = mean_rate(arrivals, &record);
    }
    record.requests = total.requests();
    record.answered_in_window = total.answered_in_window;
    record.sent = total.sent;
    record.resent = total.resent;
    record.sent_late = total.sent_late;
    record.unsent = total.unsent;
    record.shed = total.shed;
    record.abandoned = total.abandoned;
    record.errors = total.errors;
    record.connect_failure = connect_failure_of(shared, &total);
    record.wrong_answers = total.wrong;
    record.opening = total.opening.clone();
    record.tls = config.tls.as_ref().map(|_| total.tls);
    add_guests(&mut record, ends);
    record.classes = classes_of(config, &total);
    record.statuses = total.statuses().collect();
    record.bytes_received = total.received_bytes;
    add_phases(&mut record, &mut total);
    record.response = total.response;
    record.service = total.service;
    record.slip = total.slip;
    record.lateness = total.lateness;
    record.blocked = total.blocked;
    record.wake_delay = total.wake.delay;
    record.kernel_service = total.wake.kernel_service;
    record.unanswered = total.unanswered;
    record.seconds = timeline.seconds;
    stuck::close(&mut record, lost.len());
    record.judged()
}

/// What ab tells of requests and answers.
fn add_phases(record: &mut LoadRecord, total: &mut Outcome) {
    record.connect = total.phases.connect(&total.service);
    record.waiting = total.phases.waiting(&total.service);
    record.total = total.phases.total(&total.service);
    let answers: u64 = record.statuses.values().sum();
    record.keep_alive_requests = answers.saturating_sub(total.phases.last_answers);
    record.server = total.phases.server.take().unwrap_or_default();
    record.document_bytes = total.phases.first_body_bytes;
    record.body_bytes = total.phases.body_bytes;
}

/// What those found out who were not there in every run.
fn add_guests(record: &mut LoadRecord, ends: &[WorkerEnd]) {
    for end in ends {
        record.openings.merge(&end.openings);
        if let Some(clocks) = &end.batches {
            record.batches.merge(clocks);
        }
        if let Some(cookies) = end.cookies {
            record.cookies = Some(cookies.plus(record.cookies.unwrap_or_default()));
        }
    }
}

/// The single requests of all threads, in the time of the wall.
fn samples_of(shared: &Shared<'_>, ends: &mut [WorkerEnd], started_unix_ns: u64) -> Samples {
    let mut all = Samples::default();
    let parts = ends.iter_mut().filter_map(|end| end.samples.take());
    parts.for_each(|part| all.append(part));
    let start_ns = shared.schedule.get().map_or(0, Schedule::start_ns);
    for sample in &mut all.kept {
        let since_ns = sample.started_ns.cast_signed() - start_ns.cast_signed();
        sample.started_ns = started_unix_ns.saturating_add_signed(since_ns);
    }
    all
}

/// Why connecting failed the last time, if it did.
fn connect_failure_of(shared: &Shared<'_>, total: &Outcome) -> String {
    let failure = shared.doors.last_failure();
    let failure = failure.filter(|_| total.errors.connect > 0);
    failure.map_or_else(String::new, in_words)
}

/// A cause that the user can do something about says what.
fn in_words(failure: ConnectFailure) -> String {
    match failure {
        ConnectFailure::Refused(Errno::ADDRNOTAVAIL) => {
            "no port was free towards the target; give --source more addresses".to_owned()
        }
        other => other.to_string(),
    }
}

fn unix_ns(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// What each class came to, under its name.
fn classes_of(config: &LoadConfig, total: &Outcome) -> Vec<ClassRecord> {
    let Workload::Mix(mix) = &config.workload else {
        return Vec::new();
    };
    let classes = mix.classes.iter().zip(&total.classes);
    classes
        .map(|(class, outcome)| ClassRecord {
            name: class.name.clone(),
            errors: outcome.errors,
            response: outcome.response.clone(),
            service: outcome.service.clone(),
        })
        .collect()
}

/// The rate asked for: exactly, where it is one, else what the process came to in the window.
fn mean_rate(arrivals: &Arrivals, record: &LoadRecord) -> Option<f64> {
    if let Some(rate) = arrivals.steady_rate() {
        return Some(rate.per_s());
    }
    let offered = record.offered?;
    (record.duration_ns > 0).then(|| offered as f64 * 1e9 / record.duration_ns as f64)
}

/// Arrivals that no thread had a connection for are requests that were never answered.
fn count_unsent(
    schedule: &Schedule,
    offered: u64,
    end_ns: u64,
    ends: &[WorkerEnd],
    total: &mut Outcome,
) {
    for arrival in ends.iter().filter_map(|end| end.leftover) {
        if arrival.counted && arrival.intended_ns < end_ns {
            total.never_sent(arrival.intended_ns, end_ns);
        }
    }
    let count = schedule.unclaimed_of(offered);
    // A hopeless overload leaves millions; then every so many stand for their neighbours.
    let stride = count / UNSENT_ONE_BY_ONE + 1;
    schedule.visit_unclaimed_of(offered, |place, intended_ns| {
        if place.is_multiple_of(stride) {
            let stands_for = stride.min(count - place);
            total.never_sent_many(intended_ns, end_ns, stands_for);
        }
    });
}

/// Length of the window and the rate of right answers in it.
fn window_of(schedule: &Schedule, watched: &Watched, total: &Outcome) -> (u64, f64) {
    let start_ns = schedule.window_start_ns();
    let end_ns = watched
        .end_ns
        .min(schedule.window_end_ns().unwrap_or(u64::MAX));
    let accounted = total.requests() + total.errors.total() - total.errors.connect;
    let by_count = schedule
        .requests_max()
        .is_some_and(|requests_max| accounted >= requests_max);
    let (end_ns, answers) = if by_count && total.last_answer_ns <= end_ns {
        (total.last_answer_ns, total.requests())
    } else {
        (end_ns, total.answered_in_window)
    };
    let duration_ns = end_ns.saturating_sub(start_ns);
    let rate_per_s = if duration_ns == 0 {
        0.0
    } else {
        answers as f64 * 1e9 / duration_ns as f64
    };
    (duration_ns, rate_per_s)
}
