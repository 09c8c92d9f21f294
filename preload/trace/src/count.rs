//! The counters: one record for each thread, in memory shared with the lab.
//!
//! Every interposed call. A thread counts into a record that no other thread writes, with plain additions; a thread
//! that has none (before the file is mapped, while a thread ends, or when all are taken) shares one with atomic
//! additions. The layout is `millpond_preload_shared::heap_file`.
//!
//! A block is sampled when the bytes asked for by its thread reach the next point (`sampling`).

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use millpond_preload_shared::heap_file::{
    HeapFile, MAGIC, PROCESSES, Process, SIZE_CLASSES, THREADS, Thread, size_class,
};
use millpond_preload_shared::sampling::{gap_bytes, next_random, seed};

use crate::mapping;
use crate::next;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::regions;
use crate::samples::{Sample, Samples, now_ns};
use crate::thread_slot;

const PATH_VARIABLE: &CStr = c"MILLPOND_TRACE_FILE";
const FILE_BYTES: usize = size_of::<HeapFile>();

/// No such process.
const ESRCH: c_int = 3;

/// Instead of a thread's record: it counts into the shared one from now on.
const SHARED_FROM_NOW_ON: usize = 1;
/// No sample for this long: there are none.
const NEVER_BYTES: u64 = i64::MAX as u64;

unsafe extern "C" {
    fn getpid() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn pthread_atfork(
        before: Option<extern "C" fn()>,
        in_parent: Option<extern "C" fn()>,
        in_child: Option<extern "C" fn()>,
    ) -> c_int;
}

struct EarlyThread(UnsafeCell<Thread>);
// SAFETY: only atomics inside; the cell keeps the static in writable memory.
unsafe impl Sync for EarlyThread {}

/// Counts what happens before the file is mapped, and for good if there is none.
static EARLY: EarlyThread = EarlyThread(UnsafeCell::new(Thread {
    taken: AtomicU64::new(0),
    number: AtomicU64::new(0),
    left_bytes: AtomicU64::new(0),
    random: AtomicU64::new(0),
    bytes: AtomicU64::new(0),
    frees: AtomicU64::new(0),
    reallocations: AtomicU64::new(0),
    sizes: [const { AtomicU64::new(0) }; SIZE_CLASSES],
}));
static FILE: AtomicPtr<HeapFile> = AtomicPtr::new(ptr::null_mut());
/// The number of this process in the file; 0 takes no samples.
static PROCESS: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn file() -> Option<&'static HeapFile> {
    // SAFETY: null, or a mapping of FILE_BYTES, checked against the file's size, that is never
    // unmapped and holds only atomics.
    unsafe { FILE.load(Ordering::Acquire).as_ref() }
}

fn samples(file: &HeapFile) -> Samples<'_> {
    Samples {
        file,
        process: PROCESS.load(Ordering::Relaxed),
    }
}

/// The calling thread's own record.
#[inline(always)]
fn own() -> Option<&'static Thread> {
    let record = thread_slot::get().cast::<Thread>();
    // SAFETY: beyond the marker the word only ever holds a record of the mapped file, which stays.
    (record.addr() > SHARED_FROM_NOW_ON).then(|| unsafe { &*record })
}

/// The record of threads that have none.
fn shared() -> &'static Thread {
    match file().and_then(|file| file.threads.first()) {
        Some(thread) => thread,
        // SAFETY: the static lives for ever and holds only atomics.
        None => unsafe { &*EARLY.0.get() },
    }
}

/// Adds to a word that only this thread writes: no locked instruction.
#[inline(always)]
fn bump(word: &AtomicU64, value: u64) {
    word.store(
        word.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

/// A block of `size_bytes` was asked for, and `block` is the result.
#[inline]
pub(crate) fn asked(size_bytes: usize, block: *const c_void) {
    let (Some(thread), false) = (own(), block.is_null()) else {
        return asked_without_record(size_bytes, block);
    };
    if let Some(count) = thread.sizes.get(size_class(size_bytes)) {
        bump(count, 1);
    }
    bump(&thread.bytes, size_bytes as u64);
    let left_bytes = thread.left_bytes.load(Ordering::Relaxed) as i64 - size_bytes as i64;
    thread
        .left_bytes
        .store(left_bytes as u64, Ordering::Relaxed);
    if left_bytes < 0 {
        take_sample(thread, size_bytes, block);
    }
}

/// `realloc` of a block that exists, after `asked`.
#[inline]
pub(crate) fn was_reallocation() {
    match own() {
        Some(thread) => bump(&thread.reallocations, 1),
        None => _ = shared().reallocations.fetch_add(1, Ordering::Relaxed),
    }
}

/// `block` is about to be given back.
#[inline]
pub(crate) fn freed(block: *const c_void) {
    match own() {
        Some(thread) => bump(&thread.frees, 1),
        None => _ = shared().frees.fetch_add(1, Ordering::Relaxed),
    }
    if let Some(file) = file()
        && samples(file).may_hold(block)
    {
        end_sample(file, block);
    }
}

/// `block` is about to be moved or resized: what has to be undone if that fails.
#[inline]
pub(crate) fn before_move(block: *const c_void) -> Option<Sample> {
    let samples = samples(file()?);
    if samples.may_hold(block) {
        samples.remove(block)
    } else {
        None
    }
}

/// The block before a `realloc` ended with it...
pub(crate) fn moved(sample: Sample) {
    if let Some(file) = file() {
        samples(file).note_end(sample, own_number());
    }
}

/// ...or the call failed, and the block stays.
pub(crate) fn not_moved(block: *const c_void, sample: Sample) {
    if let Some(file) = file() {
        samples(file).insert(block, sample);
    }
}

fn own_number() -> u64 {
    own().map_or(0, |thread| thread.number.load(Ordering::Relaxed))
}

#[cold]
fn end_sample(file: &HeapFile, block: *const c_void) {
    let samples = samples(file);
    if let Some(sample) = samples.remove(block) {
        samples.note_end(sample, own_number());
    }
}

#[cold]
fn take_sample(thread: &Thread, size_bytes: usize, block: *const c_void) {
    let Some(file) = file() else { return };
    draw(thread, file.header.mean_bytes.load(Ordering::Relaxed));
    let samples = samples(file);
    if samples.process != 0 {
        let sample = Sample {
            size_bytes: size_bytes as u64,
            born_ns: now_ns(),
            thread: thread.number.load(Ordering::Relaxed),
        };
        samples.insert(block, sample);
    }
}

/// Continues to the next point that the bytes have not reached yet.
fn draw(thread: &Thread, mean_bytes: u64) {
    if mean_bytes == 0 {
        return thread.left_bytes.store(NEVER_BYTES, Ordering::Relaxed);
    }
    let mut random = thread.random.load(Ordering::Relaxed);
    let mut left_bytes = thread.left_bytes.load(Ordering::Relaxed) as i64;
    // One draw covers what a large block has passed: the process has no memory.
    random = next_random(random);
    left_bytes = left_bytes
        .max(0)
        .saturating_add(gap_bytes(random, mean_bytes) as i64);
    thread.random.store(random, Ordering::Relaxed);
    thread
        .left_bytes
        .store(left_bytes as u64, Ordering::Relaxed);
}

/// The same for a thread without a record of its own, which gets one if it can; and for a failed
/// call, whose bytes were not handed out.
#[cold]
#[inline(never)]
fn asked_without_record(size_bytes: usize, block: *const c_void) {
    if !block.is_null() && own().is_none() && claim() {
        return asked(size_bytes, block);
    }
    let thread = shared();
    if let Some(count) = thread.sizes.get(size_class(size_bytes)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    if !block.is_null() {
        thread.bytes.fetch_add(size_bytes as u64, Ordering::Relaxed);
    }
}

/// Gives the calling thread a record, if there is a file with one to spare.
fn claim() -> bool {
    let Some(file) = file() else { return false };
    if thread_slot::get().addr() == SHARED_FROM_NOW_ON {
        return false;
    }
    // SAFETY: getpid has no arguments and cannot fail.
    let pid = unsafe { getpid() } as u64;
    let records = || file.threads.iter().take(THREADS).skip(1);
    let take = |thread: &&Thread, from: u64| {
        thread
            .taken
            .compare_exchange(from, pid, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    };
    let found = records().find(|thread| take(thread, 0)).or_else(|| {
        // Processes that were killed gave nothing back.
        records().find(|thread| {
            let holder = thread.taken.load(Ordering::Relaxed);
            holder != 0 && is_gone(holder) && take(thread, holder)
        })
    });
    let Some(thread) = found else {
        thread_slot::set(ptr::without_provenance_mut(SHARED_FROM_NOW_ON));
        return false;
    };
    let number = file.header.thread_numbers.fetch_add(1, Ordering::Relaxed) + 1;
    thread.number.store(number, Ordering::Relaxed);
    thread.random.store(seed(number), Ordering::Relaxed);
    thread.left_bytes.store(0, Ordering::Relaxed);
    draw(thread, file.header.mean_bytes.load(Ordering::Relaxed));
    let record = ptr::from_ref(thread).cast_mut().cast::<c_void>();
    // First the record: the other call may allocate.
    thread_slot::set(record);
    thread_slot::watch(record);
    true
}

/// Whether no process has this number. One of another user, as a server's first process that workers
/// gave up their rights to, may not be signalled, and is there.
fn is_gone(pid: u64) -> bool {
    // A call that succeeds leaves errno as it was.
    let errno = next::errno();
    // SAFETY: signal 0 only asks whether the process is there.
    let is_gone = unsafe { kill(pid as c_int, 0) } != 0 && next::errno() == ESRCH;
    next::set_errno(errno);
    is_gone
}

/// A thread ends: another may have its record, whose counts stay.
unsafe extern "C" fn at_thread_end(_: *mut c_void) {
    let thread = own();
    thread_slot::set(ptr::without_provenance_mut(SHARED_FROM_NOW_ON));
    if let Some(thread) = thread {
        thread.taken.store(0, Ordering::Release);
    }
}

/// The child of a fork is another process with one thread: it leaves the records to its parent.
extern "C" fn in_forked_child() {
    thread_slot::set(ptr::null_mut());
    PROCESS.store(0, Ordering::Relaxed);
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    regions::in_forked_child();
    if let Some(file) = file() {
        enter_process(file);
    }
}

fn enter_process(file: &HeapFile) {
    // SAFETY: getpid has no arguments and cannot fail.
    let pid = unsafe { getpid() } as u64;
    let numbers = &file.header.process_numbers;
    let known = numbers.load(Ordering::Relaxed) as usize;
    // The program that this process ran before is gone with its heap.
    for earlier in file.processes.iter().take(known + 1).skip(1) {
        if earlier.pid.load(Ordering::Relaxed) == pid {
            retire(file, earlier);
        }
    }
    let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
    if number < PROCESSES as u64
        && let Some(process) = file.processes.get(number as usize)
    {
        process.pid.store(pid, Ordering::Relaxed);
        PROCESS.store(number, Ordering::Relaxed);
    }
}

fn retire(file: &HeapFile, process: &Process) {
    process.pid.store(0, Ordering::Relaxed);
    let held = process.live_bytes.swap(0, Ordering::Relaxed);
    file.header.live_bytes.fetch_sub(held, Ordering::Relaxed);
}

/// The process ends in order: nothing of its heap lives any more.
pub(crate) fn at_exit() {
    let number = PROCESS.swap(0, Ordering::Relaxed) as usize;
    if let Some(file) = file()
        && number != 0
        && let Some(process) = file.processes.get(number)
    {
        retire(file, process);
    }
}

/// Maps the lab's file and moves the early counts into it. Without a usable file nothing changes:
/// a target must never fail because of its observer.
pub(crate) fn attach() {
    let Some(mapped) = map_file() else { return };
    // SAFETY: `map_file` returned a live mapping of a whole file.
    let file = unsafe { &*mapped };
    let (from, to) = (shared(), &file.threads[0]);
    let words = |thread: &'static Thread| {
        let few = [&thread.bytes, &thread.frees, &thread.reallocations];
        few.into_iter().chain(&thread.sizes)
    };
    for (from, to) in words(from).zip(words(to)) {
        to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    file.header.attached.fetch_add(1, Ordering::Relaxed);
    enter_process(file);
    thread_slot::prepare(at_thread_end);
    FILE.store(mapped, Ordering::Release);
    // SAFETY: the handler is a function of this object, which is never unloaded.
    unsafe { pthread_atfork(None, None, Some(in_forked_child)) };
}

fn map_file() -> Option<*mut HeapFile> {
    let (mapping, _) = mapping::of_file_in(PATH_VARIABLE, FILE_BYTES)?;
    let mapped: *mut HeapFile = mapping.cast();
    // SAFETY: the mapping is page aligned and at least FILE_BYTES long, and any bytes are valid atomics.
    let header = unsafe { &(*mapped).header };
    let known = header.magic.load(Ordering::Relaxed) == MAGIC
        && header.file_bytes.load(Ordering::Relaxed) == FILE_BYTES as u64;
    known.then_some(mapped)
}

#[cfg(test)]
#[path = "tests/count.rs"]
mod tests;
