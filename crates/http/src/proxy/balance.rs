//! Which upstream a request goes to: round robin, least requests, the better of two, or a hash.
//!
//! `upstreams` calls it for each try of each request. Input: numbers; output: an index; no clock, no sockets.
//!
//! The hash is rendezvous hashing (highest random weight): every upstream's score depends only on the key and the
//! upstream's address. Nothing has to be rebuilt when one is ejected or added by a reload, exactly its own share of the
//! keys moves, and weights are exact. It scores each upstream once, which for the few that a proxy has costs less than
//! the search through a ring's points.

use std::fmt;
use std::str::FromStr;

use crate::method::Method;
use crate::request::Request;

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

/// The part of a request that is hashed.
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

/// State of a balancer between two choices.
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

    /// A usable one other than `not`, each with a probability by its weight.
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

/// With one more request, which load is lower for its weight?
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

// Two small pieces of arithmetic for balancing: a hash of bytes, and unpredictable numbers.

/// Spreads every bit over all others: the finisher of splitmix64.
#[inline]
pub(super) const fn mix(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// The same number for the same bytes, on every shard and after every restart: FNV-1a, mixed.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// splitmix64.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// From 0 to `limit - 1`; `limit` is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        // The product's upper half: off by less than one in 2^32 for any limit that occurs.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }
}

// Properties of a request that decide its upstream: the key that is hashed, and the tries left.

/// The hash of the key, if upstreams are chosen by one and the request has it.
pub(super) fn key_hash(balance: &Balance, request: &Request<'_>) -> Option<u64> {
    let Balance::Hash(key) = balance else {
        return None;
    };
    let value = match key {
        HashKey::Path => Some(request.path()),
        HashKey::Header(name) => request.header(name),
        HashKey::Cookie(name) => cookie(request, name.as_bytes()),
    };
    value.map(hash)
}

/// Value of the first cookie with this name, which has a case (RFC 6265 5.3).
fn cookie<'h>(request: &Request<'h>, name: &[u8]) -> Option<&'h [u8]> {
    let is_cookies = |field: &(&[u8], &[u8])| field.0.eq_ignore_ascii_case(b"cookie");
    for (_, cookies) in request.headers().filter(is_cookies) {
        for pair in cookies.split(|&byte| byte == b';').map(<[u8]>::trim_ascii) {
            let value = pair
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix(b"="));
            if value.is_some() {
                return value;
            }
        }
    }
    None
}

/// `Max-Forwards`, of the methods that have it (RFC 9110 7.6.2). One that is no number is passed on.
pub(super) fn forwards_left(request: &Request<'_>) -> Option<u32> {
    if !matches!(request.method, Method::Options | Method::Trace) {
        return None;
    }
    let text = std::str::from_utf8(request.header("max-forwards")?).ok()?;
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // A larger one than fits is as good as the largest.
    is_number.then(|| text.parse().unwrap_or(u32::MAX))
}

#[cfg(test)]
#[path = "tests/balance.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/keyed_hash.rs"]
mod keyed_hash_tests;

#[cfg(test)]
#[path = "tests/key.rs"]
mod key_tests;
