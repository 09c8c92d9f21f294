use super::*;

/// Goal: the first two numbers are taken, whatever follows, and other texts are none.
#[test]
fn the_kernels_line_is_read() {
    let times = ThreadTimes {
        cpu_ns: 12,
        waited_ns: 3,
    };
    assert_eq!(ThreadTimes::parse("12 3 4\n"), Some(times));
    assert_eq!(ThreadTimes::parse("12"), None);
    assert_eq!(ThreadTimes::parse("12 x 4"), None);
    let later = ThreadTimes {
        cpu_ns: 20,
        waited_ns: 2,
    };
    let since = later.since(times);
    assert_eq!((since.cpu_ns, since.waited_ns), (8, 0));
}
