//! Where a thread keeps its heap: words that every thread finds without a call.
//!
//! Each allocation and each free begins with one load from here. In a shared object the compiler would find a
//! `thread_local!` by a call into the dynamic linker, which costs more than the allocation and may itself allocate. The
//! words are therefore defined and read in assembly, at a fixed distance from the thread pointer (the "initial exec"
//! model); other processors, and Miri, use `thread_local!`. The words are valid until the thread's last instruction.
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
    /// It has given up its heap and gets no new one; only clean-up code of other libraries still runs.
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
    use std::ptr;

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

    const HEAP_OFFSET: usize = 0;
    const STAGE_OFFSET: usize = 8;

    #[inline(always)]
    pub(super) fn heap() -> *mut ThreadHeap {
        read::<HEAP_OFFSET>()
    }

    pub(super) fn set_heap(heap: *mut ThreadHeap) {
        write::<HEAP_OFFSET>(heap);
    }

    pub(super) fn stage() -> usize {
        read::<STAGE_OFFSET>().addr()
    }

    pub(super) fn set_stage(stage: usize) {
        write::<STAGE_OFFSET>(ptr::without_provenance_mut(stage));
    }

    /// One of the words.
    #[inline(always)]
    fn read<const OFFSET: usize>() -> *mut ThreadHeap {
        let word;
        // SAFETY: the first instruction loads the distance of the words above from the thread
        // pointer, which the linker keeps in the table of offsets; the second loads one of them.
        // Only this thread writes it, through the function below.
        unsafe {
            asm!(
                "mov {word}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov {word}, qword ptr fs:[{word} + {offset}]",
                word = out(reg) word,
                offset = const OFFSET,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        word
    }

    #[inline(always)]
    fn write<const OFFSET: usize>(word: *mut ThreadHeap) {
        // SAFETY: as above, with a store.
        unsafe {
            asm!(
                "mov {at}, qword ptr [rip + millpond_malloc_slot@GOTTPOFF]",
                "mov qword ptr fs:[{at} + {offset}], {word}",
                at = out(reg) _,
                offset = const OFFSET,
                word = in(reg) word,
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
