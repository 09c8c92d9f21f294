//! Operation sequences against models: seeded noise, and every input that once found something.
//!
//! The same harness as `fuzz/`, for a moment of every test run. An input that the fuzzer finds is
//! kept under `tests/sequences/` and runs here from then on.
#![allow(
    clippy::unwrap_used,
    reason = "the helpers of these tests are tests too"
)]

mod driver;

use std::path::Path;

/// splitmix64: every number from the one before, the same on every machine.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Goal: every pool in every mode keeps its promises through sequences drawn from fixed seeds.
#[test]
fn seeded_sequences() {
    let (seeds, len_max) = match cfg!(miri) {
        true => (0..1, 40),
        false => (0..20, 1500),
    };
    for seed in seeds {
        let mut noise = Noise(seed);
        for subject in 0..7 {
            // malloc has no modes; the checked one checks every byte, which takes minutes under Miri.
            let modes = match subject {
                6 => 0..1,
                _ if cfg!(miri) => 3..6,
                _ => 0..8,
            };
            for mode in modes {
                let len = noise.next() as usize % len_max;
                let mut bytes = noise.bytes(len);
                bytes.splice(0..0, [subject, mode]);
                println!("seed {seed}, subject {subject}, mode {mode}, {len} bytes");
                driver::run(&bytes);
            }
        }
    }
}

/// Goal: faults found once stay fixed: the kept inputs pass.
#[test]
fn kept_sequences() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sequences");
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        driver::run(&std::fs::read(&path).unwrap());
        count += 1;
    }
    assert!(count > 0, "nothing is kept in {}", directory.display());
}
