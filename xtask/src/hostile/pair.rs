//! A turn alone and one beside an attack, and which of them a restless machine leaves to compare.
//!
//! A host that is restless for minutes is quiet for seconds in between. So pairs are taken until as
//! many as were planned met a quiet machine, up to so many in all. Whether a pair did is asked of what
//! no server has a hand in: of its turn alone, how many requests stalls disturbed; of that beside the
//! attack, what the hypervisor says it took. A pair is never chosen by how long answers took.
//!
//! Where there are too few of them all pairs are printed and recorded, and nothing is judged.

use super::stalls::{Stalls, Stood};
use super::subject::Holdings;
use super::turn::{self, Turn};
use crate::bench::figure::Figure;
use serde_json::Value;

/// Of the requests of a turn alone, disturbed by stalls: with more of them the machine itself decides
/// what a p99 is.
const DISTURBED_SHARE_MAX: f64 = 0.015;
/// Of the time of both CPUs, taken by the hypervisor beside an attack.
const STEAL_SHARE_MAX: f64 = 0.01;

pub(super) struct Pair {
    pub(super) alone: Turn,
    pub(super) beside: Turn,
    pub(super) stalls: Stalls,
    /// Of the server's CPU and the generator's; 0 where the system does not tell.
    pub(super) steal_share_beside: f64,
    pub(super) stood_beside: Stood,
}

impl Pair {
    /// Whether the machine was there for it.
    fn is_quiet(&self) -> bool {
        let disturbed = self.alone.disturbed_share(&self.stalls.of_both());
        disturbed.is_none_or(|share| share <= DISTURBED_SHARE_MAX)
            && self.steal_share_beside <= STEAL_SHARE_MAX
    }
}

/// Of one attack with one driver.
pub(super) struct Pairs {
    planned: usize,
    most: usize,
    quiet: Vec<Pair>,
    restless: Vec<Pair>,
}

impl Pairs {
    /// `planned` on a quiet machine, or no more than `most` in all.
    pub(super) fn new(planned: usize, most: usize) -> Self {
        Self {
            planned,
            most,
            quiet: Vec::new(),
            restless: Vec::new(),
        }
    }

    pub(super) fn wants_more(&self) -> bool {
        let taken = self.quiet.len() + self.restless.len();
        self.quiet.len() < self.planned && taken < self.most
    }

    pub(super) fn push(&mut self, pair: Pair) {
        match pair.is_quiet() {
            true => self.quiet.push(pair),
            false => self.restless.push(pair),
        }
    }

    pub(super) fn summary(
        self,
        [attack, driver]: [&str; 2],
        holdings: [Holdings; 2],
    ) -> (Vec<Figure>, Value) {
        let is_judged = self.quiet.len() >= self.planned;
        let restless = self.restless.len();
        let compared = match is_judged {
            true => self.quiet,
            false => self.quiet.into_iter().chain(self.restless).collect(),
        };
        let (mut stalls, mut stood) = (Stalls::default(), Stood::default());
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for pair in compared {
            stalls.extend(pair.stalls);
            stood += pair.stood_beside;
            alone.push(pair.alone);
            beside.push(pair.beside);
        }
        let (figures, mut detail) = turn::summary(
            [attack, driver],
            [&alone, &beside],
            (&stalls, stood),
            holdings,
            is_judged,
        );
        detail["pairs_on_a_restless_machine"] = restless.into();
        (figures, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::super::good::Experience;
    use super::*;

    fn pair(steal_share_beside: f64) -> Pair {
        let turn = || Turn {
            standing: Experience {
                requests: 1,
                errors: 0,
                kernel_p50_ns: 1.0,
                kernel_p99_ns: 1.0,
                exchanges: Vec::new(),
            },
            newcomers: None,
            crowd: None,
        };
        Pair {
            alone: turn(),
            beside: turn(),
            stalls: Stalls::default(),
            steal_share_beside,
            stood_beside: Stood::default(),
        }
    }

    fn judged(pairs: Pairs) -> (bool, Value) {
        let holdings = || Holdings {
            resident_bytes: 1,
            descriptors: 1,
        };
        let (_, detail) = pairs.summary(["an attack", "a driver"], [holdings(), holdings()]);
        (detail["is_judged"] == true, detail["pairs"].clone())
    }

    /// Goal: a pair from which the hypervisor took time is taken again, and what is judged is without it.
    #[test]
    fn a_restless_pair_is_taken_again() {
        let mut pairs = Pairs::new(2, 4);
        for steal_share in [0.0, 0.3, 0.005] {
            assert!(pairs.wants_more());
            pairs.push(pair(steal_share));
        }
        assert!(!pairs.wants_more());
        assert_eq!(judged(pairs), (true, 2.into()));
    }

    /// Goal: where the machine is never quiet it ends, everything is shown, and nothing is judged.
    #[test]
    fn patience_ends_and_all_is_shown() {
        let mut pairs = Pairs::new(2, 4);
        for steal_share in [0.3, 0.0, 0.3, 0.3] {
            assert!(pairs.wants_more());
            pairs.push(pair(steal_share));
        }
        assert!(!pairs.wants_more());
        assert_eq!(judged(pairs), (false, 4.into()));
    }
}
