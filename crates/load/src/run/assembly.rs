//! The threads' counts made one record: merged, completed by what no thread could count, judged.
//!
//! `run` calls it once, at the end.
use super::WorkerEnd;
use super::watch::Watched;
use crate::arrivals::Arrivals;
use crate::config::{LoadConfig, Workload};
use crate::error::ConnectFailure;
use crate::outcome::Outcome;
use crate::record::{ClassRecord, Ended, LoadRecord};
use crate::run;
use crate::samples::Samples;
use crate::schedule::{Pace, Schedule};
use crate::shared::Shared;
use crate::timeline::{Lost, Timeline};
use millpond_io::Errno;
use millpond_measure::record::{LoadAddress, LoadConnectionsOpen, LoadRateWindow, RateWindowEnd};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most arrivals never sent that are recorded one by one.
const UNSENT_ONE_BY_ONE: u64 = 100_000;

/// Merges the threads' counts and judges the whole.
pub(super) fn assemble(
    shared: &Shared<'_>,
    ends: &[WorkerEnd],
    lost: &[Lost],
    watched: &Watched,
    timeline: Timeline<'_>,
) -> LoadRecord {
    let mut total = Outcome::with_classes(shared.classes());
    total.change(timeline.totals);
    ends.iter().for_each(|end| total.merge(&end.outcome));
    run::add(&mut total, lost);
    let config = shared.config;
    let mut record = settings_of(shared, ends, watched);
    record.warm_up = watched.warm_up;
    let unsent_before = total.unsent;
    let mut is_of_all = false;
    if let Some(schedule) = shared.schedule.get() {
        // An interruption by the user does not count the backlog against the target.
        record.offered = schedule.offered_until(watched.end_ns);
        if let Some(offered) = record.offered
            && !matches!(watched.ended, Ended::Interrupted | Ended::Aborted)
        {
            count_unsent(schedule, offered, watched.end_ns, ends, &mut total);
        }
        let window = Window::of(schedule, watched, &total);
        record.duration_ns = window.end_ns.saturating_sub(schedule.window_start_ns());
        record.answered_within_ns = total
            .last_response_ns
            .saturating_sub(schedule.window_start_ns());
        record.rate_window = window.of_rate(schedule, shared.places(), &total);
        record.requests_per_s = record.rate_window.per_s();
        is_of_all = record.rate_window.end == RateWindowEnd::LastAnswer;
    }
    let late = total.unsent - unsent_before;
    add_outages(&mut record, shared, watched.end_ns, late, &mut total);
    record.classes = classes_of(config, &total, is_of_all);
    if let Pace::Open(arrivals) = &shared.pace {
        record.arrivals = Some(arrivals.to_string());
        record.rate_per_s = mean_rate(arrivals, &record);
    }
    record.requests = total.requests();
    record.answered_in_window = record.rate_window.answers;
    record.sent = total.sent;
    record.resent = total.resent;
    record.unasked = total.unasked;
    record.sent_late = total.sent_late;
    record.unsent = total.unsent;
    record.shed = total.shed;
    record.abandoned = total.abandoned;
    record.errors = total.errors;
    let start_ns = shared.schedule.get().map_or(0, Schedule::start_ns);
    record.failures = total.causes.list(&total.errors, start_ns);
    record.connect_failure = connect_failure_of(shared, &total);
    record.wrong_answers = total.wrong;
    record.opening = total.opening.clone();
    record.tls = config.tls.as_ref().map(|_| total.tls);
    add_guests(&mut record, ends);
    record.statuses = total.statuses().collect();
    record.bytes_received = total.received_bytes;
    record.drained_bytes = total.drained_bytes;
    add_phases(&mut record, &mut total);
    take_clocks(&mut record, total);
    record.seconds = timeline.seconds;
    run::close(&mut record, lost.len());
    record.judged()
}

/// The settings, and how the machine and the connections fared.
fn settings_of(shared: &Shared<'_>, ends: &[WorkerEnd], watched: &Watched) -> LoadRecord {
    let config = shared.config;
    LoadRecord {
        threads: ends.len(),
        connections: config.connections,
        pipeline: config.pipeline,
        generator_cpu_share: ends.iter().map(|end| end.cpu_share).fold(0.0, f64::max),
        busy_poll_ns: config.busy_poll_ns,
        spins_paid: ends.iter().map(|end| end.driver.spins_paid).sum(),
        spins_vain: ends.iter().map(|end| end.driver.spins_vain).sum(),
        spun_ns: ends.iter().map(|end| end.driver.spun_ns).sum(),
        sent_bytes: ends.iter().map(|end| end.driver.sent_bytes).sum(),
        steal_share: watched.steal_share,
        started_unix_ns: watched.started.map_or(0, unix_ns),
        thread_rates: watched.thread_rates.clone(),
        ended: watched.ended,
        aborted: watched.aborted.clone(),
        connections_open: Some(connections_open(shared)),
        addresses: addresses_of(shared),
        ..LoadRecord::default()
    }
}

fn take_clocks(record: &mut LoadRecord, total: Outcome) {
    record.response = total.response;
    record.service = total.service;
    record.slip = total.slip;
    record.wrong_response = total.wrong_response;
    record.wrong_service = total.wrong_service;
    record.lateness = total.lateness;
    record.blocked = total.blocked;
    record.undisturbed = total.stalls.map(|watch| watch.undisturbed);
    record.wake_delay = total.wake.delay;
    record.kernel_service = total.wake.kernel_service;
    record.sampled_service = total.wake.service;
    record.unanswered = total.unanswered;
}

/// Connections at the edges; those that the threads have closed at the end of the run are open here.
fn connections_open(shared: &Shared<'_>) -> LoadConnectionsOpen {
    LoadConnectionsOpen {
        due_at_start: shared.config.connections_due_at_start() as u64,
        at_start: shared.doors.open_at_start.load(Ordering::Relaxed) as u64,
        at_end: shared.doors.open.load(Ordering::Relaxed) as u64,
    }
}

/// Times without a target, of a run that went on through them; `unsent` requests had not left when it ended.
fn add_outages(
    record: &mut LoadRecord,
    shared: &Shared<'_>,
    end_ns: u64,
    unsent: u64,
    total: &mut Outcome,
) {
    if let Some(outages) = &shared.outages {
        let start_ns = shared.schedule.get().map_or(0, Schedule::start_ns);
        total.errors.connect += outages.other_attempts();
        record.outages = outages.list(start_ns, end_ns, unsent);
    }
}

/// Which address took how many connections, where there are several.
fn addresses_of(shared: &Shared<'_>) -> Vec<LoadAddress> {
    let addresses = shared.config.target.addresses.iter();
    let uses = addresses.zip(&shared.address_uses);
    uses.map(|(address, opened)| LoadAddress {
        address: address.to_string(),
        opened: opened.load(Ordering::Relaxed),
    })
    .collect()
}

/// What ab reports of requests and responses.
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

/// Findings of those that were not in every run.
fn add_guests(record: &mut LoadRecord, ends: &[WorkerEnd]) {
    for end in ends {
        record.openings.merge(&end.openings);
        record.connection_use.merge(&end.connection_use);
        if let Some(clocks) = &end.batches {
            record.batches.merge(clocks);
        }
        if let Some(cookies) = end.cookies {
            record.cookies = Some(cookies.plus(record.cookies.unwrap_or_default()));
        }
    }
}

/// The single requests of all threads, in the time of the wall.
pub(super) fn samples_of(
    shared: &Shared<'_>,
    ends: &mut [WorkerEnd],
    started_unix_ns: u64,
) -> Samples {
    let mut all = Samples::default();
    let parts = ends.iter_mut().filter_map(|end| end.samples.take());
    parts.for_each(|part| all.append(part));
    let start_ns = shared.schedule.get().map_or(0, Schedule::start_ns);
    for sample in &mut all.kept {
        let since_ns = sample.written_ns.cast_signed() - start_ns.cast_signed();
        sample.written_ns = started_unix_ns.saturating_add_signed(since_ns);
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

/// The results of each class, under its name. `is_of_all`: the rate is of all responses.
fn classes_of(config: &LoadConfig, total: &Outcome, is_of_all: bool) -> Vec<ClassRecord> {
    let Workload::Mix(mix) = &config.workload else {
        return Vec::new();
    };
    let classes = mix.classes.iter().zip(&total.classes);
    classes
        .map(|(class, outcome)| ClassRecord {
            name: class.name.clone(),
            errors: outcome.errors,
            answers: match is_of_all {
                true => outcome.response.count(),
                false => outcome.answered_in_window,
            },
            response: outcome.response.clone(),
            service: outcome.service.clone(),
        })
        .collect()
}

/// The rate asked for: exactly, where it is one, else the process's rate in the window.
fn mean_rate(arrivals: &Arrivals, record: &LoadRecord) -> Option<f64> {
    if let Some(rate) = arrivals.steady_rate() {
        return Some(rate.per_s());
    }
    let offered = record.offered?;
    (record.duration_ns > 0).then(|| offered as f64 * 1e9 / record.duration_ns as f64)
}

/// Arrivals that no thread had a connection for are requests without a response.
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

/// The window as it was.
struct Window {
    /// When its time was up, or the last request of a count was accounted for.
    end_ns: u64,
    /// When it was or would have been up by time alone.
    time_end_ns: u64,
    /// All requests that were asked for were accounted for before its time was up.
    is_by_count: bool,
}

/// A rate of fewer responses than this, or than there are places for requests, is none.
const RATE_ANSWERS_MIN: u64 = 10;

impl Window {
    fn of(schedule: &Schedule, watched: &Watched, total: &Outcome) -> Self {
        let time_end_ns = schedule.window_end_ns().unwrap_or(u64::MAX);
        let end_ns = watched.end_ns.min(time_end_ns);
        let accounted = total.requests() + total.errors.total() - total.errors.connect;
        let is_by_count = total.last_response_ns <= end_ns
            && schedule
                .requests_max()
                .is_some_and(|requests_max| accounted >= requests_max);
        Self {
            end_ns: match is_by_count {
                true => total.last_response_ns,
                false => end_ns,
            },
            // Until when nothing but the count ended it.
            time_end_ns: match is_by_count {
                true => time_end_ns,
                false => end_ns,
            },
            is_by_count,
        }
    }

    /// The time span of the rate. Stragglers must not decide it, so a count ends it when nothing is left to send,
    /// unless too few responses came until then: less than one for each of the `places` of requests.
    fn of_rate(&self, schedule: &Schedule, places: u64, total: &Outcome) -> LoadRateWindow {
        let start_ns = schedule.window_start_ns();
        let (rate_end_ns, requests_max) = (schedule.rate_end_ns(), schedule.requests_max());
        let is_over = rate_end_ns <= self.time_end_ns && rate_end_ns != u64::MAX;
        let answers_min = requests_max
            .unwrap_or(u64::MAX)
            .min(RATE_ANSWERS_MIN.max(places));
        let (end_ns, end) = match (is_over, schedule.pace()) {
            (true, _) if total.answered_in_window < answers_min => {
                (total.last_response_ns, RateWindowEnd::LastAnswer)
            }
            (true, Pace::Closed) => (rate_end_ns, RateWindowEnd::NoRequestLeft),
            (true, Pace::Open(_)) => (rate_end_ns, RateWindowEnd::LastArrival),
            (false, _) if self.is_by_count => (self.end_ns, RateWindowEnd::LastAnswer),
            (false, _) => (self.end_ns, RateWindowEnd::Time),
        };
        let duration_ns = end_ns.saturating_sub(start_ns);
        match end {
            RateWindowEnd::LastAnswer => LoadRateWindow {
                duration_ns,
                answers: total.requests(),
                wrong_answers: total.errors.status + total.errors.validation,
                wrong_statuses: total.errors.status,
                bytes_received: total.received_bytes,
                end,
            },
            _ => LoadRateWindow {
                duration_ns,
                answers: total.answered_in_window,
                wrong_answers: total.wrong_in_window,
                wrong_statuses: total.wrong_statuses_in_window,
                bytes_received: total.rate_bytes,
                end,
            },
        }
    }
}
