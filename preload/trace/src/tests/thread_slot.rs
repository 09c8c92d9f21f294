use super::*;
use core::ptr;

/// Goal: each thread has its own word, null at first.
#[cfg(target_arch = "x86_64")]
#[test]
fn every_thread_has_its_own() {
    assert!(get().is_null());
    set(ptr::without_provenance_mut(24));
    let other = std::thread::spawn(|| {
        let first = get().addr();
        set(ptr::without_provenance_mut(48));
        (first, get().addr())
    });
    assert_eq!(other.join().expect("no panic"), (0, 48));
    assert_eq!(get().addr(), 24);
    set(ptr::null_mut());
}
