use super::*;

/// Goal: the middle of the pairs with their range, and runs that differ by themselves are reported.
#[test]
fn pairs_give_a_ratio_with_its_range() {
    let work = |duration_ns, cpu_ns| Work {
        duration_ns,
        cpu_ns,
    };
    let pairs = [
        (work(100, 50), work(102, 52)),
        (work(200, 50), work(210, 51)),
        (work(100, 51), work(103, 53)),
    ];
    let cost = Cost::of(&pairs, false).unwrap();
    let time = cost.time.unwrap();
    assert!((time.low - 1.02).abs() < 1e-9 && (time.high - 1.05).abs() < 1e-9);
    assert!((1.02..1.05).contains(&time.ratio), "{time:?}");
    assert!(!cost.is_noisy && cost.pairs == 3);
    assert_eq!(Cost::of(&pairs, true).unwrap().time, None);
    let noisy = [(work(1, 50), work(1, 50)), (work(1, 90), work(1, 90))];
    assert!(Cost::of(&noisy, false).unwrap().is_noisy);
    assert_eq!(Cost::of(&[], false), None);
}
