//! A well-behaved client that reads, and notes how it was answered.

use super::client::Client;
use super::scene::Stop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Failures that are quoted; all are counted.
const QUOTED_MAX: usize = 3;

/// Behind this it gives up.
const REFUSED_MAX: Duration = Duration::from_secs(30);

/// What it asks for, in turn, with the length of the whole answer.
pub(super) type Targets<'a> = &'a [(&'a str, usize)];

/// What it was answered.
#[derive(Debug, Default)]
pub(super) struct Read {
    statuses: BTreeMap<u16, u64>,
    failures: u64,
    wrong: u64,
    without_retry_after: u64,
    quoted: Vec<String>,
    longest: Duration,
    /// The longest that one target was refused again and again.
    longest_refused: Duration,
}

impl Read {
    /// One request after the other until the attack is over, at least one of each.
    pub(super) fn until(
        stop: &Stop,
        address: SocketAddr,
        targets: Targets<'_>,
        reconnects: bool,
    ) -> Self {
        let (mut read, mut client, mut turn) = (Self::default(), Client::new(address), 0);
        let mut refused_since = vec![None; targets.len()];
        // A target that is refused is asked for until it is answered.
        while !stop.is_over() || turn < targets.len() || refused_since.iter().any(Option::is_some) {
            let place = turn % targets.len();
            let (target, length) = targets[place];
            if reconnects {
                client.close();
            }
            let begun = Instant::now();
            let is_good = read.once(&mut client, target, length);
            read.longest = read.longest.max(begun.elapsed());
            match is_good {
                true => refused_since[place] = None,
                false => {
                    let since = refused_since[place].get_or_insert(begun).elapsed();
                    read.longest_refused = read.longest_refused.max(since);
                    if since > REFUSED_MAX {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            turn += 1;
        }
        read
    }

    fn once(&mut self, client: &mut Client, target: &str, length: usize) -> bool {
        match client.get(target) {
            Ok(answer) => {
                *self.statuses.entry(answer.status).or_default() += 1;
                let is_good = answer.status == 200;
                self.without_retry_after +=
                    u64::from(answer.status == 503 && !answer.has_retry_after);
                self.wrong += u64::from(is_good && answer.body.len() != length);
                is_good
            }
            Err(sentence) => {
                self.failures += 1;
                if self.quoted.len() < QUOTED_MAX {
                    self.quoted.push(sentence);
                }
                false
            }
        }
    }

    pub(super) fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Every request was answered 200, with the whole body.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_refusals(Duration::ZERO)
    }

    /// The same, with 503 and Retry-After allowed as long as no target was refused for longer than this.
    pub(super) fn check_refusals(&self, refused_max: Duration) -> Result<(), String> {
        let is_allowed = |status: &u16| *status == 200 || *status == 503 && !refused_max.is_zero();
        let are_allowed = self.statuses.keys().all(is_allowed);
        let wrong = self.failures + self.wrong + self.without_retry_after;
        let is_served = self.longest_refused <= refused_max && self.answered() > 0;
        match are_allowed && wrong == 0 && is_served {
            true => Ok(()),
            false => Err(format!(
                "the good client was to see 200, and 503 for {refused_max:?} at most: {}",
                self.summary()
            )),
        }
    }

    pub(super) fn summary(&self) -> Value {
        let statuses: BTreeMap<String, u64> = self
            .statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        let mut summary =
            json!({ "statuses": statuses, "longest_ns": self.longest.as_nanos() as u64 });
        if !self.longest_refused.is_zero() {
            summary["longest_refused_ns"] = json!(self.longest_refused.as_nanos() as u64);
        }
        if self.without_retry_after > 0 {
            summary["without_retry_after"] = json!(self.without_retry_after);
        }
        if self.failures > 0 {
            summary["without_answer"] = json!(self.failures);
            summary["why"] = json!(self.quoted);
        }
        if self.wrong > 0 {
            summary["of_wrong_length"] = json!(self.wrong);
        }
        summary
    }
}
