use super::*;
use std::process::{Command, Stdio};

/// Until `count` has grown by so many.
fn wait_for(count: &AtomicUsize, more: usize) {
    let until = count.load(Ordering::Relaxed) + more;
    while count.load(Ordering::Relaxed) < until {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Goal: samples come while it runs, in order; a process that has ended ends it.
#[test]
fn samples_follow_a_process() {
    let sampler = Sampler::start(ProcessTree::new(std::process::id()), None, 1);
    wait_for(&sampler.progress.samples, 3);
    let series = sampler.finish();
    for series in [&series.rss, series.best()] {
        assert!(series.points.len() >= 3);
        let mut pairs = series.points.windows(2);
        assert!(pairs.all(|pair| pair[0].at_ns < pair[1].at_ns));
        assert!(series.points.iter().all(|point| point.value > 0.0));
    }
    let gone = Sampler::start(ProcessTree::new(u32::MAX - 1), None, 1);
    assert!(gone.finish().rss.points.is_empty());
}

/// With eighteen servers on a busy machine the pause after a reading was longer than an idle phase: nine of ten rounds
/// had no memory after the burst.
///
/// Goal: a pause grows with the cost of readings, by the number of samplers, and never above half a second.
#[test]
fn pauses_are_bounded() {
    let members = |rest_share| Members {
        tree: ProcessTree::new(std::process::id()),
        procs: None,
        pids: Vec::new(),
        next_search: Instant::now(),
        rest_share,
    };
    let ms = Duration::from_millis;
    assert_eq!(members(TIME_SHARE).rest(ms(1)), INTERVAL);
    assert_eq!(members(TIME_SHARE).rest(ms(5)), ms(100));
    assert_eq!(members(TIME_SHARE * 18).rest(ms(1)), ms(360));
    assert_eq!(members(TIME_SHARE * 18).rest(ms(20)), INTERVAL_MAX);
}

/// Workers that a server started later were never seen: the picture of its memory showed its parent's.
///
/// Goal: a process that is started while it runs is in the sum after the next search.
#[test]
fn processes_that_come_later_are_counted() {
    const LEAST_BYTES: u64 = 48 << 20;
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "read go; (head -c 64M /dev/zero; sleep 60) | tail"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let tree = ProcessTree::new(shell.id());
    let sampler = Sampler::start(tree.clone(), None, 1);
    wait_for(&sampler.progress.samples, 1);
    drop(shell.stdin.take());
    let rss_bytes = || {
        tree.memory_of(&tree.members())
            .map_or(0, |(it, _)| it.rss_bytes)
    };
    while rss_bytes() < LEAST_BYTES {
        thread::sleep(INTERVAL);
    }
    // The first one may have begun before.
    wait_for(&sampler.progress.searches, 2);
    wait_for(&sampler.progress.samples, 1);
    for pid in tree.members() {
        // The end of one may have ended another by now.
        let _ = Command::new("/bin/kill").arg(pid.to_string()).status();
    }
    shell.wait().unwrap();
    let points = sampler.finish().rss.points;
    let is_seen = points.iter().any(|point| point.value > LEAST_BYTES as f64);
    assert!(is_seen, "{points:?}");
}
