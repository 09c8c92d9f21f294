//! One pointer for each thread, which malloc can read without a call.
//!
//! On x86_64 it is a word of initial-exec thread-local storage, two instructions away. The stable
//! compiler has no such variables outside the standard library, so the word is declared and reached
//! in assembly; initial-exec is right for an object that is loaded with the program, and never
//! allocates. On other processors it is a key of pthread, which costs a call.
//!
//! Invariant: what `get` returns is what this thread last set; null before that, and in every new
//! thread.

use core::ffi::c_void;

#[cfg(target_arch = "x86_64")]
mod word {
    use super::c_void;
    use core::arch::{asm, global_asm};

    // Hidden, so that it stays inside this object; global, since this block may be assembled apart.
    global_asm!(
        ".pushsection .tbss,\"awT\",@nobits",
        ".globl millpond_trace_thread",
        ".hidden millpond_trace_thread",
        ".type millpond_trace_thread, @object",
        ".size millpond_trace_thread, 8",
        ".p2align 3",
        "millpond_trace_thread:",
        ".zero 8",
        ".popsection",
    );

    #[inline(always)]
    pub(crate) fn get() -> *mut c_void {
        let value: *mut c_void;
        // SAFETY: the first instruction loads the word's offset from the thread pointer, which the
        // dynamic linker has filled in; the second reads the calling thread's own word, 8 bytes
        // that are part of its static thread-local storage from its start to its end.
        unsafe {
            asm!(
                "mov {value}, qword ptr [rip + millpond_trace_thread@GOTTPOFF]",
                "mov {value}, qword ptr fs:[{value}]",
                value = out(reg) value,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    pub(crate) fn set(value: *mut c_void) {
        // SAFETY: as in `get`; only this thread accesses the word.
        unsafe {
            asm!(
                "mov {offset}, qword ptr [rip + millpond_trace_thread@GOTTPOFF]",
                "mov qword ptr fs:[{offset}], {value}",
                offset = out(reg) _,
                value = in(reg) value,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod word {
    use super::{KEY, c_void, pthread_getspecific, pthread_setspecific};
    use core::sync::atomic::Ordering;

    pub(crate) fn get() -> *mut c_void {
        match KEY.load(Ordering::Acquire) {
            0 => core::ptr::null_mut(),
            // SAFETY: the key was made by `prepare`, which stored it plus 1.
            key => unsafe { pthread_getspecific(key - 1) },
        }
    }

    pub(crate) fn set(value: *mut c_void) {
        let key = KEY.load(Ordering::Acquire);
        if key != 0 {
            // SAFETY: as in `get`; the value is never dereferenced by pthread.
            unsafe { pthread_setspecific(key - 1, value) };
        }
    }
}

pub(crate) use word::{get, set};

use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU32, Ordering};

unsafe extern "C" {
    fn pthread_key_create(
        key: *mut c_uint,
        destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn pthread_setspecific(key: c_uint, value: *const c_void) -> c_int;
    #[cfg(not(target_arch = "x86_64"))]
    fn pthread_getspecific(key: c_uint) -> *mut c_void;
}

/// The key whose destructor reports a thread's end, plus 1; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Makes `at_end` be called, with what `watch` was given, when a thread ends. Once, before any thread
/// is watched.
pub(crate) fn prepare(at_end: unsafe extern "C" fn(*mut c_void)) {
    let mut key: c_uint = 0;
    // SAFETY: `key` may be written; the destructor takes what `watch` gives.
    if unsafe { pthread_key_create(&raw mut key, Some(at_end)) } == 0 {
        KEY.store(key + 1, Ordering::Release);
    }
}

/// Watches the calling thread; may allocate, so that `set` has to come first.
pub(crate) fn watch(value: *mut c_void) {
    let key = KEY.load(Ordering::Acquire);
    if key != 0 {
        // SAFETY: `prepare` made the key; the value is only handed back to the destructor.
        unsafe { pthread_setspecific(key - 1, value) };
    }
}

#[cfg(test)]
#[path = "tests/thread_slot.rs"]
mod tests;
