//! Pages from the operating system. The only file that requests them.
//!
//! `chunk` takes segments here, `malloc::large` its separate mappings, `checked_memory` the pages it guards. Under
//! Miri, which cannot cut or move mappings, the pages come from its allocator, and it refuses only calls that the
//! system may refuse as well. The system refuses for a limit on memory or on the number of mappings; callers treat both
//! alike.
#![allow(unsafe_code)]

#[cfg(miri)]
use interpreted as system;
#[cfg(not(miri))]
use real as system;

pub(crate) use system::{discard, map, move_to, protect, resize, unmap};

#[cfg(miri)]
pub use interpreted::with_rights_of_its_mapping;

/// Permitted access to pages.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Access {
    /// Nothing: an access faults.
    None,
    /// Reading and writing.
    Full,
}

/// The system, through calls without a buffer of their own.
#[cfg(not(miri))]
mod real {
    use super::Access;
    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mprotect,
        mremap, mremap_fixed, munmap,
    };
    use std::ptr::{self, NonNull};

    /// Zeroed pages at an address of the kernel's choice.
    pub(crate) fn map(size_bytes: usize, access: Access) -> Option<NonNull<u8>> {
        let protection = match access {
            Access::None => ProtFlags::empty(),
            Access::Full => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: no address is asked for, so the kernel picks one that nothing uses.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), size_bytes, protection, MapFlags::PRIVATE) };
        NonNull::new(mapped.ok()?.cast::<u8>())
    }

    /// Gives pages back with their addresses; returns whether the system took them. It may refuse to cut a mapping in
    /// two; they stay then.
    ///
    /// # Safety
    /// The range is whole pages from [`map`] that are not used any more.
    pub(crate) unsafe fn unmap(start: NonNull<u8>, size_bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { munmap(start.as_ptr().cast(), size_bytes) }.is_ok()
    }

    /// Gives the memory of pages back; they read as zero then. Locked pages refuse.
    ///
    /// # Safety
    /// The range is whole pages from [`map`], and their content is not needed.
    pub(crate) unsafe fn discard(start: NonNull<u8>, size_bytes: usize) -> bool {
        let advice = Advice::LinuxDontNeed;
        // SAFETY: the caller's promise.
        unsafe { madvise(start.as_ptr().cast(), size_bytes, advice) }.is_ok()
    }

    /// Changes the permitted access to pages; returns whether the system did. It may refuse to cut a mapping.
    ///
    /// # Safety
    /// The range is whole pages from [`map`]; no access that will be forbidden follows.
    pub(crate) unsafe fn protect(start: NonNull<u8>, size_bytes: usize, access: Access) -> bool {
        let flags = match access {
            Access::None => MprotectFlags::empty(),
            Access::Full => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        // SAFETY: the caller's promise.
        unsafe { mprotect(start.as_ptr().cast(), size_bytes, flags) }.is_ok()
    }

    /// Changes the length of a mapping without moving it; returns whether the system did.
    ///
    /// # Safety
    /// The range is one mapping, of whole pages, and the part cut off is not used.
    pub(crate) unsafe fn resize(start: NonNull<u8>, from_bytes: usize, to_bytes: usize) -> bool {
        let flags = MremapFlags::empty();
        // SAFETY: the caller's promise; the kernel refuses to grow over another mapping.
        unsafe { mremap(start.as_ptr().cast(), from_bytes, to_bytes, flags) }.is_ok()
    }

    /// Moves a mapping to the place of another, which it replaces; returns whether the system did.
    ///
    /// # Safety
    /// The ranges are two mappings; the target and the old place are not used any more.
    pub(crate) unsafe fn move_to(
        start: NonNull<u8>,
        from_bytes: usize,
        target: NonNull<u8>,
        to_bytes: usize,
    ) -> bool {
        let (start, target) = (start.as_ptr().cast(), target.as_ptr().cast());
        // SAFETY: the caller's promise.
        unsafe { mremap_fixed(start, from_bytes, to_bytes, MremapFlags::MAYMOVE, target) }.is_ok()
    }
}

/// Pages from the interpreter's allocator, each mapping a piece of memory that is freed when all of
/// it has been unmapped.
#[cfg(miri)]
mod interpreted {
    use super::Access;
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::collections::BTreeMap;
    use std::ptr::NonNull;
    use std::sync::Mutex;

    /// Every mapping is aligned to this: none of the pools wants more.
    const ALIGN_BYTES: usize = 4 * 1024 * 1024;

    struct Mapping {
        start: NonNull<u8>,
        size_bytes: usize,
        mapped_bytes: usize,
    }

    // SAFETY: memory that is freed by the thread that unmaps the last of it.
    unsafe impl Send for Mapping {}

    static MAPPINGS: Mutex<BTreeMap<usize, Mapping>> = Mutex::new(BTreeMap::new());

    pub(crate) fn map(size_bytes: usize, _access: Access) -> Option<NonNull<u8>> {
        // A size that no machine has.
        if size_bytes >= 1 << 40 {
            return None;
        }
        let layout = Layout::from_size_align(size_bytes, ALIGN_BYTES).ok()?;
        // SAFETY: 0 bytes are never mapped.
        let start = NonNull::new(unsafe { System.alloc_zeroed(layout) })?;
        let mapping = Mapping {
            start,
            size_bytes,
            mapped_bytes: size_bytes,
        };
        MAPPINGS.lock().unwrap().insert(start.addr().get(), mapping);
        Some(start)
    }

    /// The same address with the right to the whole mapping that it lies in, as the kernel has it:
    /// for tests that plant a fault. From a reference's pointer a write beside what is referred to,
    /// or after its end, would be a fault in the eyes of Miri before it is one in those of a pool.
    pub fn with_rights_of_its_mapping(pointer: *mut u8) -> *mut u8 {
        let mappings = MAPPINGS.lock().unwrap();
        let (_, mapping) = mappings
            .range(..=pointer.addr())
            .next_back()
            .expect("a pool's memory is mapped");
        let whole = mapping.start.as_ptr();
        assert!(pointer.addr() - whole.addr() < mapping.size_bytes);
        whole.with_addr(pointer.addr())
    }

    pub(crate) unsafe fn unmap(start: NonNull<u8>, size_bytes: usize) -> bool {
        let mut mappings = MAPPINGS.lock().unwrap();
        let (&key, mapping) = mappings
            .range_mut(..=start.addr().get())
            .next_back()
            .expect("only what was mapped is unmapped");
        assert!(start.addr().get() + size_bytes <= key + mapping.size_bytes);
        mapping.mapped_bytes -= size_bytes;
        if mapping.mapped_bytes == 0 {
            let Mapping {
                start, size_bytes, ..
            } = mappings.remove(&key).expect("found above");
            let layout = Layout::from_size_align(size_bytes, ALIGN_BYTES).expect("as in `map`");
            // SAFETY: from `map`, and no part of it is mapped any more.
            unsafe { System.dealloc(start.as_ptr(), layout) };
        }
        true
    }

    pub(crate) unsafe fn discard(start: NonNull<u8>, size_bytes: usize) -> bool {
        // SAFETY: mapped pages whose content is not needed.
        unsafe { start.write_bytes(0, size_bytes) };
        true
    }

    /// Access is not prevented here; the tests of faults need a real system. But forbidden pages stay mapped and
    /// recorded, as there.
    pub(crate) unsafe fn protect(_start: NonNull<u8>, _size_bytes: usize, _access: Access) -> bool {
        true
    }

    pub(crate) unsafe fn resize(_start: NonNull<u8>, _from_bytes: usize, _to_bytes: usize) -> bool {
        false
    }

    pub(crate) unsafe fn move_to(
        _start: NonNull<u8>,
        _from_bytes: usize,
        _target: NonNull<u8>,
        _to_bytes: usize,
    ) -> bool {
        false
    }
}
