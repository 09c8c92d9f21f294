//! The atomics of what threads share: the standard ones, or loom's in the models.
//!
//! `remote_free` and `outbox`, whose interleavings `cargo xtask loom` tests exhaustively, in the same code that runs in
//! production. Threads only take numbers from it, in any order.

#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    thread_local,
};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
};

/// loom's, which has no `const` form like the standard one.
#[cfg(all(loom, test))]
macro_rules! thread_local_in_models {
    (static $name:ident: $type:ty = const $start:block) => {
        loom::thread_local! { static $name: $type = $start; }
    };
}
#[cfg(all(loom, test))]
pub(crate) use thread_local_in_models as thread_local;
