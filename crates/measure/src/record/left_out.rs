//! Why a candidate is not among those that were compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{format_bytes, format_count, format_duration_ns, format_percent};

/// Names of the signals that end servers, by their Linux numbers on x86 and Arm.
const SIGNALS: [(i32, &str); 14] = [
    (1, "SIGHUP"),
    (2, "SIGINT"),
    (3, "SIGQUIT"),
    (4, "SIGILL"),
    (5, "SIGTRAP"),
    (6, "SIGABRT"),
    (7, "SIGBUS"),
    (8, "SIGFPE"),
    (9, "SIGKILL"),
    (11, "SIGSEGV"),
    (13, "SIGPIPE"),
    (15, "SIGTERM"),
    (24, "SIGXCPU"),
    (31, "SIGSYS"),
];

/// The name of a signal; `None` for one that ends no server.
#[must_use]
pub fn signal_name(number: i32) -> Option<&'static str> {
    let mut known = SIGNALS.iter();
    known.find(|(one, _)| *one == number).map(|(_, name)| *name)
}

/// Why a run of a candidate failed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum FailureCause {
    /// Its first process ended by a signal or with a status.
    Crashed {
        /// The number of the signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal: Option<i32>,
        /// The status, if it was no signal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        exit_status: Option<i32>,
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// It ran, and answered no more.
    Hung {
        /// Answers before that, of the run that failed.
        after_requests: u64,
        /// How long no answer came.
        silent_ns: u64,
    },
    /// The kernel killed a process of it for want of memory.
    KilledForMemory {
        /// The lowest limit of its control groups; absent if they have none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
        /// True if the kernel counted it; false if all that is known is a SIGKILL that the comparison did not send.
        is_counted: bool,
    },
    /// It ended, and its log says that the allocator did not accept its settings.
    RefusedSettings {
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// It ended, and its log says that the kernel gave it no more address space.
    NoAddressSpace {
        /// The limit (`ulimit -v`); absent if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit_bytes: Option<u64>,
        /// The end of its log.
        #[serde(default)]
        last_lines: Vec<String>,
    },
    /// More requests failed than are allowed.
    FailedRequests {
        /// How many.
        failed: u64,
        /// Of how many.
        requests: u64,
        /// Answers with a status above 399, by status.
        #[serde(default)]
        statuses: BTreeMap<String, u64>,
        /// Requests without an answer in time.
        #[serde(default)]
        timeouts: u64,
        /// Connections that could not be opened.
        #[serde(default)]
        connects: u64,
    },
    /// Its answers are not those of the baseline, or a check of the user's failed.
    WrongAnswers,
    /// The allocator could not be proved to be in use.
    NotInUse,
    /// It ran, and did not answer within the time that a start may take.
    NeverServed {
        /// That time.
        waited_ns: u64,
    },
    /// Something else; the sentence says what.
    #[serde(other)]
    Other,
}

impl FailureCause {
    /// In a few words, for a row of a table.
    #[must_use]
    pub fn label(&self) -> String {
        let of_limit = |what: &str, limit: &Option<u64>| match limit {
            Some(bytes) => format!("{what} (limit {})", format_bytes(*bytes as f64)),
            None => what.to_owned(),
        };
        match self {
            // What the kernel does for want of memory has a cause of its own.
            Self::Crashed {
                signal: Some(9), ..
            } => "killed (SIGKILL), not for memory".to_owned(),
            Self::Crashed {
                signal: Some(number),
                ..
            } => match signal_name(*number) {
                Some(name) => format!("crashed ({name})"),
                None => format!("crashed (signal {number})"),
            },
            Self::Crashed {
                exit_status: Some(status),
                ..
            } => format!("ended (exit status {status})"),
            Self::Crashed { .. } => "ended".to_owned(),
            Self::Hung { after_requests, .. } => {
                format!(
                    "hung after {} answers",
                    format_count(*after_requests as f64)
                )
            }
            Self::KilledForMemory {
                limit_bytes,
                is_counted,
            } => match is_counted {
                true => of_limit("killed for memory", limit_bytes),
                false => of_limit("killed (SIGKILL), likely for memory", limit_bytes),
            },
            Self::RefusedSettings { .. } => "refused its settings".to_owned(),
            Self::NoAddressSpace { limit_bytes, .. } => of_limit("no address space", limit_bytes),
            Self::FailedRequests {
                failed,
                requests,
                statuses,
                timeouts,
                connects,
            } => {
                let share = *failed as f64 / (*requests).max(1) as f64;
                let mut kinds: Vec<String> = statuses
                    .keys()
                    .map(|status| format!("status {status}"))
                    .collect();
                kinds.extend((*timeouts > 0).then(|| "timeout".to_owned()));
                kinds.extend((*connects > 0).then(|| "no connection".to_owned()));
                let kinds = match kinds.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", kinds.join(", ")),
                };
                format!("{} of requests failed{kinds}", format_percent(share))
            }
            Self::WrongAnswers => "wrong answers".to_owned(),
            Self::NotInUse => "allocator not in use".to_owned(),
            Self::NeverServed { waited_ns } => {
                format!(
                    "did not serve within {}",
                    format_duration_ns(*waited_ns as f64)
                )
            }
            Self::Other => "failed".to_owned(),
        }
    }

    /// Whether it is the candidate that fails, and not the machine or the load: a second time decides, whatever went
    /// well in between.
    #[must_use]
    pub const fn is_its_own(&self) -> bool {
        !matches!(self, Self::Other)
    }
}

/// When a candidate was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeftOutWhen {
    /// Before the rounds, when each candidate is tried once.
    TriedOut,
    /// After it failed in this round, counted from 1.
    Round(u32),
}

impl LeftOutWhen {
    /// For a row of a table.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::TriedOut => "when tried out".to_owned(),
            Self::Round(round) => format!("in round {round}"),
        }
    }
}

/// A candidate that was not compared, because it failed.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Its name.
    pub candidate: String,
    /// Why.
    pub cause: FailureCause,
    /// The same as a sentence, with the end of its log.
    pub sentence: String,
    /// When.
    pub when: LeftOutWhen,
    /// Rounds that it ended well before; they count nowhere.
    #[serde(default)]
    pub rounds_done: u32,
}

impl LeftOut {
    /// The cause, shown instead of figures: `crashed (SIGSEGV) in round 3`.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{} {}", self.cause.label(), self.when.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each cause is written and read back, and says what happened in a few words; a cause of a later version
    /// is read as another one.
    #[test]
    fn causes_are_read_back() {
        let last_lines = vec!["free(): invalid pointer".to_owned()];
        let causes = [
            (
                FailureCause::Crashed {
                    signal: Some(11),
                    exit_status: None,
                    last_lines: last_lines.clone(),
                },
                "crashed (SIGSEGV)",
            ),
            (
                FailureCause::Crashed {
                    signal: None,
                    exit_status: Some(3),
                    last_lines: Vec::new(),
                },
                "ended (exit status 3)",
            ),
            (
                FailureCause::Hung {
                    after_requests: 200,
                    silent_ns: 10,
                },
                "hung after 200 answers",
            ),
            (
                FailureCause::KilledForMemory {
                    limit_bytes: Some(64 << 20),
                    is_counted: true,
                },
                "killed for memory (limit 64.0 MiB)",
            ),
            (
                FailureCause::NoAddressSpace {
                    limit_bytes: None,
                    last_lines: Vec::new(),
                },
                "no address space",
            ),
            (
                FailureCause::FailedRequests {
                    failed: 14,
                    requests: 140,
                    statuses: [("500".to_owned(), 12)].into(),
                    timeouts: 2,
                    connects: 0,
                },
                "10 % of requests failed (status 500, timeout)",
            ),
            (FailureCause::WrongAnswers, "wrong answers"),
        ];
        for (cause, label) in causes {
            let json = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<FailureCause>(&json).unwrap(), cause);
            assert_eq!(cause.label(), label);
        }
        let later = r#"{"kind": "moved_to_mars", "distance": 3}"#;
        let later: FailureCause = serde_json::from_str(later).unwrap();
        assert_eq!(later, FailureCause::Other);
        assert!(!later.is_its_own() && FailureCause::NotInUse.is_its_own());
    }

    /// Goal: an entry of `left_out` has the fields that are promised.
    #[test]
    fn an_entry_has_its_fields() {
        let entry = LeftOut {
            candidate: "x".to_owned(),
            cause: FailureCause::NotInUse,
            sentence: "it is not mapped".to_owned(),
            when: LeftOutWhen::Round(3),
            rounds_done: 1,
        };
        let json = serde_json::to_value(&entry).unwrap();
        assert_eq!(json["cause"]["kind"], "not_in_use");
        assert_eq!(json["when"]["round"], 3);
        assert_eq!(serde_json::from_value::<LeftOut>(json).unwrap(), entry);
        let tried = serde_json::to_value(LeftOutWhen::TriedOut).unwrap();
        assert_eq!(tried, "tried_out");
        assert_eq!(entry.label(), "allocator not in use in round 3");
    }
}
