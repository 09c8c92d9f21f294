//! Which sizes a real program asks for.
//!
//! Recorded from redis-server 7.0.15 under redis-benchmark, with stock tools:
//!
//! ```text
//! valgrind --tool=memcheck --undef-value-errors=no --leak-check=no --trace-malloc=yes
//!     --soname-synonyms=somalloc='libjemalloc*' redis-server --port 7391 --save ''
//! redis-benchmark -p 7391 -c 20 -n 1500 -r 2000 -d D -q
//!     -t set,get,incr,lpush,lpop,sadd,hset,zadd      for D = 16, 100, 300, 1000, 4000
//! ```
//!
//! 422,433 calls of malloc, calloc and realloc, 354 bytes on average, four steps to a doubling.
//! A drawn size lies anywhere in its step, or sizes that happen to be an allocator's own would make
//! it look free of waste. Requests under 16 bytes count as 16: malloc gives no less.
//! Left out: the 5 of 422,433 requests over 32 KiB, which are made once, at the start.

use crate::tagged::TAGGED_BYTES_MIN;
use fastrand::Rng;

/// (largest size of the step, calls); a step begins above the one before it.
const RECORDED: [(u16, u32); 42] = [
    (16, 73_704),
    (20, 3_852),
    (24, 159_342),
    (28, 45_214),
    (32, 23_499),
    (40, 58_294),
    (48, 2_576),
    (56, 4_359),
    (64, 958),
    (80, 743),
    (96, 273),
    (112, 7_751),
    (128, 726),
    (160, 376),
    (192, 227),
    (224, 68),
    (256, 160),
    (320, 7_747),
    (384, 39),
    (448, 82),
    (512, 63),
    (640, 285),
    (768, 925),
    (896, 110),
    (1024, 8_120),
    (1280, 386),
    (1536, 342),
    (1792, 272),
    (2048, 727),
    (2560, 798),
    (3072, 1_081),
    (3584, 511),
    (4096, 10_009),
    (5120, 1_495),
    (6144, 1_600),
    (7168, 1_490),
    (8192, 1_976),
    (10_240, 102),
    (12_288, 103),
    (14_336, 102),
    (16_384, 916),
    (20_480, 1_012),
];

/// As many as are drawn before a program begins, so that drawing takes no time in it.
const DRAWN_COUNT: usize = 1 << 16;

/// Sizes in the order in which a program asks for them, round and round.
pub(crate) struct Sizes {
    drawn: Vec<u16>,
    next: usize,
}

impl Sizes {
    /// Draws from the recorded sizes.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let calls: u32 = RECORDED.iter().map(|(_, calls)| calls).sum();
        let drawn = (0..DRAWN_COUNT)
            .map(|_| size_at(rng.u32(..calls), rng))
            .collect();
        Self { drawn, next: 0 }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        let size_bytes = self.drawn[self.next % DRAWN_COUNT];
        self.next += 1;
        usize::from(size_bytes)
    }
}

/// A size of the step in which the `call`-th call is, steps in order.
fn size_at(call: u32, rng: &mut Rng) -> u16 {
    let (mut left, mut lower) = (call, TAGGED_BYTES_MIN as u16 - 1);
    for (upper, calls) in RECORDED {
        if left < calls {
            return rng.u16(lower + 1..=upper);
        }
        left -= calls;
        lower = upper;
    }
    unreachable!("`call` is less than the sum of all calls")
}

#[cfg(test)]
#[path = "tests/sizes.rs"]
mod tests;
