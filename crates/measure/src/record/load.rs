//! The JSON of `load --json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    LoadAddress, LoadClass, LoadConnectionSets, LoadConnectionsOpen, LoadCookies, LoadFailure,
    LoadOutage, LoadRateWindow, LoadTls, LoadWarmUp, RateWindowEnd, WrongAnswers,
};
use crate::histogram::{LatencyHistogram, LatencySummary};

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
    /// Connections that broke while an answer was awaited, or answers that are not HTTP.
    pub read: u64,
    /// Requests that could not be sent.
    pub write: u64,
    /// Requests without an answer in time.
    pub timeout: u64,
    /// Answers with a status above 399.
    pub status: u64,
    /// Answers whose content was not what was stored.
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

/// Whether the generator believes its own figures.
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
    /// What else is known about how far they hold, whatever the status.
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
    /// Of wrong answers: from the intended start to the last byte.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub wrong_response: LatencyHistogram,
    /// Of wrong answers: from the actual send to the last byte.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub wrong_service: LatencyHistogram,
    /// The part of slip that is the generator's own.
    pub lateness: LatencyHistogram,
    /// The rest of slip: no connection was free.
    pub blocked: LatencyHistogram,
    /// Ages of requests that were given up.
    pub unanswered: LatencyHistogram,
    /// From an answer's arrival in the kernel to the generator being awake for it, of a sample.
    pub wake_delay: LatencyHistogram,
    /// From the actual send to the answer's arrival in the kernel, of the same sample.
    pub kernel_service: LatencyHistogram,
    /// Service time of the same sample.
    #[serde(skip_serializing_if = "LatencyHistogram::is_empty")]
    pub sampled_service: LatencyHistogram,
    /// Connecting; 0 for all but the first request on a connection.
    pub connect: LatencyHistogram,
    /// From the actual send to the head of the answer.
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
    /// No times: answers per second of single threads, right and wrong, a sample every quarter of a second.
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
    /// With `--repeat` and `--reconnect-every`: what each set of connections came to, and their spread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_sets: Option<LoadConnectionSets>,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// Kernel interface of the generator: `epoll` or `uring`.
    pub driver: String,
    /// How long one of its threads looked for answers before it slept, at most; 0: not at all.
    pub busy_poll_ns: u64,
    /// Looks of that kind that found something.
    pub spins_paid: u64,
    /// Looks of that kind in vain.
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
    /// Requests written again because the server had announced that it would not answer them.
    pub resent: u64,
    /// Connections that were closed because bytes came that no request had asked for; absent if there were none, and in
    /// records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections_with_unasked_bytes: u64,
    /// Requests due but never written, among the timeouts.
    pub unsent: u64,
    /// Requests under way when the run was cut off.
    pub abandoned: u64,
    /// Right answers that the rate is of, whenever their requests left.
    pub answered_in_window: u64,
    /// Right answers to requests that count.
    pub requests: u64,
    /// Failures by phase.
    pub errors: LoadErrors,
    /// From asking for a connection to having it, of all that came up, before the window too.
    pub opening_ns: LatencySummary,
    /// Of `opening_ns` over TLS: until the connection below stood; absent in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport_ns: Option<LatencySummary>,
    /// Of `opening_ns` over TLS: the handshake; absent in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_ns: Option<LatencySummary>,
    /// With `-B`: whole batches, from the intended start of the first request to the last byte of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_response_ns: Option<LatencySummary>,
    /// With `-B`: the same from the actual send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_service_ns: Option<LatencySummary>,
    /// Handshakes; absent in clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<LoadTls>,
    /// What came of the cookies that the server set; absent if nobody kept any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<LoadCookies>,
    /// How the warm-up went; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<LoadWarmUp>,
    /// Wrong answers, among the failures, by what is wrong with them.
    pub wrong_answers: WrongAnswers,
    /// Each class of requests by itself; empty if there is one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<LoadClass>,
    /// Length of the window, or the time until the last answer if a count ended the run.
    pub duration_ns: u64,
    /// Right answers per second of `rate_window`.
    pub requests_per_s: f64,
    /// All answers per second of `rate_window`, right and wrong; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_answers_per_s: Option<f64>,
    /// What the rate is of; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_window: Option<LoadRateWindow>,
    /// The Server field of the first answer.
    pub server: String,
    /// Length of the first body.
    pub document_bytes: u64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Answers that left their connection open.
    pub keep_alive_requests: u64,
    /// Bytes received in the window, heads included.
    pub bytes_received: u64,
    /// Bytes received behind the window, while answers were waited for; 0 in records of earlier versions.
    pub drained_bytes: u64,
    /// From the beginning of the window to the last answer, those that came behind it included; 0 in records of
    /// earlier versions.
    pub answered_within_ns: u64,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
    /// Of all answers, right and wrong: from the intended start to the last byte; absent in records of earlier
    /// versions. `response_ns` and `service_ns` are of right answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_response_ns: Option<LatencySummary>,
    /// Of all answers, right and wrong: from the actual send to the last byte; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_service_ns: Option<LatencySummary>,
    /// Connecting; 0 for all but the first request on a connection.
    pub connect_ns: LatencySummary,
    /// From the actual send to the head of the answer.
    pub waiting_ns: LatencySummary,
    /// From the intended start to the actual send.
    pub slip_ns: LatencySummary,
    /// The part of slip that is the generator's own; `None` in the closed loop.
    pub client_late_ns: Option<LatencySummary>,
    /// The rest of slip: no connection was free; `None` in the closed loop.
    pub no_connection_ns: Option<LatencySummary>,
    /// From an answer's arrival in the kernel to the generator being awake for it, of a sample.
    pub wake_delay_ns: Option<LatencySummary>,
    /// From the actual send to the answer's arrival in the kernel, of the same sample.
    pub kernel_service_ns: Option<LatencySummary>,
    /// Service time of the same sample, of which the two above are the parts; absent in records of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_service_ns: Option<LatencySummary>,
    /// Answers by status code.
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
    /// True if it ended early because the target went away.
    pub target_gone: bool,
    /// The generator's judgement of its own run.
    pub verdict: LoadVerdict,
    /// Every sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub histograms: Option<LoadHistograms>,
}

impl LoadReport {
    /// What the rate is of. Of records without it: all of the run.
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
