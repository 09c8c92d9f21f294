use super::*;

/// Goal: the kernel takes it and returns it if it supports slices, and nothing else changes.
#[test]
fn a_slice_is_all_that_changes() {
    let thread = std::thread::spawn(|| {
        let before = current().unwrap();
        ask_for(200_000).unwrap();
        (before, current().unwrap())
    });
    let (before, after) = thread.join().unwrap();
    assert_eq!(before.policy, after.policy);
    assert_eq!(before.nice, after.nice);
    assert_eq!(before.priority, after.priority);
    let is_known = after.runtime_ns == 200_000;
    assert!(
        is_known || after.runtime_ns == before.runtime_ns,
        "{after:?}"
    );
}
