use super::*;

fn slices(per_s: &[f64]) -> Slices {
    let mut slices = Slices::default();
    for &rate in per_s {
        slices.push((rate / 10.0) as u64, rate);
    }
    slices
}

fn steady_after(per_s: impl Iterator<Item = f64>) -> Option<(usize, Slices)> {
    let mut slices = Slices::default();
    for (index, rate) in per_s.enumerate() {
        slices.push((rate / 10.0) as u64, rate);
        if slices.is_steady() {
            return Some((index + 1, slices));
        }
    }
    None
}

/// Goal: a target that is steady from the start takes six slices and no warm-up, bursts of a neighbour or not.
#[test]
fn steady_from_the_start() {
    let (count, found) = steady_after([1000.0; 20].into_iter()).unwrap();
    assert_eq!((count, found.requests_before()), (6, 0));
    let hit = [1000.0, 400.0, 1020.0, 990.0, 300.0, 600.0, 1010.0, 980.0];
    let (_, found) = steady_after(hit.into_iter()).unwrap();
    assert_eq!(found.requests_before(), 0);
    assert_eq!(
        found.capacity_per_s(),
        1020.0_f64.min(found.capacity_per_s())
    );
    assert!(!slices(&[1000.0; 5]).is_steady());
    assert!(!Slices::default().is_steady());
}

/// Goal: a target that gets faster is driven until it no longer does; what came before counts as its
/// warm-up.
#[test]
fn a_transient_is_counted() {
    let rates = (0..100).map(|slice| 10_000.0 * (1.0 - 0.9 * (-f64::from(slice) / 4.0).exp()));
    let (count, found) = steady_after(rates).unwrap();
    assert!((8..30).contains(&count), "{count}");
    let warm_up = found.requests_before();
    assert!(warm_up > 500 && warm_up < found.requests(), "{warm_up}");
    assert!(found.capacity_per_s() > 8_500.0);
    // One that gets slower as well.
    let rates = (0..100).map(|slice| 1_000.0 + 9_000.0 * (-f64::from(slice) / 4.0).exp());
    let (_, found) = steady_after(rates).unwrap();
    assert!(found.requests_before() > 1_000);
    assert!(found.capacity_per_s() < 1_500.0);
}

/// Goal: a target that keeps changing is never steady.
#[test]
fn what_changes_is_not_steady() {
    assert!(steady_after((0..60).map(|slice| 100.0 * 1.06_f64.powi(slice))).is_none());
    assert!(steady_after((0..60).map(|slice| 1e6 * 0.94_f64.powi(slice))).is_none());
}

/// A machine with neighbours: bursts of random length take a random part of the slices' time.
fn noisy(random: &mut fastrand::Rng, count: usize) -> Vec<f64> {
    let mut left = 0_u32;
    let mut taken = 0.0;
    (0..count)
        .map(|_| {
            if left == 0 {
                left = random.u32(1..8);
                taken = if random.f64() < 0.5 {
                    0.0
                } else {
                    0.6 * random.f64()
                };
            }
            left -= 1;
            10_000.0 * (1.0 - taken) * (0.9 + 0.2 * random.f64())
        })
        .collect()
}

/// The try-out's whole rule: the time limit, and once more as long where a drift shows.
fn is_called_unsteady(per_s: &[f64], patience: usize) -> bool {
    let mut found = Slices::default();
    for (index, &rate) in per_s.iter().enumerate() {
        found.push(1_000, rate);
        if found.is_steady() {
            return false;
        }
        if index + 1 == patience && found.drift() == Drift::None {
            return false;
        }
        if index + 1 == 2 * patience {
            return found.drift() != Drift::None;
        }
    }
    unreachable!("there are slices enough")
}

/// Goal: slices that are noisy and go nowhere are called unsteady in less than one of fifty
/// try-outs, however long these are; the old rule, that four values have to agree, would do so in far
/// more.
#[test]
fn noise_alone_is_no_drift() {
    for patience in [9, 20, 60, 150] {
        let mut random = fastrand::Rng::with_seed(20_261_122 + patience as u64);
        let (mut alarms, mut disagree) = (0, 0);
        for _ in 0..2_000 {
            let series = noisy(&mut random, 2 * patience);
            alarms += u32::from(is_called_unsteady(&series, patience));
            disagree += u32::from(!slices(&series[..patience]).is_steady());
        }
        assert!(alarms <= 40, "{alarms} of 2000 at {patience} slices");
        assert!(patience > 9 || disagree > 400, "{disagree} of 2000");
    }
}

/// Goal: the same on slices of a fixed loop that were recorded while others compiled on both processors,
/// from wherever one begins. The old rule would have called a quarter of such try-outs unsteady.
#[test]
fn recorded_noise_is_no_drift() {
    for patience in [9, 15, 30, 60] {
        let windows = RECORDED.windows(2 * patience);
        let alarms = windows.clone().filter(|window| {
            let series: Vec<f64> = window.iter().copied().map(f64::from).collect();
            is_called_unsteady(&series, patience)
        });
        let (alarms, all) = (alarms.count(), windows.count());
        assert!(alarms * 50 <= all, "{alarms} of {all} at {patience} slices");
    }
    let never_agree = RECORDED.windows(9).filter(|window| {
        let series: Vec<f64> = window.iter().copied().map(f64::from).collect();
        (1..=9).all(|count| !slices(&series[..count]).is_steady())
    });
    assert!(never_agree.count() > 80);
    // Among the same noise, what grows by a fifth with each slice is nearly always found.
    let found = RECORDED.windows(40).filter(|window| {
        let grown = window.iter().zip(0..);
        let grown = grown.map(|(&rate, index)| f64::from(rate) * f64::powi(1.2, index));
        is_called_unsteady(&grown.collect::<Vec<_>>(), 20)
    });
    let (found, all) = (found.count(), RECORDED.windows(40).count());
    assert!(found * 10 > all * 7, "{found} of {all}");
}

/// Goal: among the same neighbours, a target that keeps getting faster or slower is found: fast changes
/// in few slices, slow ones in many.
#[test]
fn drift_is_found_through_noise() {
    for (count, per_slice, expected, found_min) in [
        (18, 1.12, Drift::Up, 375),
        (18, 0.88, Drift::Down, 375),
        (60, 1.03, Drift::Up, 400),
        (150, 0.992, Drift::Down, 450),
    ] {
        let mut random = fastrand::Rng::with_seed(7 + count as u64);
        let found = (0..500)
            .filter(|_| {
                let mut series = noisy(&mut random, count);
                for (index, rate) in series.iter_mut().enumerate() {
                    *rate *= f64::powi(per_slice, index as i32);
                }
                slices(&series).drift() == expected
            })
            .count();
        assert!(found >= found_min, "{found} of 500 in {count}, {per_slice}");
    }
}

/// Goal: among noise, a warm-up that ended is mostly counted, and what never changed mostly needs none.
#[test]
fn a_transient_among_noise_is_counted() {
    let mut random = fastrand::Rng::with_seed(3);
    let (mut counted, mut invented) = (0, 0);
    for _ in 0..200 {
        let flat = slices(&noisy(&mut random, 60));
        invented += u32::from(flat.requests_before_drift_ended() > 0);
        let rates: Vec<f64> = noisy(&mut random, 60)
            .iter()
            .enumerate()
            .map(|(index, rate)| rate * (1.0 - 0.9 * (-(index as f64) / 8.0).exp()))
            .collect();
        let warmed = slices(&rates);
        let first: u64 = warmed.requests.iter().take(20).sum();
        let found = warmed.requests_before_drift_ended();
        assert!([0, first].contains(&found), "{found}");
        counted += u32::from(found > 0);
    }
    assert!(counted > 120 && invented < 50, "{counted}, {invented}");
}

/// Turns of a loop in each tenth of a second, thousandths of what it does undisturbed.
const RECORDED: [u32; 410] = [
    545, 742, 399, 394, 663, 619, 603, 640, 401, 673, 472, 455, 588, 483, 243, 352, 297, 233, 504,
    539, 367, 393, 455, 339, 427, 350, 278, 176, 750, 748, 753, 737, 736, 691, 719, 768, 694, 764,
    718, 701, 693, 716, 726, 764, 719, 642, 754, 760, 659, 667, 916, 810, 1044, 812, 1193, 1002,
    957, 1052, 940, 951, 1061, 675, 869, 986, 938, 1000, 949, 980, 1047, 936, 982, 976, 815, 870,
    835, 871, 842, 828, 1062, 910, 1134, 1206, 819, 813, 912, 830, 1031, 805, 1050, 1189, 984, 688,
    725, 768, 771, 946, 801, 978, 940, 1029, 1123, 892, 772, 823, 944, 955, 1069, 971, 978, 1028,
    1012, 989, 644, 463, 863, 1012, 940, 988, 913, 982, 948, 816, 671, 846, 954, 1000, 894, 911,
    1047, 1022, 938, 929, 1008, 504, 905, 900, 1103, 856, 1022, 611, 1507, 1106, 1018, 961, 984,
    1014, 1023, 901, 974, 1020, 959, 708, 753, 751, 608, 775, 858, 956, 822, 1052, 766, 810, 696,
    797, 804, 593, 602, 623, 461, 359, 483, 361, 863, 781, 816, 788, 691, 657, 1009, 492, 509, 607,
    721, 887, 948, 1032, 1225, 939, 1041, 962, 813, 988, 753, 932, 675, 824, 869, 640, 739, 906,
    882, 546, 751, 1026, 931, 996, 613, 799, 874, 863, 620, 707, 766, 661, 752, 673, 694, 775, 687,
    1099, 496, 477, 615, 615, 811, 740, 735, 771, 708, 659, 565, 659, 708, 638, 854, 743, 654, 687,
    634, 783, 624, 740, 696, 755, 705, 587, 554, 645, 709, 612, 509, 775, 666, 886, 600, 649, 521,
    478, 335, 502, 571, 515, 1015, 351, 490, 281, 460, 411, 450, 485, 446, 434, 575, 500, 566, 594,
    627, 532, 925, 622, 799, 567, 437, 639, 601, 590, 518, 445, 548, 535, 545, 483, 572, 470, 533,
    530, 578, 390, 367, 453, 402, 607, 516, 628, 518, 585, 607, 646, 665, 592, 399, 509, 496, 621,
    190, 364, 446, 446, 467, 509, 621, 562, 594, 618, 592, 594, 662, 629, 593, 652, 495, 669, 683,
    543, 608, 544, 637, 621, 524, 537, 544, 646, 621, 602, 687, 792, 638, 508, 535, 571, 716, 634,
    686, 657, 663, 665, 748, 617, 687, 584, 619, 682, 791, 1021, 852, 882, 416, 592, 258, 415, 654,
    483, 456, 471, 483, 479, 519, 540, 489, 524, 501, 529, 548, 494, 537, 556, 479, 457, 467, 514,
    491, 531, 486, 475, 534, 518, 541, 487, 729, 435, 455, 626, 537, 531, 533, 592, 1148, 856, 821,
    756,
];
