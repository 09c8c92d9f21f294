use super::*;

/// Goal: the parts add up to the whole, for differences and for equivalence.
#[test]
fn looks_share_the_error() {
    assert_eq!(InterimAnalyses::planned(0), InterimAnalyses::ONE);
    assert_eq!(InterimAnalyses::ONE.significance(), SIGNIFICANCE);
    assert_eq!(
        InterimAnalyses::ONE.equivalence_confidence(),
        EQUIVALENCE_CONFIDENCE
    );
    for count in 1..6 {
        let looks = InterimAnalyses::planned(count);
        let spent = looks.significance() * count as f64;
        assert!((spent - SIGNIFICANCE).abs() < 1e-12);
        let spent = (1.0 - looks.equivalence_confidence()) / 2.0 * count as f64;
        assert!((spent - SIGNIFICANCE).abs() < 1e-12);
        assert!((looks.confidence() + looks.significance() - 1.0).abs() < 1e-12);
    }
}

/// Goal: few analyses, rising, the last one where time ends, and each able to claim something.
#[test]
fn looks_are_few_and_each_can_claim() {
    assert_eq!(interim_rounds(10, 10, 8), [10]);
    assert_eq!(interim_rounds(10, 12, 2), [12]);
    assert_eq!(interim_rounds(10, 16, 5), [10, 16]);
    assert_eq!(interim_rounds(10, 40, 2), [10, 20, 40]);
    assert_eq!(interim_rounds(10, 184, 2), [10, 26, 70, 184]);
    for comparisons in [1, 2, 5, 9, 18, 40] {
        for last in 6..300 {
            let looks = interim_rounds(10, last, comparisons);
            assert!(looks.len() <= 4 && looks.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(looks.last(), Some(&last));
            if looks.len() > 1 {
                let smallest = smallest_rounds(comparisons * looks.len());
                assert!(looks[0] as usize >= smallest, "{comparisons} {looks:?}");
            }
        }
    }
}
