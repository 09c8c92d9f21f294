use super::*;

/// Goal: pinning takes effect for the calling thread, and impossible CPUs are named.
#[test]
fn a_thread_is_pinned_to_an_allowed_cpu_and_no_other() {
    std::thread::spawn(|| {
        let cpu = *allowed_cpus().unwrap().last().unwrap();
        pin_to(cpu).unwrap();
        assert_eq!(allowed_cpus().unwrap(), [cpu]);
        for absent in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU] {
            let error = pin_to(absent).unwrap_err();
            assert_eq!(
                error,
                IoError::CpuUnavailable {
                    cpu: absent,
                    error: Errno::INVAL
                }
            );
        }
    })
    .join()
    .unwrap();
}
