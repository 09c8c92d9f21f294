//! A run over several sets of connections, one after another.
//!
//! `--reconnect-every` and `--repeat` need it. Each set is a run of its own, with its own sockets, threads and
//! schedule, and what it measured is added to what the sets before it did (`record`). So closing and opening lie
//! outside every clock and window by construction, and no request is under way meanwhile. A schedule goes on where the
//! one before it ended: numbers of requests and the arrival process have no gap and nothing twice.
//! Workers have no state for it, and a reconnect is not followed by another warm-up.
use super::{Connecting, Observer, Part, PartEnd, Progress, run_part};
use crate::config::{LoadConfig, Stop, WarmUp};
use crate::connection_plan::Reconnect;
use crate::error::LoadError;
use crate::outcome::add_errors;
use crate::record::{Ended, LoadRecord};
use crate::schedule::{Origin, Pace};
use crate::shared::AbortWatch;
use crate::timeline::Second;
use millpond_measure::record::{
    LoadConnectionSet, LoadConnectionSets, LoadErrors, LoadSecond, RateWindowEnd,
};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Runs all sets; `config` is checked.
pub(super) fn run(
    config: &LoadConfig,
    observer: &dyn Observer,
    stop: &AtomicBool,
) -> Result<LoadRecord, LoadError> {
    let mut sets = Sets::default();
    for repetition in 0..config.repeats {
        let mut abort = AbortWatch::new(config.abort.as_ref(), config.timeout_ns);
        let mut course = Course::new(config);
        while let Some(set_config) = course.next(sets.samples_len()) {
            let part = Part {
                config: &set_config,
                origin: course.done,
            };
            let left = course.left(config.repeats - repetition - 1);
            let set_observer = SetObserver::new(observer, &sets, left);
            let end = match run_part(&part, None, &set_observer, &mut abort, stop) {
                Ok(end) => end,
                Err(LoadError::Unreachable { cause, .. }) if sets.opened > 0 => {
                    sets.gone(cause.to_string());
                    return sets.judged(config);
                }
                Err(error) => return Err(error),
            };
            sets.first_started = set_observer.first_started.get();
            let has_done_nothing = end.took == Origin::default();
            let is_over = end.record.ended != Ended::Complete || stop.load(Ordering::Acquire);
            let is_whole = course.takes(&end);
            sets.take(end.record, repetition, is_whole);
            if is_over {
                return sets.judged(config);
            }
            if has_done_nothing {
                break;
            }
        }
    }
    sets.judged(config)
}

/// How far one repetition is, and what its next set of connections does.
struct Course<'a> {
    config: &'a LoadConfig,
    /// Time of all windows; `None`: only a count ends it.
    duration_ns: Option<u64>,
    done: Origin,
}

impl<'a> Course<'a> {
    fn new(config: &'a LoadConfig) -> Self {
        let limits = [config.stop.duration_ns, config.span_ns()];
        Self {
            config,
            duration_ns: limits.into_iter().flatten().min(),
            done: Origin::default(),
        }
    }

    /// The work of the next set; `None`: all is done. `samples_len` single requests are kept already.
    fn next(&self, samples_len: usize) -> Option<LoadConfig> {
        let time_left = self
            .duration_ns
            .map(|ns| ns.saturating_sub(self.done.time_ns));
        let requests_max = self.config.stop.requests;
        let requests_left = requests_max.map(|count| count.saturating_sub(self.done.requests));
        if time_left == Some(0) || requests_left == Some(0) {
            return None;
        }
        let (every_ns, every_requests) = match self.config.plan.reconnect {
            Some(Reconnect::EveryNs(time_ns)) => (Some(time_ns), None),
            Some(Reconnect::EveryRequests(requests)) => (None, Some(requests)),
            None => (None, None),
        };
        let smaller = |one: Option<u64>, two| one.into_iter().chain(two).min();
        let is_first = self.done == Origin::default();
        Some(LoadConfig {
            stop: Stop {
                duration_ns: smaller(time_left, every_ns),
                requests: smaller(requests_left, every_requests),
            },
            warm_up: match is_first {
                true => self.config.warm_up,
                false => WarmUp::Lasting { duration_ns: 0 },
            },
            samples_max: match self.config.samples_max {
                0 => 0,
                // One more finds out that there is no room.
                all => all.saturating_sub(samples_len).max(1),
            },
            ..self.config.clone()
        })
    }

    /// Continues after a set; returns whether it did as much as a set has to.
    fn takes(&mut self, end: &PartEnd) -> bool {
        self.done.requests += end.took.requests;
        self.done.time_ns = self.done.time_ns.saturating_add(end.took.time_ns);
        let is_long = match self.config.plan.reconnect {
            Some(Reconnect::EveryNs(time_ns)) => end.took.time_ns >= time_ns,
            Some(Reconnect::EveryRequests(requests)) => end.took.requests >= requests,
            None => true,
        };
        let record = &end.record;
        is_long
            && record.ended == Ended::Complete
            && record.rate_window.end != RateWindowEnd::LastAnswer
    }

    /// The rest when the next set begins, with as many repetitions behind this one.
    fn left(&self, repetitions: u64) -> Left {
        let rest = |all: Option<u64>, done: u64| {
            all.map(|all| all.saturating_mul(repetitions + 1).saturating_sub(done))
        };
        let is_first = self.done == Origin::default();
        let warm_up_ns = if is_first {
            self.config.warm_up.known_ns()
        } else {
            0
        };
        Left {
            time_ns: rest(self.duration_ns, self.done.time_ns)
                .map(|ns| ns.saturating_add(warm_up_ns)),
            requests: rest(self.config.stop.requests, self.done.requests),
        }
    }
}

/// The rest of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    time_ns: Option<u64>,
    requests: Option<u64>,
}

/// The sets so far.
#[derive(Default)]
struct Sets {
    sum: Option<LoadRecord>,
    figures: Vec<LoadConnectionSet>,
    opened: u64,
    /// When the first of them began sending.
    first_started: Option<SystemTime>,
}

impl Sets {
    fn samples_len(&self) -> usize {
        self.sum.as_ref().map_or(0, |sum| sum.samples.kept.len())
    }

    /// Adds a set; only a whole one is compared with others.
    fn take(&mut self, record: LoadRecord, repetition: u64, is_whole: bool) {
        if record.started_unix_ns == 0
            && let Some(sum) = &mut self.sum
        {
            // It was interrupted before it began.
            sum.ended = record.ended;
            return;
        }
        self.opened += 1;
        if is_whole {
            self.figures.push(LoadConnectionSet {
                repetition,
                requests: record.requests,
                requests_per_s: record.requests_per_s,
                response_p50_ns: record.response.percentile(50.0),
                response_p99_ns: record.response.percentile(99.0),
            });
        }
        match &mut self.sum {
            None => self.sum = Some(record),
            Some(sum) => sum.add_sequel(record),
        }
    }

    /// The next set found no server.
    fn gone(&mut self, why: String) {
        if let Some(sum) = &mut self.sum {
            sum.ended = Ended::TargetGone;
            sum.connect_failure = why;
        }
    }

    /// All of them as one.
    fn judged(self, config: &LoadConfig) -> Result<LoadRecord, LoadError> {
        let mut record = self.sum.unwrap_or_default();
        if let Pace::Open(arrivals) = config.pace()?
            && arrivals.steady_rate().is_none()
            && let Some(offered) = record.offered
        {
            record.rate_per_s = Some(record.rate_window.rate_of(offered));
        }
        record.connection_sets = Some(LoadConnectionSets::of(self.figures, self.opened));
        Ok(record.judged())
    }
}

/// Shows a set as a stretch of the whole run.
struct SetObserver<'a> {
    whole: &'a dyn Observer,
    /// The results of the sets before it.
    requests: u64,
    errors: LoadErrors,
    seconds: u64,
    left: Left,
    first_started: Cell<Option<SystemTime>>,
    /// From the beginning of the first set to that of this one.
    later_ns: Cell<u64>,
}

impl<'a> SetObserver<'a> {
    fn new(whole: &'a dyn Observer, sets: &Sets, left: Left) -> Self {
        let before = sets.sum.as_ref();
        Self {
            whole,
            requests: before.map_or(0, |record| record.requests),
            errors: before.map(|record| record.errors).unwrap_or_default(),
            seconds: before.map_or(0, |record| record.seconds.len() as u64),
            left,
            first_started: Cell::new(sets.first_started),
            later_ns: Cell::new(0),
        }
    }

    /// Time left of all sets, as far as it can be known.
    fn remaining_ns(&self, now: &Progress) -> Option<u64> {
        let by_time = self.left.time_ns;
        let by_time = by_time.map(|time_ns| time_ns.saturating_sub(now.elapsed_ns));
        let by_count = self.left.requests.filter(|_| now.rate_per_s > 0.0);
        let by_count = by_count.map(|requests| {
            let left = requests.saturating_sub(now.completed + now.errors.total());
            (left as f64 / now.rate_per_s * 1e9) as u64
        });
        by_time.into_iter().chain(by_count).min()
    }
}

impl Observer for SetObserver<'_> {
    fn started(&self, at: SystemTime) {
        match self.first_started.get() {
            None => {
                self.first_started.set(Some(at));
                self.whole.started(at);
            }
            Some(first) => {
                let later = at.duration_since(first).unwrap_or_default();
                self.later_ns
                    .set(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX));
            }
        }
    }

    fn connecting(&self, now: &Connecting) {
        self.whole.connecting(now);
    }

    fn window_began(&self) {
        self.whole.window_began();
    }

    fn connections_held(&self) {
        self.whole.connections_held();
    }

    fn window_ended(&self) {
        self.whole.window_ended();
    }

    fn progress(&self, now: &Progress) {
        let mut errors = self.errors;
        add_errors(&mut errors, &now.errors);
        self.whole.progress(&Progress {
            completed: self.requests + now.completed,
            errors,
            elapsed_ns: self.later_ns.get().saturating_add(now.elapsed_ns),
            remaining_ns: self.remaining_ns(now),
            ..*now
        });
    }

    fn has_seen_enough(&self) -> bool {
        self.whole.has_seen_enough()
    }

    fn second(&self, second: &Second<'_>) {
        let figures = LoadSecond {
            second: self.seconds + second.figures.second,
            start_ns: self.later_ns.get() + second.figures.start_ns,
            ..*second.figures
        };
        self.whole.second(&Second {
            figures: &figures,
            clocks: second.clocks,
        });
    }
}

#[cfg(test)]
#[path = "tests/sets.rs"]
mod tests;
