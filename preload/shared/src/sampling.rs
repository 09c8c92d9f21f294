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
//! Absent on purpose: the mathematics library. The two functions needed are right to nine digits.

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
mod tests {
    use super::*;

    /// Goal: the logarithm is the library's, over all the range that is drawn from.
    #[test]
    fn logarithm() {
        for exponent in 0..=53 {
            for step in 0..100 {
                let x = (1.0 + f64::from(step) / 100.0) / f64::from(2.0_f32.powi(exponent));
                assert!(
                    (ln(x) - x.ln()).abs() <= 1e-12 * (1.0 + x.ln().abs()),
                    "{x}"
                );
            }
        }
    }

    #[test]
    fn weights() {
        let mean = 8192;
        for size in [1_u64, 8, 16, 100, 4096, 8192, 65_536, 1 << 30] {
            let expected = -1.0 / (-(size as f64) / mean as f64).exp_m1();
            let found = weight(size, mean);
            assert!(
                (found / expected - 1.0).abs() < 1e-9,
                "{size}: {found} {expected}"
            );
        }
        assert_eq!(weight(0, mean), 1.0);
        assert_eq!(weight(5, 1), 1.0);
        assert_eq!(weight(1 << 40, mean), 1.0);
    }

    /// Goal: sums over samples have the truth as their expectation, in blocks and in bytes, for each
    /// size of a mixture: checked against five of their own standard errors.
    #[test]
    fn sums_are_unbiased_for_every_size() {
        let (mean, sizes) = (4096_u64, [8_u64, 48, 512, 4000, 30_000]);
        let mut random = seed(7);
        let mut draw = || {
            random = next_random(random);
            gap_bytes(random, mean)
        };
        let mut left = i128::from(draw());
        let (mut truth, mut found, mut squares) = ([0_f64; 5], [0_f64; 5], [0_f64; 5]);
        let mut choice = fastrand::Rng::with_seed(11);
        for _ in 0..2_000_000 {
            let index = choice.usize(..sizes.len());
            truth[index] += 1.0;
            left -= i128::from(sizes[index]);
            if left < 0 {
                let one = weight(sizes[index], mean);
                found[index] += one;
                squares[index] += one * (one - 1.0);
                while left < 0 {
                    left += i128::from(draw());
                }
            }
        }
        for index in 0..sizes.len() {
            let error = squares[index].sqrt().max(1.0);
            let distance = (found[index] - truth[index]).abs();
            assert!(
                distance < 5.0 * error,
                "{}: {found:?} of {truth:?}",
                sizes[index]
            );
        }
    }

    /// Goal: gaps have the mean and the variance of the exponential distribution.
    #[test]
    fn gaps_are_exponential() {
        let (mean, count) = (10_000_u64, 200_000);
        let mut random = seed(1);
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..count {
            random = next_random(random);
            let gap = gap_bytes(random, mean) as f64;
            sum += gap;
            squares += gap * gap;
        }
        let found = sum / f64::from(count);
        let deviation = (squares / f64::from(count) - found * found).sqrt();
        assert!((found / mean as f64 - 1.0).abs() < 0.015, "{found}");
        assert!((deviation / mean as f64 - 1.0).abs() < 0.03, "{deviation}");
    }
}
