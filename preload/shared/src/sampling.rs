//! Sampling of allocations by bytes: a Poisson process over all bytes ever asked for, with one point
//! in `mean_bytes` on average. An allocation is a sample if a point falls into it.
//!
//! ```text
//! bytes asked for:  |--16--|------64------|-8-|----------200----------|--32--|
//! points:                       x                   x        x
//! samples:                 64, weight 1/(1-e^(-64/mean))     200, taken once
//! ```
//!
//! A block of `s` bytes is taken with probability `p = 1 - e^(-s/mean)`, whatever its neighbours are,
//! so it stands for `1/p` blocks and `s/p` bytes. Each sample is weighed by itself, then weights are
//! summed: the sums have the right expectation for every mix of sizes (summing first has not). Of a sum
//! of `B` bytes in blocks smaller than the mean the relative standard error is about `sqrt(mean/B)`.
//!
//! The two functions needed are right to nine digits.

/// Random numbers: xorshift64*, whose state is one word that a thread's record has room for.
///
/// Never 0 in, never 0 out.
#[inline]
#[must_use]
pub const fn next_random(state: u64) -> u64 {
    let mut x = if state == 0 {
        0x9e37_79b9_7f4a_7c15
    } else {
        state
    };
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    x
}

/// A seed that differs a lot for numbers that differ a little.
#[must_use]
pub const fn seed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes until the next point: exponentially distributed with mean `mean_bytes`, at least 1.
#[must_use]
pub fn gap_bytes(random: u64, mean_bytes: u64) -> u64 {
    // 53 random bits as a number in (0, 1]: never 0, which has no logarithm.
    let uniform =
        ((random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
    let gap = -ln(uniform) * mean_bytes as f64;
    // The cast saturates.
    (gap as u64).max(1)
}

/// How many allocations of `size_bytes` a sample of one stands for: at least 1.
#[must_use]
pub fn weight(size_bytes: u64, mean_bytes: u64) -> f64 {
    if mean_bytes <= 1 || size_bytes == 0 {
        return 1.0;
    }
    1.0 / one_minus_exp(size_bytes as f64 / mean_bytes as f64)
}

/// The natural logarithm of a normal positive number.
#[must_use]
pub fn ln(x: f64) -> f64 {
    const MANTISSA_BITS: u32 = 52;
    const ONE: u64 = 1.0_f64.to_bits();
    let bits = x.to_bits();
    let mut exponent = (bits >> MANTISSA_BITS) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << MANTISSA_BITS) - 1)) | ONE);
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    // ln m = 2 artanh((m-1)/(m+1)), and |t| <= 0.172 makes the ninth term 1e-16.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let mut sum = 0.0;
    let mut odd = 17;
    while odd >= 1 {
        sum = sum * square + 1.0 / f64::from(odd);
        odd -= 2;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * t * sum
}

/// `1 - e^(-x)` for `x >= 0`, without the loss of digits for small ones.
fn one_minus_exp(x: f64) -> f64 {
    // Beyond that the difference to 1 is lost anyway.
    if x > 40.0 {
        return 1.0;
    }
    if x < 0.5 {
        // x - x^2/2! + x^3/3! - ..., from the smallest term on.
        let mut sum = 0.0;
        let mut n = 15;
        while n >= 1 {
            sum = x / f64::from(n) * (1.0 - sum);
            n -= 1;
        }
        return sum;
    }
    // Half the argument and square: 1 - e^-2y = (1 - e^-y)(2 - (1 - e^-y)).
    let half = one_minus_exp(x / 2.0);
    half * (2.0 - half)
}

#[cfg(test)]
#[path = "tests/sampling.rs"]
mod tests;
