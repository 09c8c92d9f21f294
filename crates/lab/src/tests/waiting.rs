use super::*;

fn times(threads: &[(u32, u64, u64)]) -> WaitTimes {
    let times = |&(id, cpu_ns, waited_ns)| (id, ThreadTimes { cpu_ns, waited_ns });
    WaitTimes {
        by_thread: threads.iter().map(times).collect(),
    }
}

/// Goal: waiting counts where no thread of the target itself was the cause, and only then.
#[test]
fn only_others_are_to_blame() {
    let before = times(&[(1, 500, 40), (2, 1_000, 10)]);
    let after = times(&[(1, 501, 90), (2, 2_000, 13), (3, 2, 7)]);
    let waited = |cpus| after.waited_since(&before, cpus).map(|it| it.as_nanos());
    assert_eq!(waited(1), Some(3));
    assert_eq!(waited(2), Some(10));
    let shared = times(&[(1, 700, 90), (2, 2_000, 13)]);
    assert_eq!(shared.waited_since(&before, 1), None);
    assert_eq!(shared.waited_since(&before, 2).unwrap().as_nanos(), 53);
    assert_eq!(times(&[]).waited_since(&before, 1), Some(Duration::ZERO));
}

/// Goal: the kernel's text is understood; this very thread is among those that are read.
#[test]
fn own_threads_are_read() {
    let Some(own) = WaitTimes::read(&[std::process::id()]) else {
        assert!(!fs::exists("/proc/self/schedstat").unwrap());
        eprintln!("skipped: this kernel does not count waiting");
        return;
    };
    let id = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    assert!(own.by_thread.contains_key(&id), "{own:?}");
    assert!(WaitTimes::read(&[u32::MAX]).is_none());
}
