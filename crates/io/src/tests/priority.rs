use super::*;
use rustix::process::getpriority_process;

/// Goal: only one thread is raised, not the process, and only if permitted.
#[test]
fn one_thread_is_raised() {
    let before = getpriority_process(None).unwrap();
    let is_permitted = may_raise_priority();
    let raised = std::thread::spawn(|| {
        (
            raise_thread_priority().is_ok(),
            getpriority_process(None).unwrap(),
        )
    });
    let (is_raised, nice) = raised.join().unwrap();
    assert_eq!(is_raised, is_permitted);
    assert_eq!(nice, if is_raised { HIGHEST } else { before });
    assert_eq!(getpriority_process(None).unwrap(), before);
}
