//! Times without a target, in a run that goes on through them: since when, how long, and what failed meanwhile.
//!
//! A server that closes each connection after its answer leaves moments without a connection, too. So an outage is a
//! time in which none was open and an attempt to open one failed. All here is for connections that are lost or opened;
//! runs that end with their target do not come here.
use millpond_measure::record::LoadOutage;
use std::sync::{Mutex, PoisonError};

/// Outages kept one by one; further ones are added to the last.
const OUTAGES_MAX: usize = 1_000;

/// What all threads see of outages.
#[derive(Debug, Default)]
pub(crate) struct Outages(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// Connections that are open.
    open: usize,
    /// Connections were lost, or attempts failed, and none was opened since.
    losing: Option<Losing>,
    ended: Vec<Ended>,
    /// Attempts that failed while others had their connections.
    other_attempts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Losing {
    since_ns: u64,
    /// Requests that failed with connections.
    failed: u64,
    attempts: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    start_ns: u64,
    end_ns: u64,
    failed: u64,
    attempts: u64,
}

impl Outages {
    fn change<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection came up.
    pub(crate) fn connected(&self, now_ns: u64) {
        self.change(|log| {
            if let Some(losing) = log.losing.take() {
                log.end(losing, now_ns);
            }
            log.open += 1;
        });
    }

    /// A connection is gone, and with it `failed` requests.
    pub(crate) fn lost(&self, now_ns: u64, failed: u64) {
        self.change(|log| {
            log.open = log.open.saturating_sub(1);
            log.losing_since(now_ns).failed += failed;
        });
    }

    /// An attempt to open a connection failed. Whether that is a part of an outage is known when it ends.
    pub(crate) fn attempt_failed(&self, now_ns: u64) {
        self.change(|log| log.losing_since(now_ns).attempts += 1);
    }

    /// Attempts that failed outside of outages: those are failures.
    pub(crate) fn other_attempts(&self) -> u64 {
        self.change(|log| {
            let last = log.losing.filter(|_| log.open > 0);
            log.other_attempts + last.map_or(0, |losing| losing.attempts)
        })
    }

    /// A request that was due at `intended_ns` waited for a connection until it was of no use any more.
    pub(crate) fn expired(&self, intended_ns: u64) {
        self.change(|log| {
            let mut newest_first = log.ended.iter_mut().rev();
            if let Some(outage) = newest_first.find(|one| one.start_ns <= intended_ns) {
                outage.failed += 1;
            }
        });
    }

    /// All of them, from `start_ns` on. One that lasts until `end_ns` has the requests too that never left.
    pub(crate) fn list(&self, start_ns: u64, end_ns: u64, unsent: u64) -> Vec<LoadOutage> {
        self.change(|log| {
            let shown = |one: &Ended, is_over| LoadOutage {
                start_ns: one.start_ns.saturating_sub(start_ns),
                duration_ns: one.end_ns.saturating_sub(one.start_ns.max(start_ns)),
                failed: one.failed,
                attempts: one.attempts,
                is_over,
            };
            let mut outages: Vec<LoadOutage> =
                log.ended.iter().map(|one| shown(one, true)).collect();
            if let Some(losing) = log.losing
                && log.open == 0
                && losing.attempts > 0
                && losing.since_ns < end_ns
            {
                let last = Ended {
                    start_ns: losing.since_ns,
                    end_ns,
                    failed: losing.failed + unsent,
                    attempts: losing.attempts,
                };
                outages.push(shown(&last, false));
            }
            outages
        })
    }
}

impl Log {
    fn losing_since(&mut self, now_ns: u64) -> &mut Losing {
        self.losing.get_or_insert(Losing {
            since_ns: now_ns,
            failed: 0,
            attempts: 0,
        })
    }

    /// A connection stands again.
    fn end(&mut self, losing: Losing, now_ns: u64) {
        if self.open > 0 {
            self.other_attempts += losing.attempts;
        } else if losing.attempts > 0 {
            self.push(Ended {
                start_ns: losing.since_ns,
                end_ns: now_ns,
                failed: losing.failed,
                attempts: losing.attempts,
            });
        }
    }

    fn push(&mut self, outage: Ended) {
        let is_full = self.ended.len() >= OUTAGES_MAX;
        match self.ended.last_mut() {
            Some(last) if is_full => {
                last.end_ns = outage.end_ns;
                last.failed += outage.failed;
                last.attempts += outage.attempts;
            }
            _ => self.ended.push(outage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: two connections that go with their server are one outage from the first loss to the next connection, with
    /// all that failed; connections that are replaced at once are none.
    #[test]
    fn an_outage_is_a_time_without_a_connection_and_with_failed_attempts() {
        let outages = Outages::default();
        outages.connected(1);
        outages.connected(2);
        outages.lost(10, 1);
        outages.connected(11);
        outages.lost(20, 3);
        outages.lost(21, 2);
        outages.connected(22);
        assert!(outages.list(0, 30, 0).is_empty());
        outages.lost(40, 5);
        outages.attempt_failed(45);
        outages.attempt_failed(50);
        outages.connected(60);
        outages.connected(61);
        outages.expired(55);
        outages.expired(5);
        // Others are open.
        outages.attempt_failed(70);
        assert_eq!(outages.other_attempts(), 1);
        outages.connected(71);
        assert_eq!(outages.other_attempts(), 1);
        let ended = LoadOutage {
            start_ns: 30,
            duration_ns: 20,
            failed: 6,
            attempts: 2,
            is_over: true,
        };
        assert_eq!(outages.list(10, 100, 9), [ended]);
        for now_ns in 80..83 {
            outages.lost(now_ns, 0);
        }
        outages.attempt_failed(83);
        assert_eq!(outages.other_attempts(), 1);
        let lasting = LoadOutage {
            start_ns: 70,
            duration_ns: 20,
            failed: 9,
            attempts: 1,
            is_over: false,
        };
        assert_eq!(outages.list(10, 100, 9), [ended, lasting]);
    }

    /// Goal: more outages than are kept are added to the last.
    #[test]
    fn the_list_is_bounded() {
        let outages = Outages::default();
        outages.connected(0);
        for round in 1..=1_500 {
            outages.lost(round * 10, 1);
            outages.attempt_failed(round * 10 + 1);
            outages.connected(round * 10 + 5);
        }
        let list = outages.list(0, 20_000, 0);
        assert_eq!(list.len(), OUTAGES_MAX);
        assert_eq!(list.iter().map(|one| one.failed).sum::<u64>(), 1_500);
        assert_eq!(list[999].start_ns + list[999].duration_ns, 15_005);
    }
}
