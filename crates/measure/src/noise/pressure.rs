//! How long programs waited for a processor: the kernel's pressure stall information.
//!
//! Generator and server make pressure themselves, so only more of it than in the same candidate's other
//! runs is a disturbance.

use std::fs;

/// Time since boot in which some program was ready and had no processor. `None` where the kernel does
/// not count it.
#[must_use]
pub fn cpu_pressure_ns() -> Option<u64> {
    parse(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// The line `some avg10=0.00 avg60=0.00 avg300=0.00 total=11220657`, its total in microseconds.
fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line
        .split(' ')
        .find_map(|word| word.strip_prefix("total="))?;
    total.parse::<u64>().ok()?.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_first_line() {
        let text =
            "some avg10=1.53 avg60=1.20 avg300=0.33 total=11220657\nfull avg10=0.00 total=9\n";
        assert_eq!(parse(text), Some(11_220_657_000));
        for bad in [
            "",
            "full total=1",
            "some avg10=1",
            "some total=x",
            "some total=18446744073709551615",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
