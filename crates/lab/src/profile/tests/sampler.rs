use super::*;

/// Goal: gaps and unfinished records are passed over, and nothing after them is lost.
#[test]
fn what_a_killed_process_left_is_passed_over() {
    let head = |len: u64| RECORD_MARK | len;
    let words = [
        0,
        head(4) | RECORD_FINISHED,
        7 << 32 | 1,
        64 | SIZE_CUT,
        0x1000,
        0,
        0,
        head(5),
        0,
        0,
        0,
        0,
        head(3) | RECORD_FINISHED,
        8 << 32 | 2,
        9,
        head(9) | RECORD_FINISHED,
        1,
    ];
    let samples = parse(&words);
    let found: Vec<_> = samples
        .iter()
        .map(|one| {
            (
                one.pid,
                one.program,
                one.size_bytes,
                one.is_cut,
                one.frames.len(),
            )
        })
        .collect();
    assert_eq!(found, [(7, 1, 64, true, 1), (8, 2, 9, false, 0)]);
}

/// Goal: sums of scaled samples have no bias, for calls far smaller and far larger than the
/// distance: checked against the expectation, which can be written down.
#[test]
fn weights_are_the_inverse_of_the_chance() {
    for size_bytes in [1_u64, 16, 4096, 524_288, 10 << 20] {
        let sample = Sample {
            pid: 1,
            program: 1,
            size_bytes,
            is_cut: false,
            frames: Vec::new(),
        };
        let (calls, bytes) = sample.weights(524_288);
        let chance = 1.0 - (-(size_bytes as f64) / 524_288.0).exp();
        assert!((calls * chance - 1.0).abs() < 1e-9, "{size_bytes}: {calls}");
        assert!((bytes / size_bytes as f64 / calls - 1.0).abs() < 1e-9);
    }
}

/// Goal: a file begins empty, has the settings for the object, and nothing was loaded yet.
#[test]
fn a_new_file_is_empty() {
    let sampler = Sampler::create(4096, 5).unwrap();
    assert_eq!(sampler.word(MEAN_BYTES).unwrap(), 4096);
    sampler.activate(true).unwrap();
    assert_eq!(sampler.word(ACTIVE).unwrap(), 1);
    let harvest = sampler.harvest().unwrap();
    assert!(harvest.samples.is_empty() && harvest.programs == 0 && harvest.dropped == 0);
    assert!(sampler.object().is_file());
}
