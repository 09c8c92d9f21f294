//! The JSON of `load --json`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::histogram::{LatencyHistogram, LatencySummary};
use crate::units::format_duration_ns;

use super::{LoadAddress, LoadConnectionSets, LoadConnectionsOpen, LoadFailure, LoadWarmUp};

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Failures by phase.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadErrors {
    /// Connections that could not be opened.
    pub connect: u64,
    /// Connections that broke while a response was awaited, or responses that are not HTTP.
    pub read: u64,
    /// Requests that could not be sent.
    pub write: u64,
    /// Requests without a response in time.
    pub timeout: u64,
    /// Responses with a status above 399.
    pub status: u64,
    /// Responses whose content was not what was stored.
    pub validation: u64,
}

impl LoadErrors {
    /// All together.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.connect + self.read + self.write + self.timeout + self.status + self.validation
    }

    /// Those of both.
    #[must_use]
    pub const fn plus(&self, other: &Self) -> Self {
        Self {
            connect: self.connect + other.connect,
            read: self.read + other.read,
            write: self.write + other.write,
            timeout: self.timeout + other.timeout,
            status: self.status + other.status,
            validation: self.validation + other.validation,
        }
    }
}

/// Whether the generator trusts its own figures.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum LoadStatus {
    /// Yes.
    #[default]
    Ok,
    /// Usable with care; the reasons say where.
    Suspect,
    /// The generator, not the server, was measured.
    Invalid,
}

impl LoadStatus {
    /// As it is printed.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Suspect => "SUSPECT",
            Self::Invalid => "INVALID",
        }
    }
}

/// The generator's judgement of its own run.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadVerdict {
    /// How far the figures can be relied on.
    pub status: LoadStatus,
    /// Why not fully; empty if OK.
    pub reasons: Vec<String>,
    /// Other facts about their validity, whatever the status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Every sample of a run, in the text of [`LatencyHistogram::to_v2`]: what exact merging needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadHistograms {
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual send to the last byte.
    pub service: LatencyHistogram,
    /// From the intended start to the actual send.
    pub slip: LatencyHistogram,
    /// Of wrong responses: from the intended start to the last byte.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub wrong_response: LatencyHistogram,
    /// Of wrong responses: from the actual send to the last byte.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub wrong_service: LatencyHistogram,
    /// The part of the send delay that is the generator's own.
    pub lateness: LatencyHistogram,
    /// The rest of the send delay: no connection was free.
    pub blocked: LatencyHistogram,
    /// Ages of requests that timed out.
    pub unanswered: LatencyHistogram,
    /// From a response's arrival in the kernel to the generator being awake for it, of a sample.
    pub wake_delay: LatencyHistogram,
    /// From the actual send to the response's arrival in the kernel, of the same sample.
    pub kernel_service: LatencyHistogram,
    /// Service time of the same sample.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub sampled_service: LatencyHistogram,
    /// Connecting; 0 for all but the first request on a connection.
    pub connect: LatencyHistogram,
    /// From the actual send to the head of the response.
    pub waiting: LatencyHistogram,
    /// Connecting and service.
    pub total: LatencyHistogram,
    /// From asking for a connection to having it, of all that came up.
    pub opening: LatencyHistogram,
    /// Of `opening` over TLS: until the connection below stood.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub transport: LatencyHistogram,
    /// Of `opening` over TLS: the handshake.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub handshake: LatencyHistogram,
    /// Whole batches, from the intended start of the first request to the last byte of all.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub batch_response: LatencyHistogram,
    /// The same from the actual send.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub batch_service: LatencyHistogram,
    /// No times: responses per second of single threads, right and wrong, a sample every quarter of a second.
    pub thread_rates: LatencyHistogram,
    /// Of each class of requests; empty if there is one.
    pub classes: Vec<ClassHistograms>,
}

/// Every sample of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassHistograms {
    /// As it was named.
    pub name: String,
    /// From the intended start to the last byte.
    pub response: LatencyHistogram,
    /// From the actual send to the last byte.
    pub service: LatencyHistogram,
}

/// One run of the load generator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadReport {
    /// [`super::FORMAT_VERSION`].
    pub format_version: u32,
    /// Version of millpond.
    pub version: String,
    /// The URL as given.
    pub url: String,
    /// When sending began, since the epoch; 0: it did not.
    pub started_unix_ns: u64,
    /// Threads of the generator.
    pub threads: u32,
    /// Connections asked for.
    pub connections: u32,
    /// How many of them were open when it began and when it ended; of several sets one after another the fewest.
    /// Absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_open: Option<LoadConnectionsOpen>,
    /// How many connections each of the target's addresses took; absent where it has one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<LoadAddress>,
    /// With `--keep-going`: the times without a target.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<LoadOutage>,
    /// With `--repeat` and `--reconnect-every`: the results of each set of connections, and their spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_sets: Option<LoadConnectionSets>,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// Kernel interface of the generator: `epoll` or `uring`.
    pub driver: String,
    /// How long one of its threads polled for responses before it slept, at most; 0: not at all.
    pub busy_poll_ns: u64,
    /// Busy polls that found something.
    pub spins_paid: u64,
    /// Busy polls that found nothing.
    pub spins_vain: u64,
    /// Time that all of them took.
    pub spun_ns: u64,
    /// The rate asked for; `None` in the closed loop.
    pub rate_per_s: Option<f64>,
    /// The arrival process in words; `None` in the closed loop.
    pub arrivals: Option<String>,
    /// Bytes that the generator handed to the kernel, warm-up included. Absent in records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_bytes: u64,
    /// Requests that were later than the deadline and never sent.
    pub shed: u64,
    /// Requests that were due in the window; `None` in the closed loop.
    pub offered: Option<u64>,
    /// Requests written.
    pub sent: u64,
    /// Of those, how many left after the window.
    pub sent_late: u64,
    /// Requests written again because the server had announced that it would not respond to them.
    pub resent: u64,
    /// Connections that were closed because bytes came that no request had asked for; absent if there were none, and in
    /// records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_with_unasked_bytes: u64,
    /// Requests due but never written, among the timeouts.
    pub unsent: u64,
    /// Requests under way when the run was cut off.
    pub abandoned: u64,
    /// Right responses that the rate is of, whenever their requests left.
    pub answered_in_window: u64,
    /// Right responses to requests that count.
    pub requests: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From asking for a connection to having it, of all that came up, before the window too.
    pub opening_ns: LatencySummary,
    /// Of `opening_ns` over TLS: until the connection below stood; absent in plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport_ns: Option<LatencySummary>,
    /// Of `opening_ns` over TLS: the handshake; absent in plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_ns: Option<LatencySummary>,
    /// With `-B`: whole batches, from the intended start of the first request to the last byte of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_response_ns: Option<LatencySummary>,
    /// With `-B`: the same from the actual send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_service_ns: Option<LatencySummary>,
    /// Handshakes; absent in plaintext.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<LoadTls>,
    /// The outcome of the cookies that the server set; absent if cookies were ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<LoadCookies>,
    /// How the warm-up went; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<LoadWarmUp>,
    /// Wrong responses, among the failures, by what is wrong with them.
    pub wrong_answers: WrongAnswers,
    /// Each class of requests by itself; empty if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<LoadClass>,
    /// Length of the window, or the time until the last response if a count ended the run.
    pub duration_ns: u64,
    /// Right responses per second of `rate_window`.
    pub requests_per_s: f64,
    /// All responses per second of `rate_window`, right and wrong; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_answers_per_s: Option<f64>,
    /// The time span of the rate; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_window: Option<LoadRateWindow>,
    /// The Server field of the first response.
    pub server: String,
    /// Length of the first body.
    pub document_bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Responses that left their connection open.
    pub keep_alive_requests: u64,
    /// Bytes received in the window, heads included.
    pub bytes_received: u64,
    /// Bytes received behind the window, while responses were waited for; 0 in records of earlier versions.
    pub drained_bytes: u64,
    /// From the beginning of the window to the last response, those that came behind it included; 0 in records of
    /// earlier versions.
    pub answered_within_ns: u64,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// Of all responses, right and wrong: from the intended start to the last byte; absent in records of earlier
    /// versions. `response_ns` and `service_ns` are of right responses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_response_ns: Option<LatencySummary>,
    /// Of all responses, right and wrong: from the actual send to the last byte; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_service_ns: Option<LatencySummary>,
    /// Connecting; 0 for all but the first request on a connection.
    pub connect_ns: LatencySummary,
    /// From the actual send to the head of the response.
    pub waiting_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
    /// The part of the send delay that is the generator's own; `None` in the closed loop.
    pub client_late_ns: Option<LatencySummary>,
    /// The rest of the send delay: no connection was free; `None` in the closed loop.
    pub no_connection_ns: Option<LatencySummary>,
    /// From a response's arrival in the kernel to the generator being awake for it, of a sample.
    pub wake_delay_ns: Option<LatencySummary>,
    /// From the actual send to the response's arrival in the kernel, of the same sample.
    pub kernel_service_ns: Option<LatencySummary>,
    /// Service time of the same sample, of which the two above are the parts; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_service_ns: Option<LatencySummary>,
    /// Responses by status code.
    pub statuses: BTreeMap<u16, u64>,
    /// The failures by cause, with the first of each; finer than `errors`, which they add up to. Absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<LoadFailure>,
    /// CPU of the generator as a share of the CPUs it may use.
    pub generator_cpu_share: Option<f64>,
    /// CPU time the hypervisor withheld, as a share of the machine; `None` if unknown.
    pub steal_share: Option<f64>,
    /// The condition of `--abort` that ended it early, and what was measured.
    pub aborted: Option<String>,
    /// True if Ctrl-C ended it early.
    pub interrupted: bool,
    /// True if it ended early because the target was gone.
    pub target_gone: bool,
    /// The generator's judgement of its own run.
    pub verdict: LoadVerdict,
    /// Every sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<LoadHistograms>,
}

impl LoadReport {
    /// The time span of the rate. Of records without it: all of the run.
    #[must_use]
    pub fn window_of_rate(&self) -> LoadRateWindow {
        self.rate_window.unwrap_or_else(|| LoadRateWindow {
            duration_ns: self.duration_ns,
            answers: (self.requests_per_s * self.duration_ns as f64 / 1e9).round() as u64,
            wrong_answers: 0,
            wrong_statuses: 0,
            bytes_received: self.bytes_received,
            end: RateWindowEnd::Time,
        })
    }

    /// The JSON text, indented, newline at the end.
    ///
    /// # Errors
    /// Only if a value cannot be expressed in JSON, which no type here has.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|mut text| {
            text.push('\n');
            text
        })
    }
}

// The requests of one class in a load run, and what was wrong with wrong responses.

/// Wrong responses by the first thing that was wrong with them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrongAnswers {
    /// A status that is not among the right ones.
    pub status: u64,
    /// Not as long as it must be.
    pub length: u64,
    /// Not the checksum it must have.
    pub checksum: u64,
    /// Without the key that was asked for.
    pub echo: u64,
    /// Not what was stored, or not what the first response was.
    pub content: u64,
}

impl WrongAnswers {
    /// Adds those of another thread or run.
    pub const fn add(&mut self, other: &Self) {
        self.status += other.status;
        self.length += other.length;
        self.checksum += other.checksum;
        self.echo += other.echo;
        self.content += other.content;
    }

    /// Counts with the words for them, those that occurred; the status has its own line elsewhere.
    #[must_use]
    pub fn contents(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("length", self.length),
            ("checksum", self.checksum),
            ("no echo of the key", self.echo),
            ("content", self.content),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// TLS handshakes of a load run, those before the window too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadTls {
    /// With a certificate.
    pub full: u64,
    /// That resumed a session.
    pub resumed: u64,
    /// That failed, among the connections that could not be opened.
    pub failed: u64,
    /// Those of TLS 1.2, full or resumed; absent in records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls12: u64,
    /// Those of TLS 1.3, likewise.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls13: u64,
}

impl LoadTls {
    /// Adds those of another thread or run.
    pub const fn add(&mut self, other: &Self) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.tls12 += other.tls12;
        self.tls13 += other.tls13;
    }

    /// The version that most handshakes had, if any succeeded.
    #[must_use]
    pub const fn version(&self) -> Option<&'static str> {
        match (self.tls12, self.tls13) {
            (0, 0) => None,
            (older, newer) if older > newer => Some("TLS 1.2"),
            _ => Some("TLS 1.3"),
        }
    }
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadClass {
    /// As it was named: an operation of a mix, or a URL.
    pub name: String,
    /// Right responses.
    pub requests: u64,
    /// Failures by phase; those before anything was sent belong to no class.
    pub errors: LoadErrors,
    /// Right responses per second.
    pub requests_per_s: f64,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
}

// The stretch of a load run that its rate is of.
//
// A run with a fixed count goes on until its last response, and then a few stragglers decide how long it took. The rate
// is therefore of the time in which there was still something to send.

/// The event that ended the window of the rate.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateWindowEnd {
    /// Its time was up, or the run was ended early.
    #[default]
    Time,
    /// Closed loop: a connection was free and found no request left to send.
    NoRequestLeft,
    /// Open loop: the moment at which the first request behind the last would have been due.
    LastArrival,
    /// The last response came: too few came before one of the above.
    LastAnswer,
}

impl RateWindowEnd {
    /// Behind "N responses in T, ".
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Time => "until its time was up",
            Self::NoRequestLeft => "until a connection found no request left to send",
            Self::LastArrival => "the time that their arrivals take",
            Self::LastAnswer => "until the last one (too few came while all connections were busy)",
        }
    }
}

/// The basis of the rate: `answers` over `duration_ns`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadRateWindow {
    /// Its length.
    pub duration_ns: u64,
    /// Right responses in it, whenever their requests left.
    pub answers: u64,
    /// Wrong responses in it; 0 in records of earlier versions.
    pub wrong_answers: u64,
    /// Of those, how many have a wrong status; 0 in records of earlier versions.
    pub wrong_statuses: u64,
    /// Bytes received in it, heads included.
    pub bytes_received: u64,
    /// The event that ended it.
    pub end: RateWindowEnd,
}

impl LoadRateWindow {
    /// Right responses per second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.rate_of(self.answers)
    }

    /// All responses in it, right and wrong.
    #[must_use]
    pub const fn all_answers(&self) -> u64 {
        self.answers + self.wrong_answers
    }

    /// `count` of something in it, per second.
    #[must_use]
    pub fn rate_of(&self, count: u64) -> f64 {
        match self.duration_ns {
            0 => 0.0,
            duration_ns => count as f64 * 1e9 / duration_ns as f64,
        }
    }

    /// Adds what others counted meanwhile: the longer window is both's.
    pub fn add_parallel(&mut self, other: &Self) {
        self.duration_ns = self.duration_ns.max(other.duration_ns);
        self.add_counts(other);
    }

    /// Adds what was counted before or afterwards.
    pub fn add_sequel(&mut self, other: &Self) {
        self.duration_ns += other.duration_ns;
        self.add_counts(other);
    }

    fn add_counts(&mut self, other: &Self) {
        self.answers += other.answers;
        self.wrong_answers += other.wrong_answers;
        self.wrong_statuses += other.wrong_statuses;
        self.bytes_received += other.bytes_received;
        self.end = self.end.max(other.end);
    }
}

// Times without a target, in a load run that continues through them.

/// One of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadOutage {
    /// From when sending began until the first connection was lost.
    pub start_ns: u64,
    /// Until a connection was open again, or the run ended.
    pub duration_ns: u64,
    /// Requests that failed because of it: under way when it began, or due in it and not sent in time.
    pub failed: u64,
    /// Attempts to open a connection that failed meanwhile.
    pub attempts: u64,
    /// False: it lasted until the end of the run.
    pub is_over: bool,
}

impl LoadOutage {
    /// As it is printed.
    #[must_use]
    pub fn in_words(&self) -> String {
        let end = if self.is_over { "" } else { ", to the end" };
        format!(
            "after {} for {}{end}: {} requests failed, {} attempts to connect",
            format_duration_ns(self.start_ns as f64),
            format_duration_ns(self.duration_ns as f64),
            self.failed,
            self.attempts
        )
    }
}

// The outcome of the cookies that a server set.

/// Set-Cookie fields of all responses, warm-up included, by what came of them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadCookies {
    /// A user had the cookie from then on.
    pub set: u64,
    /// A user lost it, as the server wished.
    pub deleted: u64,
    /// There was no room for it, so the requests lacked it.
    pub overflowed: u64,
    /// It was no cookie, or one for TLS alone on a connection in plaintext.
    pub unusable: u64,
}

impl LoadCookies {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            set: self.set + other.set,
            deleted: self.deleted + other.deleted,
            overflowed: self.overflowed + other.overflowed,
            unusable: self.unusable + other.unusable,
        }
    }
}

// The JSON of `load --find-max`: every step of a search for the highest rate, and what they say.

/// The result of a step, or of the votes of one rate.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// The objectives were kept, and so was the rate.
    Met,
    /// The target missed an objective, or could not keep the rate.
    Missed,
    /// Something else than the target was at its limit: the step says nothing about the target.
    #[default]
    Rejected,
}

impl StepOutcome {
    /// As it is printed.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::Rejected => "rejected",
        }
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// A rate that holds and one that does not lie as close as was asked for.
    Found,
    /// No rate that was tried keeps the objectives.
    NoneHolds,
    /// The generator was at its own limit above the rate that holds: the target's lies higher.
    GeneratorLimit,
    /// The search took more steps than a search can need; the target changes while it is measured.
    Unsteady,
    /// Ended early by the user.
    #[default]
    Interrupted,
    /// The target stopped accepting connections.
    TargetGone,
    /// A later step could not be made: [`SearchReport::failure`] says why. The steps before it stand.
    Failed,
}

/// One step: a run at one rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchStep {
    /// The rate that was offered.
    pub rate_per_s: f64,
    /// Right responses per second.
    pub requests_per_s: f64,
    /// Right responses.
    pub requests: u64,
    /// Its result.
    pub outcome: StepOutcome,
    /// Why it was missed or rejected; empty if it was met.
    pub reasons: Vec<String>,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// CPU of the generator's busiest thread as a share of one CPU.
    pub generator_cpu_share: f64,
    /// The generator's judgement of this run.
    pub verdict: LoadVerdict,
}

/// All steps of one rate, and the one that stands for them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CurvePoint {
    /// The rate that was offered.
    pub rate_per_s: f64,
    /// The decision of the votes.
    pub outcome: StepOutcome,
    /// Steps with that result.
    pub votes: u32,
    /// Steps at this rate.
    pub steps: u32,
    /// Among the steps with that result, the one with the median 99th percentile.
    pub typical: SearchStep,
}

/// A whole search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchReport {
    /// [`super::FORMAT_VERSION`].
    pub format_version: u32,
    /// Version of millpond.
    pub version: String,
    /// The URL as given.
    pub url: String,
    /// The objectives, in words.
    pub objectives: Vec<String>,
    /// Threads of the generator.
    pub threads: u32,
    /// Connections.
    pub connections: u32,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// How arrivals lay within the rate, in words.
    pub arrivals: String,
    /// Responses per second in a closed loop before the search, which is where it began.
    pub closed_loop_per_s: Option<f64>,
    /// Counted time of each step.
    pub step_ns: u64,
    /// Uncounted time before it.
    pub warm_up_ns: u64,
    /// How far apart the two rates may lie at the end, as a share of 1.
    pub precision: f64,
    /// The highest rate that holds; `None` if none does.
    pub rate_per_s: Option<f64>,
    /// The lowest rate above it that does not; `None` if none was tried.
    pub missed_per_s: Option<f64>,
    /// Why the search ended.
    pub ended: SearchEnd,
    /// The error of a step, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The load-latency curve, by ascending rate.
    pub curve: Vec<CurvePoint>,
    /// Every step in the order in which it was taken.
    pub steps: Vec<SearchStep>,
}

impl SearchReport {
    /// The JSON text, indented, newline at the end.
    ///
    /// # Errors
    /// Only if a value cannot be expressed in JSON, which no type here has.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self).map(|mut text| {
            text.push('\n');
            text
        })
    }
}

// The requests for a user's server, as a record of a comparison describes them.

/// One request of those that were sent in turn.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequest {
    /// Its method.
    pub method: String,
    /// Path and query, as a template where it is one.
    pub path: String,
    /// How often it was sent, in proportion to the others.
    pub weight: u64,
    /// Names of its header fields besides Host and those of its framing; values may be secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Length of its body, or of the template of its body; `None`: it differs from one request to the next.
    pub body_bytes: Option<u64>,
}

/// A script that made the requests.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentScript {
    /// The file's name.
    pub file: String,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// The arguments of its `init`.
    pub args: Vec<String>,
}

/// TLS towards the server.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentTls {
    /// `TLS 1.3` or `TLS 1.2`, as the first handshake of the baseline had it; `None`: there was none.
    pub version: Option<String>,
    /// Whether the server's certificate was verified.
    pub is_verified: bool,
}

/// All that describes the requests.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequests {
    /// The requests; with a script, the values of its table `wrk` before it ran.
    pub requests: Vec<SentRequest>,
    /// The script that made them, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<SentScript>,
    /// TLS, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SentTls>,
    /// The unix socket, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
}

/// Requests after so many are counted and not named in a sentence.
const NAMED_MAX: usize = 4;

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        match self.body_bytes {
            Some(0) => Ok(()),
            Some(bytes) => write!(f, " with a body of {bytes} bytes"),
            None => write!(f, " with bodies that differ"),
        }
    }
}

impl fmt::Display for SentRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(script) = &self.script {
            let digits = script.sha256.get(..12).unwrap_or(&script.sha256);
            write!(
                f,
                "made by the script {} (SHA-256 {digits}...)",
                script.file
            )?;
        } else {
            let has_weights = self.requests.len() > 1;
            for (place, request) in self.requests.iter().take(NAMED_MAX).enumerate() {
                let comma = if place > 0 { ", " } else { "" };
                write!(f, "{comma}{request}")?;
                if has_weights {
                    write!(f, " (weight {})", request.weight)?;
                }
            }
            if self.requests.len() > NAMED_MAX {
                write!(f, " and {} more", self.requests.len() - NAMED_MAX)?;
            }
        }
        if let Some(tls) = &self.tls {
            let version = tls.version.as_deref().unwrap_or("TLS");
            let trust = if tls.is_verified {
                ""
            } else {
                ", certificate not verified"
            };
            write!(f, "; {version}{trust}")?;
        }
        if let Some(path) = &self.unix {
            write!(f, "; over the unix socket {path}")?;
        }
        Ok(())
    }
}

// One second of a load run: a line of `--print ndjson`.

/// Where in a run a second lies.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPart {
    /// Before the window: not counted, and shown as such.
    WarmUp,
    /// The counted part.
    #[default]
    Window,
    /// After it: responses to requests that were due in the window.
    Drain,
}

/// Figures of one second, of all threads together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadSecond {
    /// Where it lies.
    pub part: RunPart,
    /// Counts from 0, warm-up included.
    pub second: u64,
    /// Its beginning, since sending began.
    pub start_ns: u64,
    /// A second; less where a part of the run ended.
    pub duration_ns: u64,
    /// Right responses that arrived in it.
    pub requests: u64,
    /// The same per second.
    pub requests_per_s: f64,
    /// Bytes received in it, while in the window.
    pub bytes_received: u64,
    /// Counted requests that left in it.
    pub sent: u64,
    /// Arrivals dropped unsent in it, because they were later than the deadline.
    pub shed: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From the intended start to the last byte, of the responses that arrived in it.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
}

/// A line, named by its first field.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Second(&'a LoadSecond),
    Summary(&'a LoadReport),
}

fn line(line: &Line<'_>) -> Result<String, serde_json::Error> {
    serde_json::to_string(line).map(|mut text| {
        text.push('\n');
        text
    })
}

impl LoadSecond {
    /// One line of JSON, newline included.
    ///
    /// # Errors
    /// Only if a value cannot be expressed in JSON, which no type here has.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        line(&Line::Second(self))
    }
}

impl LoadReport {
    /// The last line of the same stream: the record of the whole run.
    ///
    /// # Errors
    /// As [`LoadSecond::to_line`].
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        line(&Line::Summary(self))
    }
}

#[cfg(test)]
#[path = "tests/requests.rs"]
mod requests_tests;

#[cfg(test)]
#[path = "tests/second.rs"]
mod second_tests;
