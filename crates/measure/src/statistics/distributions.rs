//! Quantiles of the normal distribution, for simulated rounds and for the ranks of very many; and the binomial test:
//! whether something happens to one more often than to the others.

/// The value below which a standard normal variable stays with probability `p` (0 < p < 1).
///
/// P. J. Acklam's rational approximation, relative error below 1.15e-9.
#[must_use]
pub fn inverse_normal(p: f64) -> f64 {
    const CENTRE_NUMERATOR: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const CENTRE_DENOMINATOR: [f64; 6] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
        1.0,
    ];
    const TAIL_NUMERATOR: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const TAIL_DENOMINATOR: [f64; 5] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let polynomial = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    debug_assert!(p > 0.0 && p < 1.0);
    if p > 0.5 {
        return -inverse_normal(1.0 - p);
    }
    if p < 0.02425 {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&TAIL_NUMERATOR, q) / polynomial(&TAIL_DENOMINATOR, q)
    } else {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&CENTRE_NUMERATOR, r) * q / polynomial(&CENTRE_DENOMINATOR, r)
    }
}

/// The chance of `count` or more successes in `trials` that succeed with a chance of `share` each: the exact binomial
/// test to one side. Its cost grows with `trials`.
#[must_use]
pub fn at_least_p(count: u32, trials: u32, share: f64) -> f64 {
    if count == 0 {
        return 1.0;
    }
    if count > trials || share <= 0.0 {
        return 0.0;
    }
    if share >= 1.0 {
        return 1.0;
    }
    // Each term from the one before, as logarithms: no factorial is ever formed.
    let odds = (share / (1.0 - share)).ln();
    let mut term = f64::from(trials) * (1.0 - share).ln();
    let mut sum = 0.0;
    for successes in 0..trials {
        let (left, next) = (f64::from(trials - successes), f64::from(successes + 1));
        term += (left / next).ln() + odds;
        if successes + 1 >= count {
            sum += term.exp();
        }
    }
    sum.min(1.0)
}

#[cfg(test)]
#[path = "tests/normal.rs"]
mod normal_tests;
#[cfg(test)]
#[path = "tests/binomial.rs"]
mod binomial_tests;
