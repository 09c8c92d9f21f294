//! A well-behaved client that reads, and notes how it was answered.

use super::client::Client;
use super::scene::Stop;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Failures that are quoted; all are counted.
const QUOTED_MAX: usize = 3;

/// What it asks for, in turn, with the length of the whole answer.
pub(super) type Targets<'a> = &'a [(&'a str, usize)];

/// What it was answered.
#[derive(Debug, Default)]
pub(super) struct Read {
    statuses: BTreeMap<u16, u64>,
    failures: u64,
    wrong: u64,
    quoted: Vec<String>,
    longest: Duration,
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
        while !stop.is_over() || turn < targets.len() {
            let (target, length) = targets[turn % targets.len()];
            if reconnects {
                client.close();
            }
            let begun = Instant::now();
            let is_good = read.once(&mut client, target, length);
            read.longest = read.longest.max(begun.elapsed());
            if !is_good {
                std::thread::sleep(Duration::from_millis(20));
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
        let is_good = self.statuses.keys().all(|status| *status == 200);
        match is_good && self.failures == 0 && self.wrong == 0 && self.answered() > 0 {
            true => Ok(()),
            false => Err(format!(
                "the good client was to see 200 alone: {}",
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
