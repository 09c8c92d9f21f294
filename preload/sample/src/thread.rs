//! How many bytes a thread has left until its next sample.
//!
//! The number lives in the thread's own static block, reached by a fixed distance from the thread
//! pointer (the initial-exec model): it is there and zero from the thread's first instruction, and
//! reaching it neither calls nor allocates. Rust has no stable name for such a variable, so its
//! storage and its address are assembly.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use crate::file::{self, State};
use crate::{next, unwind};
use millpond_preload_shared::sampling;

/// Time until the next check for the file: only code that runs before the constructor waits.
const EARLY_BYTES: i64 = 64 * 1024;
const THREAD_BYTES: usize = 32;

/// Zero at first.
#[repr(C)]
struct Thread {
    /// Until the next sample; below zero: it is due.
    left_bytes: i64,
    /// The state of its random numbers; 0: none were drawn yet.
    random: u64,
    /// The process that `random` belongs to: a child of fork begins with its parent's.
    pid: u64,
    /// 1 while a sample is taken: its own allocations are not sampled.
    busy: u64,
}

const _: () = assert!(size_of::<Thread>() == THREAD_BYTES);

impl Thread {
    /// Bytes until the next sample.
    fn distance(&mut self, mean_bytes: u64) -> i64 {
        self.random = sampling::next_random(self.random);
        i64::try_from(sampling::gap_bytes(self.random, mean_bytes)).unwrap_or(i64::MAX)
    }
}

global_asm!(
    ".pushsection .tbss.millpond_sample_thread,\"awT\",@nobits",
    ".globl millpond_sample_thread",
    ".hidden millpond_sample_thread",
    ".type millpond_sample_thread, @object",
    ".size millpond_sample_thread, 32",
    ".balign 32",
    "millpond_sample_thread:",
    ".zero 32",
    ".popsection",
);

/// The calling thread's block, valid until the thread ends.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn own() -> *mut Thread {
    let at: *mut Thread;
    // SAFETY: reads the distance that the dynamic linker wrote, and the thread pointer, which on this
    // platform is stored at its own address.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + millpond_sample_thread@GOTTPOFF]",
            "add {at}, qword ptr fs:[0]",
            at = out(reg) at,
            options(pure, nomem, nostack),
        );
    }
    at
}

/// The calling thread's block, valid until the thread ends.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn own() -> *mut Thread {
    let at: *mut Thread;
    // SAFETY: reads the distance that the dynamic linker wrote, and the thread pointer.
    unsafe {
        asm!(
            "adrp {at}, :gottprel:millpond_sample_thread",
            "ldr {at}, [{at}, :gottprel_lo12:millpond_sample_thread]",
            "mrs {pointer}, tpidr_el0",
            "add {at}, {at}, {pointer}",
            at = out(reg) at,
            pointer = out(reg) _,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    at
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the sampler knows thread storage of x86_64 and aarch64 only");

/// A heap call of that size is about to be made.
#[inline(always)]
pub(crate) fn asked_for(size_bytes: usize) {
    // Nothing at all is a call too. What no address space has, and no allocator gives, may wrap.
    let size_bytes = size_bytes.max(1) as i64;
    // SAFETY: the block belongs to this thread alone, and no reference to it outlives a statement.
    unsafe {
        let thread = own();
        (*thread).left_bytes = (*thread).left_bytes.wrapping_sub(size_bytes);
        if (*thread).left_bytes < 0 {
            due(&mut *thread, size_bytes);
        }
    }
}

/// The number fell below zero: a sample, or the thread's first call.
#[cold]
#[inline(never)]
fn due(thread: &mut Thread, size_bytes: i64) {
    if thread.busy != 0 {
        thread.left_bytes = 0;
        return;
    }
    let mean_bytes = match file::state() {
        State::Ready { mean_bytes } => mean_bytes,
        State::Early => {
            thread.left_bytes = EARLY_BYTES;
            return;
        }
        State::Absent => {
            thread.left_bytes = i64::MAX;
            return;
        }
    };
    let is_first = thread.random == 0;
    let pid = file::pid();
    if thread.pid != pid {
        seed(thread, pid);
    }
    thread.left_bytes = thread.distance(mean_bytes);
    if is_first {
        // This thread's process begins here, before this call.
        thread.left_bytes = thread.left_bytes.saturating_sub(size_bytes);
        if thread.left_bytes >= 0 {
            return;
        }
        thread.left_bytes = thread.distance(mean_bytes);
    }
    if !file::is_active() {
        return;
    }
    thread.busy = 1;
    // A call that succeeds leaves errno as it was; the unwinder need not.
    let errno = next::errno();
    let mut stack = unwind::Stack::new();
    stack.take();
    file::write(size_bytes as u64, pid, &stack);
    next::set_errno(errno);
    thread.busy = 0;
}

/// Random numbers of its own for each thread of each process, the same in every run with the same
/// seed and the same order of threads' first calls.
fn seed(thread: &mut Thread, pid: u64) {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    let seed = file::seed() ^ (number << 32) ^ file::process_number(pid);
    thread.random = sampling::seed(seed).max(1);
    thread.pid = pid;
}

#[cfg(test)]
#[path = "tests/thread.rs"]
mod tests;
