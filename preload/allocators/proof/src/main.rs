//! Shows that a preloaded object is this process's malloc, and that it keeps malloc's promises.
//!
//! `LD_PRELOAD=OBJECT proof OBJECT`: the first fault ends it with a sentence and status 1. Every
//! function of the family must lead into the object, since one left to the C library would hand its
//! blocks to a `free` that never saw them; then each is used the way programs do.

mod c;
mod threads;

use std::ffi::{CStr, CString};
use std::path::Path;
use std::process::ExitCode;
use std::ptr;

/// `Err` with a sentence if `fact` does not hold.
fn demand(fact: bool, sentence: impl FnOnce() -> String) -> Result<(), String> {
    if fact { Ok(()) } else { Err(sentence()) }
}

fn main() -> ExitCode {
    let Some(object) = std::env::args().nth(1) else {
        eprintln!("proof: name the object that is preloaded");
        return ExitCode::from(2);
    };
    let proofs = [
        serves(Path::new(&object)),
        sizes(),
        alignments(),
        refusals(),
        threads::wander(),
        threads::come_and_go(),
        forked(),
    ];
    match proofs.into_iter().find_map(Result::err) {
        None => ExitCode::SUCCESS,
        Some(sentence) => {
            eprintln!("proof: {object}: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// Every function that a program would call is the object's.
fn serves(object: &Path) -> Result<(), String> {
    const FAMILY: [&str; 12] = [
        "malloc",
        "calloc",
        "realloc",
        "reallocarray",
        "free",
        "cfree",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "malloc_usable_size",
    ];
    for name in FAMILY {
        let text = CString::new(name).map_err(|error| error.to_string())?;
        let mut place = c::Place {
            file: ptr::null(),
            base: ptr::null_mut(),
            symbol: ptr::null(),
            address: ptr::null_mut(),
        };
        // SAFETY: a null handle is RTLD_DEFAULT, the name ends in a zero byte, and `place` has the
        // layout of Dl_info.
        let found = unsafe { c::dladdr(c::dlsym(ptr::null_mut(), text.as_ptr()), &raw mut place) };
        demand(found != 0 && !place.file.is_null(), || {
            format!("{name} leads nowhere")
        })?;
        // SAFETY: dladdr leaves the path of a loaded object, which stays loaded.
        let file = unsafe { CStr::from_ptr(place.file) }.to_string_lossy();
        demand(Path::new(&*file) == object, || {
            format!("{name} is that of {file}")
        })?;
    }
    Ok(())
}

/// Blocks are aligned, as large as asked, zero where promised, and keep their contents.
fn sizes() -> Result<(), String> {
    let small = 0..2000;
    let large = (2000..600_000).step_by(3989);
    let edges = [4096, 32_768, 65_536, 1 << 20, 4 << 20, 9 << 20, 50 << 20];
    let around = edges.into_iter().flat_map(|size| size - 17..size + 18);
    for size in small.chain(large).chain(around) {
        let mark = (size % 251) as u8 + 1;
        // SAFETY: each block is used within what was asked for, and given back once.
        unsafe {
            let block = c::malloc(size).cast::<u8>();
            // A block smaller than 16 bytes holds nothing that would need an alignment of 16.
            let alignment = 1 << size.clamp(1, 16).ilog2();
            demand(
                !block.is_null() && block.addr().is_multiple_of(alignment),
                || format!("malloc({size}) gave {block:?}"),
            )?;
            let usable = c::malloc_usable_size(block.cast());
            demand(usable >= size, || {
                format!("a block of {size} has {usable} usable bytes")
            })?;
            block.write_bytes(mark, usable);
            let zeroed = c::calloc(size.div_ceil(8), 8).cast::<u8>();
            demand(
                !zeroed.is_null() && is_filled(zeroed, size.div_ceil(8) * 8, 0),
                || format!("calloc of {size} is not zero"),
            )?;
            demand(is_filled(block, usable, mark), || {
                format!("the blocks of malloc({size}) and calloc overlap")
            })?;
            let longer = c::realloc(block.cast(), size * 2 + 1).cast::<u8>();
            demand(is_filled(longer, size, mark), || {
                format!("realloc from {size} to twice that lost the contents")
            })?;
            let shorter = c::realloc(longer.cast(), size / 3 + 1).cast::<u8>();
            demand(is_filled(shorter, size.min(size / 3 + 1), mark), || {
                format!("realloc to a third of {size} lost the contents")
            })?;
            c::free(shorter.cast());
            zeroed.write_bytes(mark, size);
            c::free(zeroed.cast());
        }
    }
    // SAFETY: realloc of null is malloc, and the product is what the two factors say.
    unsafe {
        let block = c::reallocarray(c::realloc(ptr::null_mut(), 100), 300, 7).cast::<u8>();
        demand(!block.is_null(), || {
            "reallocarray refused 2,100 bytes".to_owned()
        })?;
        block.write_bytes(3, 2100);
        c::free(block.cast());
        c::free(ptr::null_mut());
    }
    Ok(())
}

/// # Safety
/// `block` is valid for reading `size` bytes.
unsafe fn is_filled(block: *const u8, size: usize, mark: u8) -> bool {
    // SAFETY: as this function demands; an empty slice needs no block.
    size == 0
        || (!block.is_null()
            && unsafe { std::slice::from_raw_parts(block, size) }
                .iter()
                .all(|&byte| byte == mark))
}

/// Up to half of 64 KiB, the span of one of these allocators, every alignment can be had.
fn alignments() -> Result<(), String> {
    for bits in 3..=15 {
        let alignment = 1_usize << bits;
        for size in [1, 24, alignment, 5000, 70_000, 5 << 20] {
            let mut slot = ptr::null_mut();
            // SAFETY: powers of two from 8 on, and a slot of our own.
            let blocks = unsafe {
                let code = c::posix_memalign(&raw mut slot, alignment, size);
                demand(code == 0, || {
                    format!("posix_memalign({alignment}, {size}) says {code}")
                })?;
                let memalign = c::memalign(alignment, size);
                [slot, memalign, c::aligned_alloc(alignment, size)]
            };
            for block in blocks {
                demand(
                    !block.is_null() && block.addr().is_multiple_of(alignment),
                    || format!("{size} bytes aligned to {alignment} came at {block:?}"),
                )?;
                // SAFETY: `size` bytes of ours, grown and then given back.
                unsafe {
                    block.cast::<u8>().write_bytes(9, size);
                    let moved = c::realloc(block, size + 100);
                    demand(is_filled(moved.cast(), size, 9), || {
                        format!("realloc lost {size} bytes aligned to {alignment}")
                    })?;
                    c::free(moved);
                }
            }
        }
    }
    // SAFETY: blocks of ours, given back once.
    unsafe {
        for block in [c::valloc(10), c::pvalloc(10)] {
            demand(
                !block.is_null() && block.addr().is_multiple_of(4096),
                || format!("a block of pages came at {block:?}"),
            )?;
            c::free(block);
        }
    }
    Ok(())
}

/// A request that cannot be met is refused, and the caller's block stays as it was.
fn refusals() -> Result<(), String> {
    let half = std::hint::black_box(usize::MAX / 2);
    let huge = std::hint::black_box(isize::MAX as usize - 4096);
    // SAFETY: failing calls change nothing; the one block is used within its size.
    unsafe {
        let block = c::malloc(100).cast::<u8>();
        block.write_bytes(5, 100);
        let results = [
            ("calloc", c::calloc(half, 3)),
            ("calloc", c::calloc(3, half)),
            ("reallocarray", c::reallocarray(block.cast(), half, 3)),
            ("malloc", c::malloc(huge)),
            ("realloc", c::realloc(block.cast(), huge)),
            ("memalign", c::memalign(64, huge)),
        ];
        for (name, result) in results {
            demand(result.is_null(), || {
                format!("{name} of more than there can be gave {result:?}")
            })?;
        }
        let mut slot = block.cast();
        demand(
            c::posix_memalign(&raw mut slot, 24, 8) == c::EINVAL && slot == block.cast(),
            || "posix_memalign takes an alignment of 24".to_owned(),
        )?;
        demand(is_filled(block, 100, 5), || {
            "a failed call changed the caller's block".to_owned()
        })?;
        c::free(block.cast());
    }
    Ok(())
}

/// A child of fork has a heap that works, and its parent too.
fn forked() -> Result<(), String> {
    // SAFETY: there is no other thread by now; the child only allocates, frees and ends.
    unsafe {
        let kept = c::malloc(1000).cast::<u8>();
        kept.write_bytes(6, 1000);
        let child = c::fork();
        demand(child >= 0, || "fork failed".to_owned())?;
        if child == 0 {
            let good = is_filled(kept, 1000, 6)
                && (1..2000).all(|size| {
                    let block = c::malloc(size);
                    c::free(block);
                    !block.is_null()
                });
            c::free(kept.cast());
            c::_exit(if good { 0 } else { 1 });
        }
        let mut status = 0;
        let waited = c::waitpid(child, &raw mut status, 0);
        demand(waited == child && status == 0, || {
            format!("the child of a fork could not allocate (status {status})")
        })?;
        c::free(kept.cast());
    }
    Ok(())
}
