use super::*;

fn claims(comparisons: usize, margin: f64) -> Claims {
    Claims {
        comparisons,
        looks: InterimAnalyses::ONE,
        margin,
    }
}

fn found(effect: f64, half_width: f64) -> Found {
    Found {
        effect,
        equivalence: Interval {
            low: effect - half_width,
            high: effect + half_width,
            confidence: 0.9,
        },
    }
}

#[test]
fn fewest_rounds() {
    assert_eq!(smallest_rounds(1), 6);
    assert_eq!(smallest_rounds(8), 9);
    assert_eq!(smallest_rounds(0), 6);
    assert!(can_claim(Sizes::Apart(4, 4), claims(1, 0.05)));
    assert!(!can_claim(Sizes::Apart(4, 4), claims(2, 0.05)));
}

/// Goal: one that is simulated follows one that is not: the interval of four times the rounds is half
/// as wide, on both sides of the bound.
#[test]
fn beyond_the_simulated_rounds_nothing_jumps() {
    let of = |rounds: usize| {
        let scale = (40.0 / rounds as f64).sqrt();
        detectable(
            &found(0.0, 0.01 * scale),
            Sizes::Paired(rounds),
            claims(4, 0.0),
        )
        .unwrap()
    };
    let ratio = of(40) / of(41);
    assert!((0.99..1.04).contains(&ratio), "{ratio}");
    let ratio = of(40) / of(160);
    assert!((1.9..2.3).contains(&ratio), "{ratio}");
}

/// Goal: a value that is narrow against the margin shows nothing below it, because that is
/// equivalent; a value that does not vary shows all that is beyond it.
#[test]
fn the_margin_bounds_what_is_found() {
    let of = |half_width| {
        let found = found(0.0, half_width);
        detectable(&found, Sizes::Paired(12), claims(4, 0.05)).unwrap()
    };
    assert_eq!(of(0.0), 0.05);
    assert!((0.045..0.05).contains(&of(0.004)), "{}", of(0.004));
    assert!(of(0.05) > 0.08, "{}", of(0.05));
    let wide = Found {
        effect: 0.0,
        equivalence: Interval {
            low: f64::NEG_INFINITY,
            high: 0.1,
            confidence: 0.9,
        },
    };
    assert_eq!(detectable(&wide, Sizes::Paired(12), claims(4, 0.05)), None);
    assert_eq!(
        detectable(&found(0.0, 0.01), Sizes::Paired(6), claims(4, 0.05)),
        None
    );
}

/// Goal: more rounds are advised where there is more scatter or less of a difference, and never
/// without an end.
#[test]
fn advice_follows_scatter_and_effect() {
    let of = |effect, half_width| {
        let found = found(effect, half_width);
        rounds_needed(&found, Sizes::Paired(10), claims(4, 0.05))
    };
    assert!(of(0.0, 0.04) < of(0.0, 0.08));
    assert!(of(0.2, 0.08) < of(0.03, 0.08));
    assert!((500..=ROUNDS_MAX).contains(&of(0.0, 9.0)));
    // Too few to claim anything, and nothing that varies: as many as a claim takes.
    let found = found(0.0, 0.0);
    assert_eq!(rounds_needed(&found, Sizes::Paired(2), claims(8, 0.05)), 9);
}
