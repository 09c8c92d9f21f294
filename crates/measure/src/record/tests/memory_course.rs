use super::*;

fn series(count: u64, is_private: bool) -> MemorySeries {
    let mut series = MemorySeries::default();
    for index in 0..count {
        let bytes = if index == 77 {
            9_000_000
        } else {
            1_000_000 + index
        };
        let memory = is_private.then_some(bytes / 2);
        series.push(index * 50_000_000, bytes, memory);
    }
    series
}

/// Goal: few points, in order, with the peak and the end among them, of memory where it is known and of RSS at the
/// same moments.
#[test]
fn peaks_and_the_end_stay() {
    let course = MemoryCourse::thinned(&series(1_000, true)).unwrap();
    assert!(course.at_ns.len() <= POINTS_MAX && course.at_ns.len() > POINTS_MAX / 2);
    assert!(course.at_ns.is_sorted() && course.is_private());
    assert_eq!(course.rss_bytes.iter().max(), Some(&9_000_000));
    assert_eq!(course.memory_bytes.iter().max(), Some(&4_500_000));
    assert_eq!(course.at_ns.last(), Some(&(999 * 50_000_000)));
    assert_eq!(course.rss_bytes.last(), Some(&1_000_999));
    assert_eq!(course.points().last(), Some((49.95, 500_499.0)));
    let short = MemoryCourse::thinned(&series(3, false)).unwrap();
    assert_eq!(short.points().count(), 3);
    assert_eq!(short.points().last(), Some((0.1, 1_000_002.0)));
    assert_eq!(MemoryCourse::thinned(&series(1, true)), None);
}

/// Goal: a clock continues where another series is added, and a separate reading stands at its time; one sample without
/// memory leaves RSS alone.
#[test]
fn a_series_goes_on() {
    let mut all = series(3, true);
    all.insert(70_000_000, 12, Some(5));
    let memory = |all: &MemorySeries| all.memory().unwrap().points.clone();
    assert_eq!(
        (memory(&all)[2].at_ns, memory(&all)[2].value),
        (70_000_000, 5.0)
    );
    assert_eq!(all.rss.points.len(), 4);
    let mut all = series(3, true);
    all.append(&series(2, true), all.end_ns());
    let at_ns: Vec<u64> = all.rss.points.iter().map(|point| point.at_ns).collect();
    assert_eq!(
        at_ns,
        [0, 50_000_000, 100_000_000, 100_000_000, 150_000_000]
    );
    assert_eq!(all.memory().map(|memory| memory.points.len()), Some(5));
    all.append(&series(1, false), all.end_ns());
    assert_eq!(all.memory(), None);
    assert_eq!(all.best(), &all.rss);
    assert_eq!(MemorySeries::default().memory(), None);
}

/// Goal: a mark lies on the drawn line, before its first point and after its last one too.
#[test]
fn marks_lie_on_the_line() {
    let course = MemoryCourse {
        at_ns: vec![1_000_000_000, 3_000_000_000],
        rss_bytes: vec![100, 300],
        ..MemoryCourse::default()
    };
    let found = [0.5, 1.0, 2.0, 3.0, 9.0].map(|at_s| course.bytes_at(at_s));
    assert_eq!(found, [100.0, 100.0, 200.0, 300.0, 300.0]);
    assert_eq!(MemoryCourse::default().bytes_at(1.0), 0.0);
}
