//! The results of a run.

use std::borrow::Cow;
use std::collections::BTreeMap;

use millpond_measure::histogram::LatencyHistogram;
use millpond_measure::record::{
    ClassHistograms, FORMAT_VERSION, LoadAddress, LoadClass, LoadConnectionSets,
    LoadConnectionsOpen, LoadCookies, LoadErrors, LoadFailure, LoadHistograms, LoadOutage,
    LoadRateWindow, LoadReport, LoadSecond, LoadTls, LoadVerdict, LoadWarmUp, RateWindowEnd,
    WrongAnswers,
};

use crate::connection_plan::{ConnectionUse, Openings};
use crate::outages::Undisturbed;
use crate::samples::{BatchClocks, Samples};
use crate::verdict::judge;

/// Why the run ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Ended {
    /// The duration or the number of requests was reached.
    #[default]
    Complete,
    /// The stop flag was raised; the record holds what was measured until then.
    Interrupted,
    /// A condition of [`crate::AbortRule`] came true, or the observer had seen enough; the record holds what was measured
    /// until then.
    Aborted,
    /// No connection could be opened any more; the record holds what was measured until then.
    TargetGone,
}

/// Everything one run measured. Warm-up is not in it.
#[derive(Clone, Debug, Default)]
pub struct LoadRecord {
    /// Threads of the generator.
    pub threads: usize,
    /// Of those, how many never came back from their script: what they measured in their last second
    /// is missing, and of what they sent `abandoned` holds the rest.
    pub stuck_threads: usize,
    /// Connections asked for.
    pub connections: usize,
    /// How many of them were open at the start and at the end; `None`: unknown.
    pub connections_open: Option<LoadConnectionsOpen>,
    /// How many connections each of the target's addresses took; empty where it has one.
    pub addresses: Vec<LoadAddress>,
    /// Times without a target, of a run that continues through them.
    pub outages: Vec<LoadOutage>,
    /// The results of each set of connections; `None`: there was one.
    pub connection_sets: Option<LoadConnectionSets>,
    /// Most requests in flight per connection.
    pub pipeline: usize,
    /// The kernel interface that its threads used: `epoll`, `uring`.
    pub driver: &'static str,
    /// How long a thread polled for responses before it slept, at most; 0: not at all.
    pub busy_poll_ns: u64,
    /// Busy polls that found something, of all threads.
    pub spins_paid: u64,
    /// Busy polls that found nothing.
    pub spins_vain: u64,
    /// Time that all of them took, warm-up included.
    pub spun_ns: u64,
    /// The rate asked for, on average; `None` in a closed loop.
    pub rate_per_s: Option<f64>,
    /// The arrival process in words; `None` in a closed loop.
    pub arrivals: Option<String>,
    /// Successful requests: the samples of the three clocks.
    pub requests: u64,
    /// Right responses that the rate is of: those of `rate_window`, whenever their requests left.
    pub answered_in_window: u64,
    /// Requests written (each once, see `resent`).
    pub sent: u64,
    /// Requests written again after the server had announced, by closing the connection, that it
    /// would not respond to them.
    pub resent: u64,
    /// Connections that were closed because bytes came that no request had asked for: a second response, or bytes behind
    /// one.
    pub unasked: u64,
    /// Requests that were due inside the window; `None` in a closed loop.
    pub offered: Option<u64>,
    /// Requests written after the end of the window: the target could not keep up.
    pub sent_late: u64,
    /// Requests due but never written, among the timeouts.
    pub unsent: u64,
    /// Requests due but dropped unsent because they were later than the deadline: without response
    /// and not failed, their ages among `unanswered`.
    pub shed: u64,
    /// Requests under way when the run was cut off; without response and not failed.
    pub abandoned: u64,
    /// Why the last connection that could not be opened was not; empty if all were.
    pub connect_failure: String,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// The same by cause, with the first of each.
    pub failures: Vec<LoadFailure>,
    /// Wrong responses, among the failures, by what is wrong with them.
    pub wrong_answers: WrongAnswers,
    /// How the warm-up went; `None`: there was none.
    pub warm_up: Option<LoadWarmUp>,
    /// Whole batches of requests that left together; empty unless asked for.
    pub batches: BatchClocks,
    /// Single requests, their beginnings since the epoch; empty unless asked for.
    pub samples: Samples,
    /// The parts of `opening`, of connections over TLS; empty in plaintext.
    pub openings: Openings,
    /// How the requests spread over the connections.
    pub connection_use: ConnectionUse,
    /// The outcome of the cookies that the server set; `None`: cookies were ignored.
    pub cookies: Option<LoadCookies>,
    /// Each class of requests by itself; empty if there is one.
    pub classes: Vec<ClassRecord>,
    /// Responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// Bytes received inside the window, heads included.
    pub bytes_received: u64,
    /// Bytes handed to the kernel, warm-up included.
    pub sent_bytes: u64,
    /// Bytes received behind the window, while responses were waited for.
    pub drained_bytes: u64,
    /// From the beginning of the window to the last response, those that came behind it included.
    pub answered_within_ns: u64,
    /// Length of the window: as asked, or until the last response when a count ended it.
    pub duration_ns: u64,
    /// Right responses per second of `rate_window`.
    pub requests_per_s: f64,
    /// The time span of the rate: the window, or when a count ended it the part of it before the first connection found
    /// no request left to send.
    pub rate_window: LoadRateWindow,
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual write to the last byte.
    pub service: LatencyHistogram,
    /// From the intended start to the actual write.
    pub slip: LatencyHistogram,
    /// From the intended start to the last byte of wrong responses.
    pub wrong_response: LatencyHistogram,
    /// From the actual write to the last byte of wrong responses.
    pub wrong_service: LatencyHistogram,
    /// The part of the send delay that is the generator's own: a connection was free and the time had come.
    pub lateness: LatencyHistogram,
    /// The rest of the send delay: no connection was free.
    pub blocked: LatencyHistogram,
    /// The clocks without the requests that met a stall of the generator's own; `None`: not asked for.
    pub undisturbed: Option<Undisturbed>,
    /// From a response's arrival in the kernel to its thread being awake, of a sample; empty where
    /// the driver has no stamps.
    pub wake_delay: LatencyHistogram,
    /// From the actual write to the response's arrival in the kernel, of the same sample.
    pub kernel_service: LatencyHistogram,
    /// Service time of the same sample: the sum of both.
    pub sampled_service: LatencyHistogram,
    /// Ages, from the intended start, of requests that were dropped or timed out: lower bounds of latencies
    /// that were never seen.
    pub unanswered: LatencyHistogram,
    /// When sending began, since the epoch; 0: it did not.
    pub started_unix_ns: u64,
    /// Connecting; 0 for all but the first request on a connection.
    pub connect: LatencyHistogram,
    /// From the actual write to the head of the response.
    pub waiting: LatencyHistogram,
    /// Connecting and service.
    pub total: LatencyHistogram,
    /// The Server field of the first response.
    pub server: String,
    /// Length of the first body.
    pub document_bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Responses that left their connection open.
    pub keep_alive_requests: u64,
    /// Responses per second of single threads, right and wrong, a sample every quarter of a second.
    pub thread_rates: LatencyHistogram,
    /// From asking for a connection to having it, of all that came up, before the window too.
    pub opening: LatencyHistogram,
    /// Handshakes of all connections; `None` in plaintext.
    pub tls: Option<LoadTls>,
    /// The results of each second, warm-up included.
    pub seconds: Vec<LoadSecond>,
    /// CPU of the busiest thread as a share of one CPU, without the time it polled for responses.
    pub generator_cpu_share: f64,
    /// CPU time the hypervisor withheld, as a share of the machine; `None` if unknown.
    pub steal_share: Option<f64>,
    /// Why the run ended.
    pub ended: Ended,
    /// Which condition came true, if one ended the run.
    pub aborted: Option<String>,
    /// Whether the figures can be relied on.
    pub verdict: LoadVerdict,
}

/// The requests of one class.
#[derive(Clone, Debug, Default)]
pub struct ClassRecord {
    /// As the workload names it.
    pub name: String,
    /// Right responses that its rate is of: those inside the record's `rate_window`.
    pub answers: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual write to the last byte.
    pub service: LatencyHistogram,
}

impl ClassRecord {
    fn histograms(&self) -> ClassHistograms {
        ClassHistograms {
            name: self.name.clone(),
            response: self.response.clone(),
            service: self.service.clone(),
        }
    }

    fn to_report(&self, window: &LoadRateWindow) -> LoadClass {
        let requests = self.response.count();
        LoadClass {
            name: self.name.clone(),
            requests,
            errors: self.errors,
            requests_per_s: window.rate_of(self.answers),
            response_ns: self.response.summary(),
            service_ns: self.service.summary(),
        }
    }
}

impl LoadRecord {
    /// Sets the verdict from the other fields.
    pub(crate) fn judged(mut self) -> Self {
        self.verdict = judge(&self);
        self
    }

    /// Why no request succeeded, as far as it is known.
    #[must_use]
    pub fn why_none_is_right(&self) -> Option<String> {
        if self.requests > 0 {
            return None;
        }
        let answers: u64 = self.statuses.values().sum();
        let most = self.statuses.iter().max_by_key(|(_, count)| **count);
        if let Some((code, count)) = most.filter(|_| self.errors.status > 0) {
            let hint = match code {
                401 | 403 => ": the target asks for credentials, or forbids this path",
                404 => ": the target has no such path, check the URL",
                405 | 501 => ": the target does not take this method there, see --method",
                429 | 503 => ": the target refuses requests for now",
                _ => "",
            };
            return Some(format!(
                "{count} of {answers} responses have status {code}{hint}"
            ));
        }
        let most = self.failures.iter().max_by_key(|failure| failure.count);
        most.map(LoadFailure::in_words)
    }

    /// All responses per second of `rate_window`, right and wrong.
    #[must_use]
    pub fn all_answers_per_s(&self) -> f64 {
        self.rate_window.rate_of(self.rate_window.all_answers())
    }

    /// From the intended start to the last byte of all responses, right and wrong.
    #[must_use]
    pub fn all_response(&self) -> Cow<'_, LatencyHistogram> {
        of_both(&self.response, &self.wrong_response)
    }

    /// From the actual write to the last byte of all responses, right and wrong.
    #[must_use]
    pub fn all_service(&self) -> Cow<'_, LatencyHistogram> {
        of_both(&self.service, &self.wrong_service)
    }

    fn class_reports(&self) -> Vec<LoadClass> {
        let classes = self.classes.iter();
        classes
            .map(|class| class.to_report(&self.rate_window))
            .collect()
    }

    /// The JSON record, without what only the caller knows: fill in `version` and `url`.
    pub fn to_report(&self) -> LoadReport {
        let is_open_loop = self.rate_per_s.is_some();
        let summary = |clock: &LatencyHistogram| (!clock.is_empty()).then(|| clock.summary());
        LoadReport {
            format_version: FORMAT_VERSION,
            threads: narrow_count(self.threads),
            connections: narrow_count(self.connections),
            connections_open: self.connections_open,
            connection_sets: self.connection_sets.clone(),
            pipeline: narrow_count(self.pipeline),
            driver: self.driver.to_owned(),
            busy_poll_ns: self.busy_poll_ns,
            spins_paid: self.spins_paid,
            spins_vain: self.spins_vain,
            spun_ns: self.spun_ns,
            rate_per_s: self.rate_per_s,
            arrivals: self.arrivals.clone(),
            started_unix_ns: self.started_unix_ns,
            sent_bytes: self.sent_bytes,
            shed: self.shed,
            offered: self.offered,
            sent: self.sent,
            sent_late: self.sent_late,
            resent: self.resent,
            connections_with_unasked_bytes: self.unasked,
            unsent: self.unsent,
            abandoned: self.abandoned,
            answered_in_window: self.answered_in_window,
            requests: self.requests,
            errors: self.errors,
            wrong_answers: self.wrong_answers,
            opening_ns: self.opening.summary(),
            tls: self.tls,
            cookies: self.cookies,
            transport_ns: summary(&self.openings.transport),
            handshake_ns: summary(&self.openings.handshake),
            batch_response_ns: summary(&self.batches.response),
            batch_service_ns: summary(&self.batches.service),
            warm_up: self.warm_up,
            classes: self.class_reports(),
            duration_ns: self.duration_ns,
            requests_per_s: self.requests_per_s,
            all_answers_per_s: Some(self.all_answers_per_s()),
            rate_window: Some(self.rate_window),
            bytes_received: self.bytes_received,
            drained_bytes: self.drained_bytes,
            answered_within_ns: self.answered_within_ns,
            response_ns: self.response.summary(),
            service_ns: self.service.summary(),
            all_response_ns: Some(self.all_response().summary()),
            all_service_ns: Some(self.all_service().summary()),
            connect_ns: self.connect.summary(),
            waiting_ns: self.waiting.summary(),
            server: self.server.clone(),
            document_bytes: self.document_bytes,
            body_bytes: self.body_bytes,
            keep_alive_requests: self.keep_alive_requests,
            slip_ns: self.slip.summary(),
            client_late_ns: is_open_loop.then(|| self.lateness.summary()),
            no_connection_ns: is_open_loop.then(|| self.blocked.summary()),
            wake_delay_ns: summary(&self.wake_delay),
            kernel_service_ns: summary(&self.kernel_service),
            sampled_service_ns: summary(&self.sampled_service),
            statuses: self.statuses.clone(),
            failures: self.failures.clone(),
            generator_cpu_share: Some(self.generator_cpu_share),
            steal_share: self.steal_share,
            verdict: self.verdict.clone(),
            histograms: Some(self.histograms()),
            ..self.end_report()
        }
    }

    /// How it ended, and how its connections fared.
    fn end_report(&self) -> LoadReport {
        LoadReport {
            aborted: self.aborted.clone(),
            interrupted: self.ended == Ended::Interrupted,
            target_gone: self.ended == Ended::TargetGone,
            addresses: self.addresses.clone(),
            outages: self.outages.clone(),
            ..LoadReport::default()
        }
    }

    /// Every sample, as it is kept for merging.
    fn histograms(&self) -> LoadHistograms {
        LoadHistograms {
            response: self.response.clone(),
            service: self.service.clone(),
            slip: self.slip.clone(),
            wrong_response: self.wrong_response.clone(),
            wrong_service: self.wrong_service.clone(),
            lateness: self.lateness.clone(),
            blocked: self.blocked.clone(),
            unanswered: self.unanswered.clone(),
            wake_delay: self.wake_delay.clone(),
            kernel_service: self.kernel_service.clone(),
            sampled_service: self.sampled_service.clone(),
            connect: self.connect.clone(),
            waiting: self.waiting.clone(),
            total: self.total.clone(),
            opening: self.opening.clone(),
            transport: self.openings.transport.clone(),
            handshake: self.openings.handshake.clone(),
            batch_response: self.batches.response.clone(),
            batch_service: self.batches.service.clone(),
            thread_rates: self.thread_rates.clone(),
            classes: self.classes.iter().map(ClassRecord::histograms).collect(),
        }
    }
}

fn of_both<'a>(right: &'a LatencyHistogram, wrong: &LatencyHistogram) -> Cow<'a, LatencyHistogram> {
    if wrong.is_empty() {
        return Cow::Borrowed(right);
    }
    let mut all = right.clone();
    all.merge(wrong);
    Cow::Owned(all)
}

fn narrow_count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

// Records of one set of connections after another, as one run's.
//
// Samples and counts are added, and so are the windows: the time between two sets is in none of them. The rate is all
// responses of the windows over their length; a set too small to have a window of its own is left out of it, unless
// there is no other.
// Records of generators that ran at the same time are added by `merge`.

impl LoadRecord {
    /// Adds what the next set measured. The verdict is not made anew.
    pub(crate) fn add_sequel(&mut self, mut next: Self) {
        self.duration_ns += next.duration_ns;
        self.answered_within_ns += next.answered_within_ns;
        self.add_rate_window(&mut next);
        self.add_counts(&next);
        self.answered_in_window = self.rate_window.answers;
        if let (Some(open), Some(others)) = (&mut self.connections_open, &next.connections_open) {
            open.add_sequel(others);
        }
        LoadAddress::add(&mut self.addresses, &next.addresses);
        self.connection_use.merge(&next.connection_use);
        self.samples.append(next.samples);
        if !next.connect_failure.is_empty() {
            self.connect_failure = next.connect_failure;
        }
        let seconds = self.seconds.len() as u64;
        let later_ns = next.started_unix_ns.saturating_sub(self.started_unix_ns);
        for mut outage in next.outages {
            outage.start_ns += later_ns;
            self.outages.push(outage);
        }
        for mut second in next.seconds {
            second.second += seconds;
            second.start_ns += later_ns;
            self.seconds.push(second);
        }
    }

    /// Adds the window of `next`; the responses of classes that are left out of it become 0.
    fn add_rate_window(&mut self, next: &mut Self) {
        let is_whole = |record: &Self| record.rate_window.end != RateWindowEnd::LastAnswer;
        let leave_out = |record: &mut Self| {
            record
                .classes
                .iter_mut()
                .for_each(|class| class.answers = 0);
        };
        match (is_whole(self), is_whole(next)) {
            (true, false) => leave_out(next),
            (false, true) => {
                leave_out(self);
                self.rate_window = next.rate_window;
            }
            _ => self.rate_window.add_sequel(&next.rate_window),
        }
        self.requests_per_s = self.rate_window.per_s();
    }
}

#[cfg(test)]
#[path = "tests/sequel.rs"]
mod sequel_tests;
