use super::*;

const US: u64 = 1_000;

/// Readings 100 us apart of two threads, each (CPU time, waited) in us: what the last one shows.
fn shown(readings: &[[(u64, u64); 2]]) -> Option<Kept> {
    let mut history = History::new(2);
    let mut shown = None;
    for (number, reading) in (10..).zip(readings) {
        let place = history.begin(number * 100 * US);
        for (times, &(cpu, waited)) in place.times.iter_mut().zip(reading) {
            *times = ThreadTimes {
                cpu_ns: cpu * US,
                waited_ns: waited * US,
            };
        }
        shown = history.end();
    }
    shown
}

/// Goal: time that a thread waited for other programs is a stall, time that it waited for the target's own threads is
/// not, even if those ran before the wait was counted; unknown time is not called one.
#[test]
fn only_waiting_for_others_is_a_stall() {
    let idle = [(50, 0), (0, 0)];
    // 200 us, counted when they have ended.
    let found = shown(&[idle, idle, idle, idle, [(60, 200), (0, 0)]]);
    let expected = Kept {
        from_ns: 1_100 * US,
        length_ns: 200 * US,
    };
    assert_eq!(found, Some(expected));
    // The other thread had the CPU meanwhile.
    let own = [
        idle,
        idle,
        [(50, 0), (90, 0)],
        [(50, 0), (190, 0)],
        [(60, 200), (200, 0)],
    ];
    assert_eq!(shown(&own), None);
    // A part of it.
    let part = shown(&[
        idle,
        idle,
        [(50, 0), (90, 0)],
        [(50, 0), (90, 0)],
        [(60, 200), (90, 0)],
    ]);
    assert_eq!(part.map(|kept| kept.length_ns), Some(110 * US));
    // Too short, and longer than what was read.
    assert_eq!(shown(&[idle, idle, [(60, 40), (0, 0)]]), None);
    assert_eq!(shown(&[idle, idle, [(60, 900), (0, 0)]]), None);
    assert_eq!(shown(&[]), None);
}

/// Goal: the readings of a long run take the places of the oldest, and overwritten ones are not read.
#[test]
fn the_oldest_are_overwritten() {
    let idle = [(50, 0), (0, 0)];
    let mut many = vec![idle; 3 * READINGS];
    many.push([(60, 300), (0, 0)]);
    assert_eq!(shown(&many).map(|kept| kept.length_ns), Some(300 * US));
    let mut history = History::new(1);
    history.begin(0);
    history.end();
    assert_eq!(history.forget(), None);
    assert_eq!(history.past(0, 1), None);
}

/// Goal: this process's threads are read; when one starts, nothing is called a stall until it has ended.
#[test]
fn threads_that_come_are_seen() {
    // A process of its own: other tests come and go in this one.
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let threads = TargetThreads::open(&[child.id()]);
    if let Some(threads) = threads {
        assert!(threads.are_complete());
        let mut watch = TargetWatch::new(&Arc::new(threads));
        let mut readings = |has_events, at_us: u64| {
            assert_eq!(watch.look(has_events, at_us * US), None);
            watch.history.count
        };
        assert_eq!(readings(false, 1), 1);
        assert_eq!(readings(true, 80), 2, "the first event after a silence");
        assert_eq!(readings(true, 120), 2, "no silence, and before its time");
        assert_eq!(readings(false, 181), 3);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(readings(false, 1_000), 0);
    }
    let _ = child.kill();
    let _ = child.wait();
    assert!(TargetThreads::open(&[]).is_none());
    assert!(TargetThreads::open(&[u32::MAX]).is_none());
}

/// Goal: a process that shares its CPU with another's busy loop is seen to wait for that.
#[test]
fn a_neighbour_is_seen() {
    let busy_loop = || {
        let mut command = std::process::Command::new("sh");
        let child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut one = rustix::thread::CpuSet::new();
        one.set(millpond_io::allowed_cpus().unwrap()[0]);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::thread::sched_setaffinity(Some(pid), &one).unwrap();
        child
    };
    let (mut target, mut neighbour) = (busy_loop(), busy_loop());
    if let Some(threads) = TargetThreads::open(&[target.id()]) {
        let mut watch = TargetWatch::new(&Arc::new(threads));
        let began = std::time::Instant::now();
        let now_ns = || 1 + began.elapsed().as_nanos() as u64;
        // Each runs for some milliseconds at a time; how many is the kernel's business.
        while watch.look(false, now_ns()).is_none() {
            assert!(began.elapsed().as_secs() < 60, "never kept from its CPU");
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
    for child in [&mut target, &mut neighbour] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
