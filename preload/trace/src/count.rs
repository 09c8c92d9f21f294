//! The counters: relaxed atomics in shards, in memory shared with the lab.
//!
//! Layout of the file, in native-endian u64 words, one 128-byte line each, so that two threads
//! seldom write the same cache line (line pairs are fetched together):
//! line 0 `[magic, shard count]`; line 1.. one shard each: `[allocations, reallocations, frees,
//! bytes requested, processes attached]`. A total is the sum over the shards.
//! The lab (`lab::trace`) writes line 0 and knows the same constants.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const MAGIC: u64 = u64::from_ne_bytes(*b"mpTrace1");
const SHARDS: usize = 64;
const LINE_WORDS: usize = 16;
const TABLE_BYTES: usize = (1 + SHARDS) * LINE_WORDS * size_of::<u64>();
const PATH_VARIABLE: &CStr = c"MILLPOND_TRACE_FILE";

const REALLOCATIONS: usize = 1;
const BYTES: usize = 3;
const PROCESSES: usize = 4;

const O_RDWR: c_int = 2;
const O_CLOEXEC: c_int = 0o2_000_000;
const SEEK_END: c_int = 2;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;

unsafe extern "C" {
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn lseek(fd: c_int, offset: i64, whence: c_int) -> i64;
    fn close(fd: c_int) -> c_int;
    fn mmap(
        at: *mut c_void,
        n: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        off: i64,
    ) -> *mut c_void;
    fn pthread_self() -> usize;
}

/// What happened, as the word it is counted in.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    /// malloc, calloc, the aligned ones, realloc(NULL), operator new.
    Allocation = 0,
    /// realloc of an existing block.
    Reallocation = REALLOCATIONS as isize,
    /// free or delete of a block.
    Free = 2,
}

#[repr(C, align(128))]
struct Line([AtomicU64; LINE_WORDS]);

#[repr(C)]
struct Table([Line; 1 + SHARDS]);

struct EarlyTable(UnsafeCell<Table>);
// SAFETY: only atomics inside; the cell keeps the static in writable memory.
unsafe impl Sync for EarlyTable {}

/// Counts what happens before the file is mapped, and for good if there is none.
static EARLY: EarlyTable = EarlyTable(UnsafeCell::new(Table(
    [const { Line([const { AtomicU64::new(0) }; LINE_WORDS]) }; 1 + SHARDS],
)));
static SHARED: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

fn table() -> &'static Table {
    let shared = SHARED.load(Ordering::Acquire);
    let table = if shared.is_null() {
        EARLY.0.get()
    } else {
        shared
    };
    // SAFETY: the early table is static; the shared one is a mapping of TABLE_BYTES, checked against
    // the file's size, that is never unmapped. Both hold only atomics.
    unsafe { &*table }
}

/// A thread's shard: by its thread descriptor, which libc keeps in a register.
fn shard_index() -> usize {
    // SAFETY: pthread_self has no preconditions.
    let thread = unsafe { pthread_self() } as u64;
    // Descriptors are page aligned and far apart: multiply to spread them, take the top bits.
    1 + ((thread >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

const _: () = assert!(SHARDS == 1 << (64 - 58));

#[inline]
pub(crate) fn add(event: Event, size_bytes: usize) {
    let Some(line) = table().0.get(shard_index()) else {
        return;
    };
    line.0[event as usize].fetch_add(1, Ordering::Relaxed);
    if size_bytes != 0 {
        line.0[BYTES].fetch_add(size_bytes as u64, Ordering::Relaxed);
    }
}

/// Maps the lab's file and moves the early counts into it. Without a usable file nothing changes:
/// a target must never fail because of its observer.
pub(crate) fn attach() {
    let Some(shared) = map_file() else { return };
    // SAFETY: `map_file` returned a live mapping of a whole table.
    let to = unsafe { &*shared };
    let from = table();
    for (from, to) in from.0.iter().zip(&to.0).skip(1) {
        for (from, to) in from.0.iter().zip(&to.0) {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    to.0[1].0[PROCESSES].fetch_add(1, Ordering::Relaxed);
    SHARED.store(shared, Ordering::Release);
}

fn map_file() -> Option<*mut Table> {
    // SAFETY: constructors run before the program can change its environment from another thread;
    // getenv returns NULL or a string ending in NUL, which open only reads.
    let fd = unsafe {
        let path = getenv(PATH_VARIABLE.as_ptr());
        if path.is_null() {
            return None;
        }
        open(path, O_RDWR | O_CLOEXEC)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: `fd` is open; a shared mapping of a regular file at an address of the kernel's choice
    // touches no existing memory; the mapping outlives the descriptor.
    let mapping = unsafe {
        let mapping = if lseek(fd, 0, SEEK_END) >= TABLE_BYTES as i64 {
            mmap(
                ptr::null_mut(),
                TABLE_BYTES,
                PROT_READ_WRITE,
                MAP_SHARED,
                fd,
                0,
            )
        } else {
            usize::MAX as *mut c_void
        };
        close(fd);
        mapping
    };
    if mapping as usize == usize::MAX {
        return None;
    }
    let shared: *mut Table = mapping.cast();
    // SAFETY: the mapping is page aligned and TABLE_BYTES long, and any bytes are valid atomics.
    let header = unsafe { &(*shared).0[0] };
    let known = header.0[0].load(Ordering::Relaxed) == MAGIC
        && header.0[1].load(Ordering::Relaxed) == SHARDS as u64;
    known.then_some(shared)
}

const _: () = assert!(size_of::<Table>() == TABLE_BYTES);
