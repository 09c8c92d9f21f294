//! Samples heap calls of any program by bytes, with their stacks, in front of any allocator.
//!
//! Preloaded before the allocator (`LD_PRELOAD=libmillpond-sample.so:liballocator.so`). Every byte
//! that is asked for is one step of a Poisson process with a mean distance of R bytes; a call that
//! the process hits is a sample: its size and its stack go into a file that the lab created and
//! named in `MILLPOND_SAMPLE_FILE`, mapped shared, which survives a killed target. So a call of `s`
//! bytes is sampled with probability `1 - exp(-s/R)`, whatever else the program does, and the lab
//! can scale every sample by itself without bias.
//!
//! A call that is not sampled costs a subtraction from a number of its thread. The calls behave as
//! in `preload/trace`, of which this object has the files that find the next allocator; when a
//! sample is due, and what it stands for, is `preload/shared`'s.
//!
//! ```text
//! thread      the number, in memory of the thread that is there from its first instruction
//! unwind      the stack, by the tables that C++ exceptions use
//! file        the records
//! ```
#![cfg_attr(all(panic = "abort", not(test)), no_std)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's malloc")
)]
#![allow(unsafe_code, reason = "a preloaded malloc is raw pointers by nature")]

// The part that is the same in front of any allocator and for any observation: the counter's own.
#[path = "../../trace/src/bootstrap.rs"]
mod bootstrap;
#[path = "../../trace/src/mapping.rs"]
mod mapping;
#[path = "../../trace/src/next.rs"]
mod next;
#[path = "../../trace/src/operators.rs"]
mod operators;
#[path = "../../trace/src/passed_on.rs"]
mod passed_on;
#[path = "../../trace/src/runtime.rs"]
mod runtime;

mod interposed;
mod thread;
mod unwind;
mod file;

use core::ffi::c_int;

use interposed::{free, malloc, memalign, realloc};
use thread::asked_for;

const ENOMEM: c_int = 12;

/// Runs before the program's own constructors: finds the next allocator, the unwinder and the file.
extern "C" fn start() {
    next::ready();
    if file::map() {
        unwind::find();
        file::begin();
    }
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static START: extern "C" fn() = start;
