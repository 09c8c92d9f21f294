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

/// Goal: the expectation of sums over samples is the true value, in blocks and in bytes, for each
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
