//! Where a thread keeps its heap: words that every thread has and finds without asking anyone.
//!
//! On the path: each allocation and each free begins with one load from here.
//! In a shared object the compiler would find a `thread_local!` by a call into the dynamic linker,
//! which costs more than the allocation and may itself allocate. The words are therefore defined and
//! read in assembly, at a fixed distance from the thread pointer (the "initial exec" model); other
//! processors, and Miri, do with `thread_local!`.
//! Absent on purpose: anything to drop. The words are good until the thread's last instruction.
#![allow(unsafe_code)]
use super::thread_heap::ThreadHeap;

/// How far the thread has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub(super) enum Stage {
    /// It has not asked for memory yet.
    Fresh = 0,
    /// It has, or may have, a heap.
    Running = 1,
    /// It has given its heap up and gets none again; what still runs on it are others' clean-ups.
    Ended = 2,
}

/// The calling thread's heap; null when it has none.
#[inline(always)]
pub(super) fn heap() -> *mut ThreadHeap {
    word::heap()
}

pub(super) fn set_heap(heap: *mut ThreadHeap) {
    word::set_heap(heap);
}

/// The calling thread's stage.
pub(super) fn stage() -> Stage {
    match word::stage() {
        0 => Stage::Fresh,
        1 => Stage::Running,
        _ => Stage::Ended,
    }
}

pub(super) fn set_stage(stage: Stage) {
    word::set_stage(stage as usize);
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod word {
    use super::ThreadHeap;
    use std::arch::{asm, global_asm};

    // Two zeroed words of thread-local storage, visible inside this object only.
    global_asm!(
        ".pushsection .tbss.millpond_malloc,\"awT\",@nobits",
        ".globl millpond_malloc_slot",
        ".hidden millpond_malloc_slot",
        ".type millpond_malloc_slot,@object",
        ".size millpond_malloc_slot,16",
        ".balign 16",
        "millpond_malloc_slot:",
        ".zero 16",
        ".popsection",
    );

    #[inline(always)]
    pub(super) fn heap() -> *mut ThreadHeap {
        let heap;
        // SAFETY: the first instruction loads the distance of the words above from the thread
        // pointer, which the linker keeps in the table of offsets; the second loads the first word.
        // Only this thread writes it, through the functions below.
        unsafe {
            asm!(
                "mov {heap}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov {heap}, qword ptr fs:[{heap}]",
                heap = out(reg) heap,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        heap
    }

    pub(super) fn set_heap(heap: *mut ThreadHeap) {
        // SAFETY: as above, with a store to the first word.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov qword ptr fs:[{at}], {heap}",
                at = out(reg) _,
                heap = in(reg) heap,
                options(nostack, preserves_flags),
            );
        }
    }

    pub(super) fn stage() -> usize {
        let stage;
        // SAFETY: as above, with the second word.
        unsafe {
            asm!(
                "mov {stage}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov {stage}, qword ptr fs:[{stage} + 8]",
                stage = out(reg) stage,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        stage
    }

    pub(super) fn set_stage(stage: usize) {
        // SAFETY: as above, with a store to the second word.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov qword ptr fs:[{at} + 8], {stage}",
                at = out(reg) _,
                stage = in(reg) stage,
                options(nostack, preserves_flags),
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod word {
    use super::ThreadHeap;
    use std::cell::Cell;
    use std::ptr;

    thread_local! {
        static HEAP: Cell<*mut ThreadHeap> = const { Cell::new(ptr::null_mut()) };
        static STAGE: Cell<usize> = const { Cell::new(0) };
    }

    #[inline(always)]
    pub(super) fn heap() -> *mut ThreadHeap {
        HEAP.get()
    }

    pub(super) fn set_heap(heap: *mut ThreadHeap) {
        HEAP.set(heap);
    }

    pub(super) fn stage() -> usize {
        STAGE.get()
    }

    pub(super) fn set_stage(stage: usize) {
        STAGE.set(stage);
    }
}
