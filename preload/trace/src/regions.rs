//! The calls that map memory: `mmap` and its relatives, with the address of the code that called.
//!
//! malloc of the C library calls none of these symbols, so what is noted belongs to others: a preloaded allocator, a
//! runtime's heap, an allocator that is part of the program. Each calls through the dynamic linker and gets here.
//! The table is this process's own memory: a fork copies it, another program begins with an empty one.
//!
//! A writer that meets another waits for a moment only, and counts what it could not note: a signal handler that maps
//! memory while its own thread writes must not stand still.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_long, c_void};
use core::hint;
use core::sync::atomic::{AtomicU64, Ordering};

use millpond_preload_shared::region_table::{MAGIC, REGIONS, Region, RegionTable};

const MAP_ANONYMOUS: c_int = 0x20;
const MAP_FAILED: usize = usize::MAX;
const SPINS_MAX: u32 = 100_000;

const IS_X86: bool = cfg!(target_arch = "x86_64");
const MMAP: c_long = if IS_X86 { 9 } else { 222 };
const MUNMAP: c_long = if IS_X86 { 11 } else { 215 };
const MREMAP: c_long = if IS_X86 { 25 } else { 216 };

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

/// The table under its symbol.
#[repr(transparent)]
struct Table(UnsafeCell<RegionTable>);

// SAFETY: the holder of `LOCK` is the only one in this process that reads or writes it.
unsafe impl Sync for Table {}

#[cfg_attr(not(test), unsafe(no_mangle))]
#[allow(
    non_upper_case_globals,
    reason = "the symbol by which the lab finds it"
)]
static millpond_trace_regions: Table = Table(UnsafeCell::new(RegionTable {
    // Zero, as all of it, so that it takes no room in the file; `begin` writes it.
    magic: 0,
    sequence: 0,
    count: 0,
    missed: 0,
    regions: [Region {
        start: 0,
        end: 0,
        caller: 0,
    }; REGIONS],
}));

/// 1 while a thread has the table.
static LOCK: AtomicU64 = AtomicU64::new(0);
/// Changes that were not noted because the table was held.
static NOT_NOTED: AtomicU64 = AtomicU64::new(0);

/// Says that the table is there to be read.
pub(crate) fn begin() {
    // SAFETY: the pointer is that of a word of the table, aligned, and never of another type's.
    let magic = unsafe { AtomicU64::from_ptr(&raw mut (*millpond_trace_regions.0.get()).magic) };
    magic.store(MAGIC, Ordering::SeqCst);
}

/// The memory at `at` has another owner from now on: `caller`, or one unknown to this table.
fn note(at: usize, len_bytes: usize, caller: Option<usize>) {
    let start = at as u64;
    // The kernel maps whole pages; a part of one belongs to the owner of the rest.
    let end = start
        .saturating_add(len_bytes as u64)
        .next_multiple_of(4096);
    let mut spins = 0;
    while LOCK
        .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        spins += 1;
        if spins > SPINS_MAX {
            NOT_NOTED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        hint::spin_loop();
    }
    // SAFETY: the lock guarantees that no other thread in this process has a reference to the table.
    let table = unsafe { &mut *millpond_trace_regions.0.get() };
    write(&raw mut table.sequence);
    replace(table, start, end, caller.map(|address| address as u64));
    table.missed += NOT_NOTED.swap(0, Ordering::Relaxed);
    write(&raw mut table.sequence);
    LOCK.store(0, Ordering::Release);
}

/// One more, in the order in which the lab is to see it.
fn write(sequence: *mut u64) {
    // SAFETY: the caller holds the table that the word is in; an aligned word of it is a valid atomic.
    let sequence = unsafe { AtomicU64::from_ptr(sequence) };
    sequence.fetch_add(1, Ordering::SeqCst);
}

/// The child of a fork has one thread: the one that held the table is not there to give it back, and left it half written.
pub(crate) fn in_forked_child() {
    if LOCK.swap(0, Ordering::AcqRel) == 1 {
        NOT_NOTED.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no other thread exists yet.
        let table = unsafe { &mut *millpond_trace_regions.0.get() };
        table.count = 0;
        table.sequence = table.sequence.next_multiple_of(2);
    }
}

/// Takes `start..end` out of all regions, and gives it to `caller` if there is one.
fn replace(table: &mut RegionTable, start: u64, end: u64, caller: Option<u64>) {
    if start >= end {
        return;
    }
    let count = (table.count as usize).min(REGIONS);
    let known = table.regions.get(..count).unwrap_or_default();
    let mut first = known.partition_point(|region| region.end <= start);
    if let Some(before) = table.regions.get(first).copied()
        && first < count
        && before.start < start
    {
        if before.end > end
            && !insert(
                table,
                first + 1,
                Region {
                    start: end,
                    ..before
                },
            )
        {
            return;
        }
        if let Some(before) = table.regions.get_mut(first) {
            before.end = start;
        }
        first += 1;
    }
    let count = (table.count as usize).min(REGIONS);
    let behind = table.regions.get(first..count).unwrap_or_default();
    let covered = behind.partition_point(|region| region.end <= end);
    table.regions.copy_within(first + covered..count, first);
    table.count = (count - covered) as u64;
    if let Some(next) = table.regions.get_mut(first)
        && first < count - covered
        && next.start < end
    {
        next.start = end;
    }
    if let Some(caller) = caller {
        add(table, first, Region { start, end, caller });
    }
}

/// Puts `region` at `place`, as a part of a neighbour of the same caller if it has one.
fn add(table: &mut RegionTable, place: usize, region: Region) {
    let count = (table.count as usize).min(REGIONS);
    if let Some(before) = place
        .checked_sub(1)
        .and_then(|at| table.regions.get_mut(at))
        && before.end == region.start
        && before.caller == region.caller
    {
        before.end = region.end;
        return;
    }
    if let Some(next) = table.regions.get_mut(place)
        && place < count
        && next.start == region.end
        && next.caller == region.caller
    {
        next.start = region.start;
        return;
    }
    insert(table, place, region);
}

/// False if there is no room, which is counted.
fn insert(table: &mut RegionTable, place: usize, region: Region) -> bool {
    let count = table.count as usize;
    if count >= REGIONS || place > count {
        table.missed += 1;
        return false;
    }
    table.regions.copy_within(place..count, place + 1);
    if let Some(free) = table.regions.get_mut(place) {
        *free = region;
    }
    table.count += 1;
    true
}

/// # Safety
/// As for `mmap`; `caller` is the address that it returns to.
unsafe extern "C" fn map(
    at: *mut c_void,
    len_bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the arguments are the caller's own, in the order of the system call.
    let mapped = unsafe { syscall(MMAP, at, len_bytes, protection, flags, fd, offset) } as usize;
    if mapped != MAP_FAILED {
        note(
            mapped,
            len_bytes,
            (flags & MAP_ANONYMOUS != 0).then_some(caller),
        );
    }
    mapped as *mut c_void
}

/// # Safety
/// As for `munmap`.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn munmap(at: *mut c_void, len_bytes: usize) -> c_int {
    // Before the call: afterwards the memory may be another thread's.
    note(at as usize, len_bytes, None);
    // SAFETY: the arguments are the caller's own.
    unsafe { syscall(MUNMAP, at, len_bytes) as c_int }
}

/// # Safety
/// As for `mremap`; `target` counts only where `flags` say that there is one.
unsafe extern "C" fn remap(
    at: *mut c_void,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    target: *mut c_void,
    _unused: usize,
    caller: usize,
) -> *mut c_void {
    // SAFETY: the arguments are the caller's own, in the order of the system call.
    let moved = unsafe { syscall(MREMAP, at, old_bytes, new_bytes, flags, target) } as usize;
    if moved != MAP_FAILED {
        note(at as usize, old_bytes, None);
        note(moved, new_bytes, Some(caller));
    }
    moved as *mut c_void
}

/// Defines a function that calls `$to` with its own return address as the seventh argument.
#[cfg(target_arch = "x86_64")]
macro_rules! with_caller {
    ($($name:ident => $to:ident;)+) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            // At entry the return address is on top of the stack. The seventh argument of a function is there too, above
            // the return address of its own; one word more also aligns the stack.
            core::arch::naked_asm!("push qword ptr [rsp]", "call {to}", "add rsp, 8", "ret", to = sym $to)
        }
    )+ };
}

#[cfg(target_arch = "aarch64")]
macro_rules! with_caller {
    ($($name:ident => $to:ident;)+) => { $(
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            // The return address is in x30, and the seventh argument in x6.
            core::arch::naked_asm!("mov x6, x30", "b {to}", to = sym $to)
        }
    )+ };
}

with_caller! {
    mmap => map;
    mmap64 => map;
    mremap => remap;
}

#[cfg(test)]
#[path = "tests/regions.rs"]
mod tests;
