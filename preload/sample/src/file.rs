//! The records, in a file that is shared with the lab.
//!
//! Its layout is `millpond_preload_shared::sample_file`.

use core::ffi::{CStr, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use millpond_preload_shared::sample_file::{
    ACTIVE, BARE, CAPACITY, DROPPED, MAGIC, MEAN_BYTES, PROGRAMS, RECORD_FINISHED,
    RECORD_HEAD_WORDS, RECORD_MARK, RECORDS, SEED, SIZE_CUT, USED, WORD_BYTES,
};

use crate::mapping;
use crate::unwind::Stack;

const PATH_VARIABLE: &CStr = c"MILLPOND_SAMPLE_FILE";

unsafe extern "C" {
    fn getpid() -> c_int;
}

const EARLY: u8 = 0;
const READY: u8 = 1;
const ABSENT: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(EARLY);
static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// Words of the whole mapping.
static LEN: AtomicU64 = AtomicU64::new(0);
/// The process that attached; its forks have the same addresses.
static FIRST_PID: AtomicU64 = AtomicU64::new(0);

/// Whether there is a file.
pub(crate) enum State {
    /// Not searched for yet: the constructor has not run.
    Early,
    /// It is there.
    Ready {
        /// The mean distance of two samples.
        mean_bytes: u64,
    },
    /// There is none, for good.
    Absent,
}

pub(crate) fn state() -> State {
    match STATE.load(Ordering::Acquire) {
        READY => State::Ready {
            mean_bytes: word(MEAN_BYTES).map_or(u64::MAX, |word| word.load(Ordering::Relaxed)),
        },
        ABSENT => State::Absent,
        _ => State::Early,
    }
}

/// Maps the lab's file; true if it is usable. Without one nothing changes: a target must never fail
/// because of its observer.
pub(crate) fn map() -> bool {
    let is_there = map_file().is_some();
    if !is_there {
        STATE.store(ABSENT, Ordering::Release);
    }
    is_there
}

/// Samples may be written from now on.
pub(crate) fn begin() {
    let Some(programs) = word(PROGRAMS) else {
        return;
    };
    programs.fetch_add(1, Ordering::Relaxed);
    FIRST_PID.store(pid(), Ordering::Relaxed);
    STATE.store(READY, Ordering::Release);
}

/// Whether samples are requested now.
pub(crate) fn is_active() -> bool {
    word(ACTIVE).is_some_and(|word| word.load(Ordering::Relaxed) != 0)
}

pub(crate) fn seed() -> u64 {
    word(SEED).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// The calling process.
pub(crate) fn pid() -> u64 {
    // SAFETY: getpid has no preconditions.
    unsafe { getpid() as u64 }
}

/// Distinguishes processes with the same program: 0 for the first, so that a run can be repeated.
pub(crate) fn process_number(pid: u64) -> u64 {
    pid.wrapping_sub(FIRST_PID.load(Ordering::Relaxed))
}

/// Writes one sample, or counts that there was no room for it.
pub(crate) fn write(size_bytes: u64, pid: u64, stack: &Stack) {
    let frames = stack.frames();
    let (Some(capacity), Some(used), Some(dropped), Some(bare)) =
        (word(CAPACITY), word(USED), word(DROPPED), word(BARE))
    else {
        return;
    };
    if frames.is_empty() {
        bare.fetch_add(1, Ordering::Relaxed);
    }
    let words = RECORD_HEAD_WORDS + frames.len();
    let start = used.fetch_add(words as u64, Ordering::Relaxed);
    let end = start.saturating_add(words as u64);
    if end > capacity.load(Ordering::Relaxed) {
        dropped.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let at = RECORDS + start as usize;
    let put = |offset: usize, value: u64, ordering| {
        if let Some(word) = word(at + offset) {
            word.store(value, ordering);
        }
    };
    let head = RECORD_MARK | words as u64;
    put(0, head, Ordering::Relaxed);
    put(
        1,
        pid << 32 | FIRST_PID.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    let cut = if stack.is_cut { SIZE_CUT } else { 0 };
    put(2, size_bytes & !SIZE_CUT | cut, Ordering::Relaxed);
    for (index, &address) in frames.iter().enumerate() {
        put(RECORD_HEAD_WORDS + index, address as u64, Ordering::Relaxed);
    }
    put(0, head | RECORD_FINISHED, Ordering::Release);
}

/// A word of the mapping; `None` outside of it, or without one.
fn word(index: usize) -> Option<&'static AtomicU64> {
    let words = WORDS.load(Ordering::Acquire);
    if words.is_null() || index as u64 >= LEN.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: `map_file` mapped LEN words there, page aligned, for good; any bytes are valid atomics.
    Some(unsafe { &*words.add(index) })
}

fn map_file() -> Option<()> {
    let (mapping, len_bytes) = mapping::of_file_in(PATH_VARIABLE, RECORDS * WORD_BYTES)?;
    let words: *mut AtomicU64 = mapping.cast();
    let len = len_bytes / WORD_BYTES;
    // SAFETY: the mapping has at least RECORDS words.
    let header = |index: usize| unsafe { (*words.add(index)).load(Ordering::Relaxed) };
    let fits = header(CAPACITY) <= (len - RECORDS) as u64 && header(MEAN_BYTES) > 0;
    if header(0) != MAGIC || !fits {
        return None;
    }
    LEN.store(len as u64, Ordering::Relaxed);
    WORDS.store(words, Ordering::Release);
    Some(())
}
