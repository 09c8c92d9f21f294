//! Records of generators that ran at the same time, as one run's.
//!
//! Samples and counts are added; nothing is averaged. The result is what a single generator of all threads and
//! connections would have counted, bin by bin, and it is judged again. Runs of other commands, one after another, are
//! not merged: their windows would have to be added, and a rate over both says little about either; the sets of
//! connections of one run are added by `record`.
use crate::connection_plan::Openings;
use crate::outcome::add_errors;
use crate::record::{ClassRecord, Ended, LoadRecord};
use crate::samples::BatchClocks;
use millpond_measure::record::{LoadAddress, LoadHistograms, LoadReport};

/// Why records do not make one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("no record was given")]
    Nothing,
    /// The record holds figures only.
    #[error("the record holds no samples: write it with `millpond load --json FILE`")]
    NoSamples,
    /// Rates of both kinds cannot be added.
    #[error("a closed loop and an open one are two measurements: merge each kind by itself")]
    Loops,
}

impl LoadRecord {
    /// The record of a report that holds its samples, seconds excepted.
    ///
    /// # Errors
    /// If it holds none.
    pub fn from_report(report: &LoadReport) -> Result<Self, MergeError> {
        let histograms = report.histograms.clone().ok_or(MergeError::NoSamples)?;
        let ended = match (report.interrupted, report.target_gone) {
            (true, _) => Ended::Interrupted,
            (false, true) => Ended::TargetGone,
            (false, false) if report.aborted.is_some() => Ended::Aborted,
            (false, false) => Ended::Complete,
        };
        let figures = Self {
            threads: report.threads as usize,
            connections: report.connections as usize,
            connections_open: report.connections_open,
            addresses: report.addresses.clone(),
            outages: report.outages.clone(),
            pipeline: report.pipeline as usize,
            driver: known_driver(&report.driver),
            busy_poll_ns: report.busy_poll_ns,
            spins_paid: report.spins_paid,
            spins_vain: report.spins_vain,
            spun_ns: report.spun_ns,
            rate_per_s: report.rate_per_s,
            arrivals: report.arrivals.clone(),
            requests: report.requests,
            answered_in_window: report.answered_in_window,
            sent: report.sent,
            resent: report.resent,
            unasked: report.connections_with_unasked_bytes,
            offered: report.offered,
            sent_late: report.sent_late,
            unsent: report.unsent,
            tls: report.tls,
            cookies: report.cookies,
            warm_up: report.warm_up,
            shed: report.shed,
            abandoned: report.abandoned,
            errors: report.errors,
            failures: report.failures.clone(),
            wrong_answers: report.wrong_answers,
            statuses: report.statuses.clone(),
            bytes_received: report.bytes_received,
            drained_bytes: report.drained_bytes,
            sent_bytes: report.sent_bytes,
            answered_within_ns: report.answered_within_ns,
            duration_ns: report.duration_ns,
            requests_per_s: report.requests_per_s,
            rate_window: report.window_of_rate(),
            server: report.server.clone(),
            document_bytes: report.document_bytes,
            body_bytes: report.body_bytes,
            keep_alive_requests: report.keep_alive_requests,
            started_unix_ns: report.started_unix_ns,
            generator_cpu_share: report.generator_cpu_share.unwrap_or_default(),
            steal_share: report.steal_share,
            ended,
            aborted: report.aborted.clone(),
            verdict: report.verdict.clone(),
            ..Self::default()
        };
        Ok(figures.with_samples(report, histograms))
    }

    fn with_samples(self, report: &LoadReport, samples: LoadHistograms) -> Self {
        let classes = samples.classes.into_iter().map(|class| {
            let mut figures = report.classes.iter();
            let figures = figures.find(|figures| figures.name == class.name);
            ClassRecord {
                errors: figures.map(|figures| figures.errors).unwrap_or_default(),
                answers: figures.map_or(0, |figures| {
                    answers_of(figures.requests_per_s, report.window_of_rate().duration_ns)
                }),
                name: class.name,
                response: class.response,
                service: class.service,
            }
        });
        Self {
            classes: classes.collect(),
            response: samples.response,
            service: samples.service,
            slip: samples.slip,
            wrong_response: samples.wrong_response,
            wrong_service: samples.wrong_service,
            lateness: samples.lateness,
            blocked: samples.blocked,
            unanswered: samples.unanswered,
            wake_delay: samples.wake_delay,
            kernel_service: samples.kernel_service,
            sampled_service: samples.sampled_service,
            connect: samples.connect,
            waiting: samples.waiting,
            total: samples.total,
            opening: samples.opening,
            openings: Openings {
                transport: samples.transport,
                handshake: samples.handshake,
            },
            batches: BatchClocks {
                response: samples.batch_response,
                service: samples.batch_service,
            },
            thread_rates: samples.thread_rates,
            ..self
        }
    }

    /// One record of all. The longest window is the window of all.
    ///
    /// # Errors
    /// If there is none, or if closed and open loops stand side by side.
    pub fn merged(records: impl IntoIterator<Item = Self>) -> Result<Self, MergeError> {
        let mut records = records.into_iter();
        let mut sum = records.next().ok_or(MergeError::Nothing)?;
        for record in records {
            if sum.arrivals.is_some() != record.arrivals.is_some() {
                return Err(MergeError::Loops);
            }
            sum.add(&record);
        }
        sum.seconds.clear();
        sum.connection_sets = None;
        Ok(sum.judged())
    }

    fn add(&mut self, other: &Self) {
        self.add_settings(other);
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.answered_within_ns = self.answered_within_ns.max(other.answered_within_ns);
        self.rate_window.add_parallel(&other.rate_window);
        self.requests_per_s = self.rate_window.per_s();
        self.add_counts(other);
    }

    /// Samples and counts, whenever the other's were taken.
    pub(crate) fn add_counts(&mut self, other: &Self) {
        self.requests += other.requests;
        self.answered_in_window += other.answered_in_window;
        self.sent += other.sent;
        self.resent += other.resent;
        self.unasked += other.unasked;
        self.offered = sum_of(self.offered, other.offered);
        self.sent_late += other.sent_late;
        self.unsent += other.unsent;
        self.shed += other.shed;
        self.abandoned += other.abandoned;
        add_errors(&mut self.errors, &other.errors);
        self.add_failures(other);
        self.wrong_answers.add(&other.wrong_answers);
        self.add_classes(other);
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.bytes_received += other.bytes_received;
        self.drained_bytes += other.drained_bytes;
        self.sent_bytes += other.sent_bytes;
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.slip.merge(&other.slip);
        self.wrong_response.merge(&other.wrong_response);
        self.wrong_service.merge(&other.wrong_service);
        self.lateness.merge(&other.lateness);
        self.unanswered.merge(&other.unanswered);
        self.blocked.merge(&other.blocked);
        if let Some(undisturbed) = &other.undisturbed {
            self.undisturbed.get_or_insert_default().merge(undisturbed);
        }
        self.wake_delay.merge(&other.wake_delay);
        self.kernel_service.merge(&other.kernel_service);
        self.sampled_service.merge(&other.sampled_service);
        self.connect.merge(&other.connect);
        self.waiting.merge(&other.waiting);
        self.total.merge(&other.total);
        self.opening.merge(&other.opening);
        self.openings.merge(&other.openings);
        self.batches.merge(&other.batches);
        if let Some(warm_up) = other.warm_up {
            self.warm_up = Some(warm_up.of_both(self.warm_up.unwrap_or(warm_up)));
        }
        if let Some(cookies) = other.cookies {
            self.cookies = Some(cookies.plus(self.cookies.unwrap_or_default()));
        }
        if let Some(tls) = &other.tls {
            self.tls.get_or_insert_default().add(tls);
        }
        self.body_bytes += other.body_bytes;
        self.keep_alive_requests += other.keep_alive_requests;
        if self.server.is_empty() {
            self.server.clone_from(&other.server);
            self.document_bytes = other.document_bytes;
        }
        self.thread_rates.merge(&other.thread_rates);
        self.spins_paid += other.spins_paid;
        self.spins_vain += other.spins_vain;
        self.spun_ns += other.spun_ns;
        self.generator_cpu_share = self.generator_cpu_share.max(other.generator_cpu_share);
        self.steal_share = match (self.steal_share, other.steal_share) {
            (Some(one), Some(two)) => Some(one.max(two)),
            (one, two) => one.or(two),
        };
        self.ended = worse(self.ended, other.ended);
        if self.aborted.is_none() {
            self.aborted.clone_from(&other.aborted);
        }
    }

    /// The first example is the one that is there.
    fn add_failures(&mut self, other: &Self) {
        for failure in &other.failures {
            let known = self.failures.iter_mut();
            match known.into_iter().find(|one| one.kind == failure.kind) {
                None => self.failures.push(failure.clone()),
                Some(sum) => {
                    sum.count += failure.count;
                    if sum.first.is_none() {
                        sum.first.clone_from(&failure.first);
                    }
                }
            }
        }
    }

    fn add_classes(&mut self, other: &Self) {
        for class in &other.classes {
            match self.classes.iter_mut().find(|one| one.name == class.name) {
                None => self.classes.push(class.clone()),
                Some(sum) => {
                    add_errors(&mut sum.errors, &class.errors);
                    sum.answers += class.answers;
                    sum.response.merge(&class.response);
                    sum.service.merge(&class.service);
                }
            }
        }
    }

    fn add_settings(&mut self, other: &Self) {
        self.threads += other.threads;
        self.connections += other.connections;
        self.connections_open = match (self.connections_open, other.connections_open) {
            (Some(mut sum), Some(open)) => {
                sum.add_parallel(&open);
                Some(sum)
            }
            _ => None,
        };
        LoadAddress::add(&mut self.addresses, &other.addresses);
        // Each generator had the same ones; one list stays readable.
        if self.outages.is_empty() {
            self.outages.clone_from(&other.outages);
        }
        self.pipeline = self.pipeline.max(other.pipeline);
        if self.driver != other.driver {
            self.driver = MIXED;
        }
        self.busy_poll_ns = self.busy_poll_ns.max(other.busy_poll_ns);
        self.rate_per_s = match (self.rate_per_s, other.rate_per_s) {
            (Some(one), Some(two)) => Some(one + two),
            _ => None,
        };
        if let (Some(words), Some(more)) = (&mut self.arrivals, &other.arrivals)
            && words != more
        {
            *words += &format!(" and {more}");
        }
        if self.started_unix_ns == 0 || other.started_unix_ns < self.started_unix_ns {
            self.started_unix_ns = other.started_unix_ns;
        }
    }
}

/// Generators of several kinds took part.
const MIXED: &str = "mixed";

fn known_driver(name: &str) -> &'static str {
    let known = ["epoll", "uring", MIXED];
    known.into_iter().find(|one| *one == name).unwrap_or("")
}

fn answers_of(per_s: f64, duration_ns: u64) -> u64 {
    (per_s * duration_ns as f64 / 1e9).round() as u64
}

fn sum_of(one: Option<u64>, two: Option<u64>) -> Option<u64> {
    Some(one? + two?)
}

fn worse(one: Ended, two: Ended) -> Ended {
    match (one, two) {
        (Ended::TargetGone, _) | (_, Ended::TargetGone) => Ended::TargetGone,
        (Ended::Interrupted, _) | (_, Ended::Interrupted) => Ended::Interrupted,
        (Ended::Aborted, _) | (_, Ended::Aborted) => Ended::Aborted,
        (Ended::Complete, Ended::Complete) => Ended::Complete,
    }
}

#[cfg(test)]
#[path = "tests/merge.rs"]
mod tests;
