//! Which key a request is about: the distributions that YCSB made common, each a pure function.
//!
//! `workload` asks for the key of request i; the same seed gives the same key on any thread. Zipf's
//! law is drawn by rejection-inversion (Hörmann and Derflinger, ACM TOMACS 6(3), 1996), which is
//! exact for every number of keys and every exponent and needs no sum over all keys; Gray's
//! approximation (SIGMOD 1994), which YCSB uses, is not.

#[cfg(test)]
#[path = "tests/keys.rs"]
mod tests;

use std::fmt;
use std::str::FromStr;

use crate::request_plan::mix;

/// YCSB's exponent.
const ZIPFIAN_EXPONENT: f64 = 0.99;
/// The golden ratio in 64 bits: successive multiples are far apart.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
/// Separates the order in which keys are drawn from the seed of their values.
const READ_ORDER: u64 = 0x6b65_7973;

/// How the keys of requests are spread over all keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyDistribution {
    /// Each key as likely as any other.
    Uniform,
    /// Rank k is asked for in proportion to k to the power of minus `exponent`; ranks are scattered
    /// over the keys, so popular keys are not neighbours.
    Zipfian {
        /// YCSB's is 0.99.
        exponent: f64,
    },
    /// As `Zipfian`, but rank 1 is the newest key, rank 2 the one before it, and so on.
    Latest {
        /// YCSB's is 0.99.
        exponent: f64,
    },
    /// The first keys get most requests; both parts are uniform inside.
    Hotspot {
        /// Share of the keys that are hot.
        keys_share: f64,
        /// Share of the requests that go to them.
        requests_share: f64,
    },
    /// Request i is about key i, from the first key again after the last.
    Sequential,
}

impl FromStr for KeyDistribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut numbers = Vec::new();
        for part in parts {
            let number = part.parse::<f64>().ok().filter(|number| number.is_finite());
            numbers.push(number.ok_or_else(|| format!("`{part}` is not a number"))?);
        }
        let exponent = |numbers: &[f64]| match *numbers {
            [] => Ok(ZIPFIAN_EXPONENT),
            [exponent] if exponent > 0.0 && exponent <= 10.0 => Ok(exponent),
            _ => Err(format!(
                "{name} takes one exponent above 0 and up to 10, as in {name}:0.99"
            )),
        };
        match (name, &numbers[..]) {
            ("uniform", []) => Ok(Self::Uniform),
            ("sequential", []) => Ok(Self::Sequential),
            ("zipfian", numbers) => Ok(Self::Zipfian { exponent: exponent(numbers)? }),
            ("latest", numbers) => Ok(Self::Latest { exponent: exponent(numbers)? }),
            ("hotspot", &[keys_share, requests_share])
                if (0.0..=1.0).contains(&keys_share) && (0.0..=1.0).contains(&requests_share) =>
            {
                Ok(Self::Hotspot { keys_share, requests_share })
            }
            ("hotspot", _) => Err(
                "hotspot takes the share of the keys and the share of the requests that go to them, \
                 as in hotspot:0.2:0.8"
                    .to_owned(),
            ),
            _ => Err("it is uniform, zipfian, latest, hotspot:F:P or sequential".to_owned()),
        }
    }
}

impl fmt::Display for KeyDistribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => formatter.write_str("uniform"),
            Self::Zipfian { exponent } => write!(formatter, "zipfian:{exponent}"),
            Self::Latest { exponent } => write!(formatter, "latest:{exponent}"),
            Self::Hotspot {
                keys_share,
                requests_share,
            } => write!(formatter, "hotspot:{keys_share}:{requests_share}"),
            Self::Sequential => formatter.write_str("sequential"),
        }
    }
}

/// Numbers drawn for one purpose and one request: as many as wanted, each a function of its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draws {
    base: u64,
}

impl Draws {
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self {
            base: seed.wrapping_add(mix(number)),
        }
    }

    /// The draw at `place`, uniform over all 64-bit numbers.
    pub(crate) fn at(self, place: u64) -> u64 {
        mix(self.base.wrapping_add(place.wrapping_mul(STRIDE)))
    }

    /// Uniform in `0..limit`: multiply-shift, no modulo bias worth the name.
    pub(crate) fn below(self, place: u64, limit: u64) -> u64 {
        ((u128::from(self.at(place)) * u128::from(limit)) >> 64) as u64
    }

    /// Uniform in `0.0..1.0`, on the grid of what a double can hold.
    fn unit(self, place: u64) -> f64 {
        (self.at(place) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Draws keys.
#[derive(Clone, Debug)]
pub(crate) struct KeyPicker {
    count: u64,
    seed: u64,
    law: Law,
}

#[derive(Clone, Debug)]
enum Law {
    Uniform,
    Zipfian(Zipf, Scatter),
    Latest(Zipf),
    Hotspot { hot: u64, requests_share: f64 },
    Sequential,
}

impl KeyPicker {
    /// `count`: at least 1.
    pub(crate) fn new(distribution: KeyDistribution, count: u64, seed: u64) -> Self {
        let law = match distribution {
            KeyDistribution::Uniform => Law::Uniform,
            KeyDistribution::Sequential => Law::Sequential,
            KeyDistribution::Zipfian { exponent } => {
                Law::Zipfian(Zipf::new(count, exponent), Scatter::new(count, seed))
            }
            KeyDistribution::Latest { exponent } => Law::Latest(Zipf::new(count, exponent)),
            KeyDistribution::Hotspot {
                keys_share,
                requests_share,
            } => Law::Hotspot {
                hot: (count as f64 * keys_share).round() as u64,
                requests_share,
            },
        };
        Self {
            count,
            seed: mix(seed ^ READ_ORDER),
            law,
        }
    }

    /// Keys there are before the first is inserted.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The key of request `number`; `inserted` keys have been added to the first ones by then.
    pub(crate) fn pick(&self, number: u64, inserted: u64) -> u64 {
        let draws = Draws::new(self.seed, number);
        match &self.law {
            Law::Uniform => draws.below(0, self.count),
            Law::Sequential => number % self.count,
            Law::Zipfian(zipf, scatter) => scatter.place(zipf.rank(draws) - 1),
            Law::Latest(zipf) => self.count + inserted - zipf.rank(draws),
            &Law::Hotspot {
                hot,
                requests_share,
            } => {
                let is_hot = draws.unit(0) < requests_share && hot > 0 || hot == self.count;
                if is_hot {
                    draws.below(1, hot)
                } else {
                    hot + draws.below(1, self.count - hot)
                }
            }
        }
    }
}

/// Ranks 1..=n in proportion to rank^-exponent, by rejection-inversion: the area under a smooth
/// curve above the steps is inverted, and the few draws between curve and step are made again.
#[derive(Clone, Debug)]
struct Zipf {
    count: f64,
    exponent: f64,
    area_first: f64,
    area_last: f64,
    /// Draws this close below their rank are always under the step.
    shortcut: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            count: count as f64,
            exponent,
            area_first: 0.0,
            area_last: 0.0,
            shortcut: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(count as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    fn rank(&self, draws: Draws) -> u64 {
        let mut place = 0;
        loop {
            let area = self.area_last + draws.unit(place) * (self.area_first - self.area_last);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.count);
            if rank - x <= self.shortcut || area >= self.area(rank + 0.5) - self.height(rank) {
                return rank as u64;
            }
            place += 1;
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the curve, up to a constant; continuous in the exponent at 1, where it is ln x.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let bent = (1.0 - self.exponent) * log;
        let slope = if bent.abs() > 1e-8 {
            bent.exp_m1() / bent
        } else {
            1.0 + bent / 2.0
        };
        slope * log
    }

    fn inverse(&self, area: f64) -> f64 {
        let bent = (area * (1.0 - self.exponent)).max(-1.0);
        let slope = if bent.abs() > 1e-8 {
            bent.ln_1p() / bent
        } else {
            1.0 - bent / 2.0
        };
        (slope * area).exp()
    }
}

/// A permutation of `0..count`: mixing steps that can be undone, on the next power of two, repeated
/// until the result is below `count`. No two ranks share a key, as a hash would have it.
#[derive(Clone, Debug)]
struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [u64; 3],
}

impl Scatter {
    fn new(count: u64, seed: u64) -> Self {
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(2);
        Self {
            count,
            mask: u64::MAX >> (u64::BITS - bits),
            shift: bits.div_ceil(2),
            keys: std::array::from_fn(|index| mix(seed ^ mix(index as u64 + 7)) | 1),
        }
    }

    fn place(&self, rank: u64) -> u64 {
        let mut value = rank;
        loop {
            for key in self.keys {
                value = value.wrapping_add(key >> 32) & self.mask;
                value = value.wrapping_mul(key) & self.mask;
                value ^= value >> self.shift;
            }
            if value < self.count {
                return value;
            }
        }
    }
}

// Which class request i belongs to, and how many of its class came before it.

/// A block is the smallest multiple of the weights' sum that is at least this long.
const BLOCK_UNITS_MIN: u64 = 1_000;
/// Longest block, and so the largest sum of weights.
pub(crate) const WEIGHTS_SUM_MAX: u64 = 1 << 20;

/// The choice for one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Choice {
    pub(crate) class: u16,
    /// Requests of its class before it.
    pub(crate) ordinal: u64,
    /// Decides the key: the two halves of a pair share it.
    pub(crate) key_number: u64,
    /// Whole blocks before it.
    pub(crate) block: u64,
}

/// One kind of place in a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Share {
    pub(crate) weight: u64,
    pub(crate) class: u16,
    /// The class of the second request about the same key, of those that come in pairs.
    pub(crate) second: Option<u16>,
}

/// Deals classes to numbers.
///
/// With pairs among the shares two successive numbers are one unit: both halves of a pair, or two
/// requests of one class. A pair's weight then counts double, since its weight is meant in pairs.
#[derive(Clone, Debug)]
pub(crate) struct Dealer {
    seed: u64,
    unit_requests: u64,
    shares: Box<[Share]>,
    /// Where each share ends in a block that is in order, in units.
    ends: Box<[u64]>,
    /// Two orders of a block's places: one after the other, each turned by the block's own amount.
    orders: [Box<[u32]>; 2],
}

impl Dealer {
    /// At least one share, none of weight 0, the sum within [`WEIGHTS_SUM_MAX`].
    pub(crate) fn new(shares: &[Share], seed: u64) -> Self {
        let has_pairs = shares.iter().any(|share| share.second.is_some());
        let units = |share: &Share| share.weight * if share.second.is_some() { 2 } else { 1 };
        let divisor = shares.iter().map(units).fold(0, greatest_divisor);
        let sum = shares.iter().map(units).sum::<u64>() / divisor;
        let repeats = BLOCK_UNITS_MIN.div_ceil(sum);
        let mut end = 0;
        let ends = shares.iter().map(|share| {
            end += units(share) / divisor * repeats;
            end
        });
        let ends: Box<[u64]> = ends.collect();
        let block = end as u32;
        Self {
            seed,
            unit_requests: if has_pairs { 2 } else { 1 },
            shares: shares.into(),
            ends,
            orders: [shuffled(block, mix(seed)), shuffled(block, mix(!seed))],
        }
    }

    /// Requests of a block.
    pub(crate) fn block_requests(&self) -> u64 {
        self.orders[0].len() as u64 * self.unit_requests
    }

    /// Requests of this class in each block.
    pub(crate) fn per_block(&self, class: u16) -> u64 {
        let mut start = 0;
        let mut sum = 0;
        for (share, &end) in self.shares.iter().zip(&self.ends) {
            let requests_per_unit = match share.second {
                Some(second) => u64::from(share.class == class) + u64::from(second == class),
                None if share.class == class => self.unit_requests,
                None => 0,
            };
            sum += (end - start) * requests_per_unit;
            start = end;
        }
        sum
    }

    pub(crate) fn deal(&self, number: u64) -> Choice {
        let (unit, half) = (number / self.unit_requests, number % self.unit_requests);
        let block_units = self.orders[0].len() as u64;
        let (block, place) = (unit / block_units, unit % block_units);
        let turns = mix(self.seed ^ mix(block));
        let turned = |place: u64, turn: u64| ((place + turn % block_units) % block_units) as usize;
        let place = self.orders[0][turned(place, turns & 0xffff_ffff)];
        let place = u64::from(self.orders[1][turned(u64::from(place), turns >> 32)]);
        let index = self.ends.partition_point(|&end| end <= place);
        let share = self.shares[index];
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        let per_block = self.ends[index] - start;
        let units_before = block * per_block + (place - start);
        match share.second {
            Some(second) => Choice {
                class: if half == 0 { share.class } else { second },
                ordinal: units_before,
                key_number: unit * 2,
                block,
            },
            None => Choice {
                class: share.class,
                ordinal: units_before * self.unit_requests + half,
                key_number: number,
                block,
            },
        }
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        greatest_divisor(other, one % other)
    }
}

/// Fisher and Yates.
fn shuffled(count: u32, seed: u64) -> Box<[u32]> {
    let mut order: Box<[u32]> = (0..count).collect();
    for last in (1..order.len()).rev() {
        let draw = mix(seed ^ mix(last as u64));
        order.swap(
            last,
            ((u128::from(draw) * (last as u128 + 1)) >> 64) as usize,
        );
    }
    order
}

#[cfg(test)]
#[path = "tests/mix.rs"]
mod mix_tests;
