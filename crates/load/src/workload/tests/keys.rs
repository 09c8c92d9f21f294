//! Each distribution against its formula.
use super::*;
use proptest::prelude::*;

const DRAWS: u64 = 200_000;

/// How far the counts of `cells` are from `shares` of all draws, as the sum of squares over what was
/// expected; of the order of the number of cells when the law holds (Pearson 1900).
fn chi_square(counts: &[u64], shares: &[f64]) -> f64 {
    let total = counts.iter().sum::<u64>() as f64;
    let terms = counts.iter().zip(shares).map(|(&count, share)| {
        let expected = total * share;
        (count as f64 - expected).powi(2) / expected
    });
    terms.sum()
}

/// A chi-square sum has mean `cells - 1` and twice that as variance; five deviations are exceeded
/// once in a hundred thousand seeds, and the seeds here are fixed.
fn assert_fits(what: &str, counts: &[u64], shares: &[f64]) {
    let freedom = counts.len() as f64 - 1.0;
    let sum = chi_square(counts, shares);
    let off = (sum - freedom) / (2.0 * freedom).sqrt();
    assert!(
        off.abs() < 5.0,
        "{what}: {sum} for {freedom} degrees of freedom"
    );
}

fn counts(picker: &KeyPicker, keys: u64, inserted: u64) -> Vec<u64> {
    let mut counts = vec![0; keys as usize];
    for number in 0..DRAWS {
        counts[picker.pick(number, inserted) as usize] += 1;
    }
    counts
}

/// Shares of the ranks 1..=count by the definition: rank^-exponent over the sum of all.
fn zipf_shares(count: u64, exponent: f64) -> Vec<f64> {
    let heights: Vec<f64> = (1..=count)
        .map(|rank| (rank as f64).powf(-exponent))
        .collect();
    let sum: f64 = heights.iter().sum();
    heights.iter().map(|height| height / sum).collect()
}

#[test]
fn uniform_keys_are_equally_likely() {
    for (keys, seed) in [(1, 1), (2, 9), (100, 1), (1_000, 5)] {
        let picker = KeyPicker::new(KeyDistribution::Uniform, keys, seed);
        let shares = vec![1.0 / keys as f64; keys as usize];
        let counts = counts(&picker, keys, 0);
        if keys > 1 {
            assert_fits("uniform", &counts, &shares);
        }
    }
}

/// Goal: Zipf's law holds for every rank, at YCSB's exponent, at 1, beside it and far from it.
#[test]
fn zipfian_ranks_follow_zipf_s_law() {
    for (keys, exponent) in [
        (10, 0.99),
        (1_000, 0.99),
        (1_000, 1.0),
        (500, 0.5),
        (100, 2.0),
        (1, 0.99),
    ] {
        let picker = KeyPicker::new(KeyDistribution::Zipfian { exponent }, keys, 3);
        let Law::Zipfian(_, scatter) = &picker.law else {
            unreachable!()
        };
        let by_key = counts(&picker, keys, 0);
        let mut seen = vec![false; keys as usize];
        let by_rank: Vec<u64> = (0..keys)
            .map(|rank| {
                let key = scatter.place(rank) as usize;
                assert!(
                    !std::mem::replace(&mut seen[key], true),
                    "two ranks share a key"
                );
                by_key[key]
            })
            .collect();
        // Ranks expected less than 10 times are one cell.
        let shares = zipf_shares(keys, exponent);
        let cut = shares
            .iter()
            .position(|share| share * (DRAWS as f64) < 10.0)
            .unwrap_or(shares.len());
        let mut cells = by_rank[..cut].to_vec();
        let mut cell_shares = shares[..cut].to_vec();
        if cut < shares.len() {
            cells.push(by_rank[cut..].iter().sum());
            cell_shares.push(shares[cut..].iter().sum());
        }
        if cells.len() > 1 {
            assert_fits(
                &format!("zipfian {exponent} of {keys}"),
                &cells,
                &cell_shares,
            );
        }
    }
}

/// Goal: popular keys are not the first ones: neighbours in rank are far apart.
#[test]
fn popular_keys_are_scattered() {
    let scatter = Scatter::new(1_000_000, 1);
    let first: Vec<u64> = (0..1_000).map(|rank| scatter.place(rank)).collect();
    let mean = first.iter().sum::<u64>() as f64 / 1_000.0;
    // Mean of 1,000 uniform places: 500,000 with a deviation of 289,000 / sqrt(1,000) = 9,100.
    assert!((450_000.0..550_000.0).contains(&mean), "{mean}");
    assert!(first.windows(2).all(|pair| pair[0].abs_diff(pair[1]) > 1));
}

/// Goal: rank 1 is the newest key, inserted ones included.
#[test]
fn latest_keys_are_the_newest() {
    let picker = KeyPicker::new(KeyDistribution::Latest { exponent: 0.99 }, 200, 4);
    for inserted in [0, 50] {
        let mut by_key = counts(&picker, 200 + inserted, inserted);
        by_key.reverse();
        assert!(by_key[200..].iter().all(|&count| count == 0));
        assert_fits("latest", &by_key[..200], &zipf_shares(200, 0.99));
    }
}

#[test]
fn a_hotspot_gets_its_share() {
    for (keys_share, requests_share) in [(0.2, 0.8), (0.01, 0.5), (1.0, 0.3), (0.0, 0.9)] {
        let law = KeyDistribution::Hotspot {
            keys_share,
            requests_share,
        };
        let picker = KeyPicker::new(law, 1_000, 8);
        let counts = counts(&picker, 1_000, 0);
        let hot = (1_000.0 * keys_share) as usize;
        let (hot_share, cold_share) = match hot {
            0 => (0.0, 1.0),
            1_000 => (1.0, 0.0),
            _ => (requests_share, 1.0 - requests_share),
        };
        let mut shares = vec![hot_share / hot.max(1) as f64; hot];
        shares.resize(1_000, cold_share / (1_000 - hot).max(1) as f64);
        assert_fits("hotspot", &counts, &shares);
    }
}

#[test]
fn sequential_keys_come_in_order() {
    let picker = KeyPicker::new(KeyDistribution::Sequential, 3, 8);
    let keys: Vec<u64> = (0..7).map(|number| picker.pick(number, 0)).collect();
    assert_eq!(keys, [0, 1, 2, 0, 1, 2, 0]);
}

proptest! {
    /// Goal: whatever the law, keys exist, and repeat with number and seed.
    #[test]
    fn keys_exist_and_repeat(count in 1u64..u64::MAX >> 1, number in any::<u64>(), seed in any::<u64>(), which in 0usize..5) {
        let law = ["uniform", "zipfian", "latest:1.2", "hotspot:0.1:0.9", "sequential"][which];
        let picker = KeyPicker::new(law.parse().unwrap(), count, seed);
        let key = picker.pick(number, 0);
        prop_assert!(key < count, "{law}: {key}");
        prop_assert_eq!(picker.clone().pick(number, 0), key);
    }

    /// Goal: scattering loses no key.
    #[test]
    fn scattering_is_a_permutation(count in 1u64..3_000, seed in any::<u64>()) {
        let scatter = Scatter::new(count, seed);
        let mut places: Vec<u64> = (0..count).map(|rank| scatter.place(rank)).collect();
        places.sort_unstable();
        prop_assert_eq!(places, (0..count).collect::<Vec<_>>());
    }
}

/// Goal: names are YCSB's, with their parameters, and print as they are read.
#[test]
fn names_are_read() {
    for text in [
        "uniform",
        "zipfian:0.99",
        "latest:0.5",
        "hotspot:0.2:0.8",
        "sequential",
    ] {
        assert_eq!(text.parse::<KeyDistribution>().unwrap().to_string(), text);
    }
    assert_eq!(
        "zipfian".parse(),
        Ok(KeyDistribution::Zipfian { exponent: 0.99 })
    );
    for (text, part) in [
        ("", "zipfian"),
        ("normal", "zipfian"),
        ("zipfian:x", "not a number"),
        ("zipfian:0", "exponent"),
        ("latest:1:2", "exponent"),
        ("hotspot", "hotspot:0.2:0.8"),
        ("hotspot:2:0.5", "hotspot:0.2:0.8"),
        ("uniform:1", "hotspot"),
    ] {
        let error = text.parse::<KeyDistribution>().unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
}
