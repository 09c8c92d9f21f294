use super::*;
use core::ffi::c_long;

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// Goal: a thread of one user takes no record from a living process of another's, which would count
/// into it at the same time: calls of both would be lost.
#[test]
fn a_process_of_another_user_is_there() {
    const SETRESUID: c_long = if cfg!(target_arch = "x86_64") {
        117
    } else {
        147
    };
    let nobody: c_long = 65_534;
    let asked = std::thread::spawn(move || {
        // SAFETY: the system call itself changes the calling thread only, which ends; without the
        // right to it this thread is another user than the first process already.
        unsafe { syscall(SETRESUID, nobody, nobody, nobody) };
        is_gone(1)
    });
    assert!(!asked.join().unwrap());
    // Above all numbers that Linux gives (PID_MAX_LIMIT): that of a process that has ended may be
    // another's by now.
    assert!(is_gone(1 << 22));
}
