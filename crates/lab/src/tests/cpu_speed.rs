use super::*;

/// Goal: a number for the CPUs of this machine, none without any; the thread is where it was.
#[test]
fn calls_take_time() {
    let home = sched_getaffinity(None).unwrap();
    let cpus = millpond_io::allowed_cpus().unwrap();
    assert!(system_call_ns(&cpus).unwrap() > 1.0);
    assert_eq!(system_call_ns(&[]), None);
    assert_eq!(system_call_ns(&[1_000]), None);
    assert!(sched_getaffinity(None).unwrap() == home);
}
