//! How fast the processors run: a machine that clocks down between two runs makes the later one slow.
//!
//! Read right after a phase, while the load is still warm; what an idle processor says means nothing.

use std::fs;
use std::path::Path;

/// Where the kernel says so; absent in most virtual machines.
const CPUS: &str = "/sys/devices/system/cpu";

/// The frequency of the fastest processor at this moment, which is one that works. `None` where the
/// kernel does not say.
#[must_use]
pub fn cpu_frequency_hz() -> Option<f64> {
    fastest(Path::new(CPUS))
}

fn fastest(cpus: &Path) -> Option<f64> {
    let entries = fs::read_dir(cpus).ok()?;
    let khz = entries.flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("cpufreq/scaling_cur_freq")).ok()?;
        text.trim().parse::<u64>().ok().filter(|&khz| khz > 0)
    });
    khz.max().map(|khz| khz as f64 * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the fastest one counts, nonsense is passed over, and nothing to read is no frequency.
    #[test]
    fn the_fastest_processor_is_read() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(fastest(directory.path()), None);
        for (cpu, text) in [
            ("cpu0", "800000\n"),
            ("cpu1", "3400000\n"),
            ("cpu2", "<unknown>\n"),
        ] {
            let cpufreq = directory.path().join(cpu).join("cpufreq");
            fs::create_dir_all(&cpufreq).unwrap();
            fs::write(cpufreq.join("scaling_cur_freq"), text).unwrap();
        }
        fs::create_dir(directory.path().join("cpuidle")).unwrap();
        assert_eq!(fastest(directory.path()), Some(3.4e9));
        assert_eq!(fastest(&directory.path().join("missing")), None);
    }
}
