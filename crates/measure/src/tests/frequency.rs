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
