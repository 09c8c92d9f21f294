//! Which upstream a request goes to: round robin, least requests, the better of two, or a hash.
//!
//! On the path: `upstreams` asks for each try of each request. Numbers in, a place out; no clock, no
//! sockets.
//!
//! The hash is rendezvous hashing (highest random weight): every upstream's score comes from the key
//! and the upstream's address alone, so nothing has to be rebuilt when one is ejected or comes with a
//! reload, exactly its own share of the keys moves, and weights are exact. It looks at each upstream
//! once, which for the few that a proxy has costs less than the search through a ring's points.
//!
//! Absent on purpose: what makes an upstream usable (`health`, limits), and anything shared between
//! shards: each balances what it sees.

use super::keyed_hash::{Random, mix};
use std::fmt;
use std::str::FromStr;

/// How upstreams are chosen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Balance {
    /// In turns, spread evenly by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests under way for its weight.
    LeastRequests,
    /// The less busy of two that are drawn by weight.
    TwoChoices,
    /// Always the same one for the same key.
    Hash(HashKey),
}

/// What of a request is hashed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HashKey {
    /// The path, without the query.
    Path,
    /// The value of this field.
    Header(String),
    /// The value of this cookie.
    Cookie(String),
}

/// No such way to balance.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{text:?} is no way to balance: write round-robin, least-requests, two-choices, hash:path, \
     hash:header:NAME or hash:cookie:NAME"
)]
pub struct BalanceError {
    text: String,
}

impl FromStr for Balance {
    type Err = BalanceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_token = |name: &str| !name.is_empty() && name.bytes().all(crate::scan::is_token);
        let balance = match text {
            "round-robin" => Self::RoundRobin,
            "least-requests" => Self::LeastRequests,
            "two-choices" => Self::TwoChoices,
            "hash:path" => Self::Hash(HashKey::Path),
            _ => match (
                text.strip_prefix("hash:header:"),
                text.strip_prefix("hash:cookie:"),
            ) {
                (Some(name), _) if is_token(name) => Self::Hash(HashKey::Header(name.to_owned())),
                (_, Some(name)) if is_token(name) => Self::Hash(HashKey::Cookie(name.to_owned())),
                _ => {
                    return Err(BalanceError {
                        text: text.to_owned(),
                    });
                }
            },
        };
        Ok(balance)
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundRobin => formatter.write_str("round-robin"),
            Self::LeastRequests => formatter.write_str("least-requests"),
            Self::TwoChoices => formatter.write_str("two-choices"),
            Self::Hash(HashKey::Path) => formatter.write_str("hash:path"),
            Self::Hash(HashKey::Header(name)) => write!(formatter, "hash:header:{name}"),
            Self::Hash(HashKey::Cookie(name)) => write!(formatter, "hash:cookie:{name}"),
        }
    }
}

/// One upstream as the balancer sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Candidate {
    /// At least 1.
    pub(super) weight: u32,
    /// The same for the same address, whatever else changes.
    pub(super) identity: u64,
    /// Requests under way.
    pub(super) outstanding: u32,
    /// May be given a request now.
    pub(super) is_usable: bool,
}

/// What a balancer remembers from one choice to the next.
#[derive(Debug)]
pub(super) struct Balancer {
    balance: Balance,
    /// By upstream: how much it is behind its share, of round robin.
    credits: Vec<i64>,
    /// Where the search begins, so that equals take turns.
    turn: usize,
    random: Random,
}

impl Balancer {
    pub(super) fn new(balance: Balance, seed: u64) -> Self {
        Self {
            balance,
            credits: Vec::new(),
            turn: 0,
            random: Random::new(seed),
        }
    }

    pub(super) fn balance(&self) -> &Balance {
        &self.balance
    }

    /// The upstreams are others now, or another number of them.
    pub(super) fn reset(&mut self, balance: Balance, count: usize) {
        self.balance = balance;
        self.credits.clear();
        self.credits.resize(count, 0);
        self.turn = 0;
    }

    /// The upstream to try next; `None` if none is usable. `key_hash` is for `Balance::Hash`; without
    /// one, because the request has no such field, the least busy one is taken.
    pub(super) fn choose(
        &mut self,
        candidates: &[Candidate],
        key_hash: Option<u64>,
    ) -> Option<usize> {
        match (&self.balance, key_hash) {
            (Balance::RoundRobin, _) => self.in_turn(candidates),
            (Balance::TwoChoices, _) => self.better_of_two(candidates),
            (Balance::Hash(_), Some(key_hash)) => highest_score(candidates, key_hash),
            (Balance::LeastRequests, _) | (Balance::Hash(_), None) => self.least_busy(candidates),
        }
    }

    /// Smooth weighted round robin, as nginx has it: each gains its weight, the one furthest ahead is
    /// taken and pays the sum of all. A heavy one is spread between the others, not sent bursts.
    fn in_turn(&mut self, candidates: &[Candidate]) -> Option<usize> {
        if self.credits.len() != candidates.len() {
            self.credits.clear();
            self.credits.resize(candidates.len(), 0);
        }
        let mut total = 0;
        let mut best: Option<usize> = None;
        for (index, candidate) in candidates.iter().enumerate() {
            if !candidate.is_usable {
                continue;
            }
            let weight = i64::from(candidate.weight);
            total += weight;
            self.credits[index] += weight;
            if best.is_none_or(|best| self.credits[index] > self.credits[best]) {
                best = Some(index);
            }
        }
        let best = best?;
        self.credits[best] -= total;
        Some(best)
    }

    fn least_busy(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let count = candidates.len();
        self.turn = self.turn.wrapping_add(1);
        let start = self.turn.checked_rem(count)?;
        let mut best: Option<usize> = None;
        for index in (start..count).chain(0..start) {
            let is_better =
                best.is_none_or(|best| is_less_busy(&candidates[index], &candidates[best]));
            if candidates[index].is_usable && is_better {
                best = Some(index);
            }
        }
        best
    }

    fn better_of_two(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let first = self.drawn(candidates, None)?;
        let Some(second) = self.drawn(candidates, Some(first)) else {
            return Some(first);
        };
        match is_less_busy(&candidates[second], &candidates[first]) {
            true => Some(second),
            false => Some(first),
        }
    }

    /// A usable one other than `not`, each as likely as its weight says.
    fn drawn(&mut self, candidates: &[Candidate], not: Option<usize>) -> Option<usize> {
        let drawable = || {
            let all = candidates.iter().enumerate();
            all.filter(move |&(index, it)| it.is_usable && Some(index) != not)
        };
        let total: u64 = drawable().map(|(_, it)| u64::from(it.weight)).sum();
        if total == 0 {
            return None;
        }
        let mut rest = self.random.below(total);
        for (index, candidate) in drawable() {
            match rest.checked_sub(u64::from(candidate.weight)) {
                Some(less) => rest = less,
                None => return Some(index),
            }
        }
        None
    }
}

/// With one request more, whose load would be lower for its weight?
fn is_less_busy(one: &Candidate, other: &Candidate) -> bool {
    let load = |of: &Candidate, by: &Candidate| {
        (u64::from(of.outstanding) + 1).saturating_mul(u64::from(by.weight))
    };
    load(one, other) < load(other, one)
}

/// Rendezvous: the highest of `weight / -ln(uniform)`, where the uniform number comes from key and
/// upstream. Each upstream wins for its weight's share of all keys.
fn highest_score(candidates: &[Candidate], key_hash: u64) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (index, candidate) in candidates.iter().enumerate() {
        if !candidate.is_usable {
            continue;
        }
        let bits = mix(key_hash ^ mix(candidate.identity));
        // 53 bits, and a half so that neither end is reached.
        let uniform = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let score = f64::from(candidate.weight) / -uniform.ln();
        if best.is_none_or(|(_, highest)| score > highest) {
            best = Some((index, score));
        }
    }
    best.map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidates(weights: &[u32]) -> Vec<Candidate> {
        let make = |(index, &weight): (usize, &u32)| Candidate {
            weight,
            identity: mix(index as u64 + 1),
            outstanding: 0,
            is_usable: true,
        };
        weights.iter().enumerate().map(make).collect()
    }

    fn balancer(text: &str) -> Balancer {
        Balancer::new(text.parse().unwrap(), 7)
    }

    /// Goal: what is written is read, and nothing else; the sentence names every way there is.
    #[test]
    fn names_are_read_and_written() {
        for text in [
            "round-robin",
            "least-requests",
            "two-choices",
            "hash:path",
            "hash:header:X-User",
            "hash:cookie:session",
        ] {
            assert_eq!(text.parse::<Balance>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "hash",
            "hash:",
            "hash:header:",
            "hash:cookie:a b",
            "Round-Robin",
        ] {
            let error = text.parse::<Balance>().unwrap_err().to_string();
            assert!(
                error.contains("two-choices") && error.contains("hash:cookie:NAME"),
                "{error}"
            );
        }
    }

    /// Goal: nginx's own example (weights 5, 1, 1): shares are exact, and the heavy one is spread.
    #[test]
    fn turns_are_smooth() {
        let (mut balancer, candidates) = (balancer("round-robin"), candidates(&[5, 1, 1]));
        let chosen: Vec<_> = (0..14)
            .map(|_| balancer.choose(&candidates, None).unwrap())
            .collect();
        assert_eq!(chosen, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
    }

    /// Goal: the least busy for its weight is taken, and equals take turns.
    #[test]
    fn the_least_busy_is_taken() {
        let mut balancer = balancer("least-requests");
        let mut list = candidates(&[1, 1, 4]);
        for (index, outstanding) in [3, 2, 8].into_iter().enumerate() {
            list[index].outstanding = outstanding;
        }
        assert_eq!(
            balancer.choose(&list, None),
            Some(2),
            "9 of 4 is less than 3 of 1"
        );
        list[2].is_usable = false;
        assert_eq!(balancer.choose(&list, None), Some(1));
        let equals = candidates(&[1, 1, 1]);
        let mut seen = [0; 3];
        for _ in 0..9 {
            seen[balancer.choose(&equals, None).unwrap()] += 1;
        }
        assert_eq!(seen, [3, 3, 3]);
    }

    /// Goal: the busier of any two is never taken, so the busiest of all is not either.
    #[test]
    fn the_busiest_loses_every_draw() {
        let mut balancer = balancer("two-choices");
        let mut list = candidates(&[1, 1, 1, 1]);
        list[2].outstanding = 5;
        for _ in 0..1000 {
            assert_ne!(balancer.choose(&list, None), Some(2));
        }
        list.iter_mut()
            .for_each(|it| it.is_usable = it.outstanding > 0);
        assert_eq!(
            balancer.choose(&list, None),
            Some(2),
            "unless it is the only one"
        );
    }

    /// Goal: keys fall to upstreams by weight, within a few standard deviations.
    #[test]
    fn hashed_shares_follow_weights() {
        let list = candidates(&[1, 2, 5]);
        let mut counts = [0_u32; 3];
        for key in 0..80_000_u64 {
            counts[highest_score(&list, mix(key)).unwrap()] += 1;
        }
        for (count, expected) in counts.into_iter().zip([10_000, 20_000, 50_000]) {
            assert!(count.abs_diff(expected) < 600, "{counts:?}");
        }
    }

    fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let any = (1..20_u32, any::<u64>(), 0..50_u32, any::<bool>());
        let make = |(weight, identity, outstanding, is_usable)| Candidate {
            weight,
            identity,
            outstanding,
            is_usable,
        };
        proptest::collection::vec(any.prop_map(make), 0..12)
    }

    proptest! {
        /// Goal: whatever the way, a usable one is chosen if there is one, and never another.
        #[test]
        fn only_usable_ones_are_chosen(list in any_candidates(), key in any::<Option<u64>>()) {
            for text in ["round-robin", "least-requests", "two-choices", "hash:path"] {
                let mut balancer = balancer(text);
                for _ in 0..5 {
                    match balancer.choose(&list, key) {
                        Some(index) => prop_assert!(list[index].is_usable),
                        None => prop_assert!(list.iter().all(|it| !it.is_usable)),
                    }
                }
            }
        }

        /// Goal: an upstream that goes takes only its own keys along, and gets the same ones back.
        #[test]
        fn a_loss_moves_only_its_own_keys(list in any_candidates(), key in any::<u64>(), gone in 0..12_usize) {
            let before = highest_score(&list, key);
            let mut fewer = list.clone();
            if let Some(it) = fewer.get_mut(gone) {
                it.is_usable = false;
            }
            if before != Some(gone) {
                prop_assert_eq!(highest_score(&fewer, key), before);
            }
        }

        /// Goal: over a full cycle, round robin gives each exactly its weight.
        #[test]
        fn a_cycle_of_turns_is_exact(weights in proptest::collection::vec(1..9_u32, 1..6)) {
            let (mut balancer, list) = (balancer("round-robin"), candidates(&weights));
            let mut counts = vec![0_u32; weights.len()];
            for _ in 0..2 * weights.iter().sum::<u32>() {
                counts[balancer.choose(&list, None).unwrap()] += 1;
            }
            let expected: Vec<u32> = weights.iter().map(|weight| 2 * weight).collect();
            prop_assert_eq!(counts, expected);
        }
    }
}
