//! What became of the requests of a session, and whether more of them failed than are allowed.
//!
//! `drive` counts a phase and ends it early if it cannot become a result; `session` adds up the phases of a
//! process and judges them together. A failed request is never an answer: it is in no throughput and no latency.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use millpond_load::{LoadRecord, StatusSet};
use millpond_measure::record::{FailureCause, LoadErrors};

/// Statuses from here to failures point to another URL: a 304 does not, and is not asked for.
const STATUS_REDIRECT_MIN: u16 = 300;
/// Statuses from here on are failures of a request.
const STATUS_FAILED_MIN: u16 = 400;
/// So unlikely is a number of failures that counts as too many, as the logarithm of 1 to 10,000: by chance alone one
/// server in many thousand phases with just the share that is allowed is called worse.
const UNLIKELY: f64 = 9.2;
/// More phases of a process with requests that timed out are too many, however many others were answered: in each
/// everybody waits for as long as an answer may take.
const TIMED_OUT_PHASES_MAX: u32 = 2;

/// The requests of a phase, or of the phases of a session so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Answers {
    /// Right answers.
    pub(crate) right: u64,
    /// Requests that failed, and connections.
    pub(crate) failed: LoadErrors,
    /// Answers with a wrong status, which are among the failed.
    statuses: BTreeMap<u16, u64>,
    /// Answers that point to another URL, and the status of one of them; they count as right.
    redirects: (u64, u16),
    /// How long no answer came on any connection at the end of a phase, if that is as long as one may take.
    pub(crate) silence: Option<Duration>,
    /// Phases with requests that were never answered.
    timed_out_phases: u32,
}

impl Answers {
    /// `right`: the statuses of right answers.
    pub(crate) fn of(record: &LoadRecord, silence: Option<Duration>, right: &StatusSet) -> Self {
        let statuses = record.statuses.iter();
        let is_redirect = |&(&status, _): &(&u16, &u64)| {
            // Where 200 is wrong, they are what is asked for.
            (STATUS_REDIRECT_MIN..STATUS_FAILED_MIN).contains(&status)
                && right.contains(status)
                && right.contains(200)
        };
        let redirects = statuses.clone().filter(is_redirect);
        let redirects = redirects.fold((0, 0), |(sum, _), (&status, &count)| (sum + count, status));
        let failed = statuses.filter(|&(&status, &count)| !right.contains(status) && count > 0);
        Self {
            right: record.requests,
            failed: record.errors,
            statuses: failed.map(|(&status, &count)| (status, count)).collect(),
            redirects,
            silence,
            timed_out_phases: u32::from(record.errors.timeout > 0),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.right += other.right;
        self.failed = self.failed.plus(&other.failed);
        for (&status, &count) in &other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        if other.redirects.0 > 0 {
            self.redirects = (self.redirects.0 + other.redirects.0, other.redirects.1);
        }
        self.silence = other.silence;
        self.timed_out_phases += other.timed_out_phases;
    }

    /// All requests, and connections that failed.
    pub(crate) fn total(&self) -> u64 {
        self.right + self.failed.total()
    }

    /// The status of redirects, if at least half of the answers are some.
    pub(crate) fn redirected(&self) -> Option<u16> {
        let (count, status) = self.redirects;
        (count > 0 && count * 2 >= self.total()).then_some(status)
    }

    /// Whether these are too many failures, with `phase` as the last phase of them.
    pub(crate) fn are_too_bad(&self, phase: &Self, allowed: f64) -> bool {
        let has_only_failures = phase.right == 0 && phase.failed.total() > 0;
        has_only_failures
            || self.timed_out_phases > TIMED_OUT_PHASES_MAX
            || is_above(self.failed.total(), self.total(), allowed)
    }
}

/// Whether `failed` of `all` requests are more than a server has by chance that fails the share `allowed`: one failure
/// among a few dozen requests says nothing of a share of 0.1 %, three do. The chance is bounded after Chernoff.
pub(crate) fn is_above(failed: u64, all: u64, allowed: f64) -> bool {
    let (failed, expected) = (failed as f64, allowed * all as f64);
    failed > expected && failed * (failed / expected).ln() - failed + expected > UNLIKELY
}

/// More requests failed than are allowed. As text it says what happened and what to do.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedRequests {
    /// How many failed, connections included.
    pub failed: u64,
    /// Of how many.
    pub requests: u64,
    /// By kind.
    pub kinds: LoadErrors,
    /// Answers with a wrong status, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Where they went.
    pub url: String,
    /// Over how many connections.
    pub connections: usize,
    /// How many connections may wait at the server to be accepted, if that can be told.
    pub backlog: Option<u32>,
    /// The share that may fail.
    pub allowed: f64,
}

impl FailedRequests {
    pub(crate) fn of(answers: &Answers, url: &str, connections: usize, allowed: f64) -> Self {
        Self {
            failed: answers.failed.total(),
            requests: answers.total(),
            kinds: answers.failed,
            statuses: answers.statuses.clone(),
            url: url.to_owned(),
            connections,
            backlog: None,
            allowed,
        }
    }

    /// Whether some got no answer at all.
    pub(crate) const fn has_unanswered(&self) -> bool {
        self.kinds.connect + self.kinds.read + self.kinds.write + self.kinds.timeout > 0
    }

    /// Whether more connections come at once than may wait at the server: no allocator is the reason then.
    pub(crate) fn is_of_backlog(&self) -> bool {
        let is_small = self
            .backlog
            .is_some_and(|backlog| (backlog as usize) < self.connections);
        is_small && self.has_unanswered()
    }

    /// The same for the record.
    pub(crate) fn cause(&self) -> FailureCause {
        let statuses = self.statuses.iter();
        FailureCause::FailedRequests {
            failed: self.failed,
            requests: self.requests,
            statuses: statuses
                .map(|(status, &count)| (status.to_string(), count))
                .collect(),
            timeouts: self.kinds.timeout,
            connects: self.kinds.connect,
        }
    }

    /// What failed, by kind, the statuses one by one: `status 500: 12, timeout: 2`.
    fn details(&self) -> String {
        let statuses = self.statuses.iter();
        let mut parts: Vec<String> = statuses
            .map(|(status, count)| format!("status {status}: {count}"))
            .collect();
        let kinds = [
            ("no connection", self.kinds.connect),
            ("connection lost", self.kinds.read),
            ("not sent", self.kinds.write),
            ("timeout", self.kinds.timeout),
            ("wrong content", self.kinds.validation),
        ];
        let seen = kinds.iter().filter(|(_, count)| *count > 0);
        parts.extend(seen.map(|(kind, count)| format!("{kind}: {count}")));
        parts.join(", ")
    }

    /// What to do about it.
    fn remedy(&self) -> String {
        let of_status: u64 = self.statuses.values().sum();
        if of_status * 2 < self.failed {
            return self.remedy_of_unanswered();
        }
        let most = self.statuses.iter().max_by_key(|&(_, count)| *count);
        let url = &self.url;
        match most.map_or(0, |(&status, _)| status) {
            401 | 403 | 407 => format!(
                "does {url} need credentials? Give them in the URL (http://USER:PASSWORD@HOST/) or with --header"
            ),
            404 | 410 | 421 => format!("is {url} the right URL (--url)?"),
            405 => format!("does {url} take another method (--method)?"),
            429 | 503 => {
                format!(
                    "the server turns requests away: fewer {}",
                    self.fewer_connections()
                )
            }
            400..500 => {
                format!("{url} does not take these requests: look at --method, --header and --body")
            }
            _ => format!("requests went to {url}; its log may say why"),
        }
    }

    fn remedy_of_unanswered(&self) -> String {
        if !self.has_unanswered() {
            return format!("requests went to {}", self.url);
        }
        let why = match self.backlog {
            Some(backlog) if (backlog as usize) < self.connections => format!(
                "it lets {backlog} connections wait to be accepted (its listen backlog), and {} come at once",
                self.connections
            ),
            _ => format!(
                "it may not serve {} connections at once, or let so many wait (its listen backlog)",
                self.connections
            ),
        };
        format!("{why}: fewer {}", self.fewer_connections())
    }

    fn fewer_connections(&self) -> String {
        let of_backlog = self.backlog.map(|backlog| backlog as usize);
        let fewer = of_backlog.unwrap_or(usize::MAX).min(self.connections / 4);
        format!("with --connections {}", fewer.max(1))
    }
}

impl fmt::Display for FailedRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, requests) = (self.failed, self.requests);
        let mut statuses = self.statuses.iter();
        match (statuses.next(), statuses.next()) {
            // One status alone.
            (Some((status, &count)), None) if count == failed => {
                write!(f, "{failed} of {requests} answers had status {status}")?;
            }
            _ => write!(
                f,
                "{failed} of {requests} requests failed ({})",
                self.details()
            )?,
        }
        // A share is as it was typed, not as binary has it.
        let percent = (self.allowed * 1e8).round() / 1e6;
        write!(
            f,
            ": {}; {percent} % may fail (--errors-allowed)",
            self.remedy()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(right: u64, statuses: &[(u16, u64)], timeout: u64) -> Answers {
        let status = statuses.iter().map(|(_, count)| count).sum();
        Answers {
            right,
            failed: LoadErrors {
                status,
                timeout,
                ..LoadErrors::default()
            },
            statuses: statuses.iter().copied().collect(),
            redirects: (0, 0),
            silence: None,
            timed_out_phases: u32::from(timeout > 0),
        }
    }

    fn sentence(answers: &Answers, connections: usize, backlog: Option<u32>) -> String {
        let url = "http://127.0.0.1:8000/x";
        let mut failed = FailedRequests::of(answers, url, connections, 0.001);
        failed.backlog = backlog;
        failed.to_string()
    }

    /// A URL that answered 302 was measured without a word: an answer of 150 bytes for a page of 60 KiB.
    ///
    /// Goal: answers that point elsewhere are known where most are such, over all phases.
    #[test]
    fn redirects_are_known() {
        let phase = |statuses: &[(u16, u64)]| {
            let record = LoadRecord {
                requests: statuses.iter().map(|(_, count)| count).sum(),
                statuses: statuses.iter().copied().collect(),
                ..LoadRecord::default()
            };
            Answers::of(&record, None, &StatusSet::range(200, 399))
        };
        let mut all = phase(&[(200, 5), (302, 5)]);
        assert_eq!(all.redirected(), Some(302));
        all.add(&phase(&[(200, 1)]));
        assert_eq!(all.redirected(), None);
        all.add(&phase(&[(308, 20)]));
        assert_eq!(all.redirected(), Some(308));
        assert_eq!(phase(&[(200, 5)]).redirected(), None);
        assert_eq!(Answers::default().redirected(), None);
    }

    /// Goal: a single failure ends nothing, a share that is surely larger than the one that is allowed does, after few
    /// requests as after many; of none allowed, one is too many.
    #[test]
    fn a_share_is_too_large_when_chance_does_not_explain_it() {
        for (failed, all) in [
            (1, 20),
            (1, 1_000),
            (2, 1_000),
            (100, 100_000),
            (130, 100_000),
        ] {
            assert!(!is_above(failed, all, 0.001), "{failed} of {all}");
        }
        for (failed, all) in [
            (2, 2),
            (15, 121),
            (13, 130),
            (3, 30),
            (9, 1_000),
            (200, 100_000),
        ] {
            assert!(is_above(failed, all, 0.001), "{failed} of {all}");
        }
        assert!(is_above(1, 1_000_000, 0.0) && !is_above(0, 1_000_000, 0.0));
        assert!(!is_above(0, 0, 0.001));
    }

    /// Goal: phases are judged together; one without a right answer, and a third one that everybody had to wait for, are
    /// too bad by themselves.
    #[test]
    fn phases_are_judged_together() {
        let mut sum = Answers::default();
        let one = answers(300, &[(500, 3)], 0);
        for phase in 1..=4 {
            sum.add(&one);
            // The share is 1 %: ten times what is allowed, which six failures do not prove and nine do.
            assert_eq!(sum.are_too_bad(&one, 0.001), phase > 2, "{phase}");
        }
        let nothing = answers(0, &[], 1);
        assert!(nothing.are_too_bad(&nothing, 0.5));
        let slow = answers(1_000_000, &[], 1);
        let mut sum = Answers::default();
        for phase in 1..=3 {
            sum.add(&slow);
            assert_eq!(sum.are_too_bad(&slow, 0.001), phase == 3);
        }
        assert_eq!(sum.right, 3_000_000);
    }

    /// Goal: the sentence names the statuses with their numbers and what to look at: the URL, credentials, the number of
    /// connections and the listen backlog.
    #[test]
    fn sentences_say_what_to_do() {
        assert_eq!(
            sentence(&answers(0, &[(404, 135)], 0), 64, None),
            "135 of 135 answers had status 404: is http://127.0.0.1:8000/x the right URL (--url)?; 0.1 % may fail \
             (--errors-allowed)"
        );
        let told = sentence(&answers(0, &[(401, 9)], 0), 64, None);
        assert!(told.contains("need credentials?"), "{told}");
        let told = sentence(&answers(100, &[(500, 12), (502, 1)], 2), 64, None);
        assert!(
            told.starts_with(
                "15 of 115 requests failed (status 500: 12, status 502: 1, timeout: 2): "
            ),
            "{told}"
        );
        assert!(told.contains("its log may say why"), "{told}");
        let told = sentence(&answers(106, &[], 15), 64, Some(5));
        assert!(
            told.contains("15 of 121 requests failed (timeout: 15)"),
            "{told}"
        );
        assert!(told.contains("it lets 5 connections wait"), "{told}");
        assert!(told.contains("fewer with --connections 5;"), "{told}");
        let told = sentence(&answers(106, &[], 15), 64, None);
        assert!(
            told.contains("may not serve 64 connections at once"),
            "{told}"
        );
        assert!(told.contains("fewer with --connections 16;"), "{told}");
        let told = sentence(&answers(6, &[(503, 15)], 0), 2, None);
        assert!(told.contains("fewer with --connections 1;"), "{told}");
    }
}
