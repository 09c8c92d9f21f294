//! The atomics of what threads share: the standard ones, or loom's in the models.
//!
//! `remote_free` and `outbox`, whose every interleaving `cargo xtask loom` tries, in
//! the very code that runs otherwise. Threads only draw numbers from it, and which one gets which
//! does not matter.

#[cfg(not(all(loom, test)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence},
    thread_local,
};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
};

/// loom's, which does not know the word `const` of the standard one.
#[cfg(all(loom, test))]
macro_rules! thread_local_in_models {
    (static $name:ident: $type:ty = const $start:block) => {
        loom::thread_local! { static $name: $type = $start; }
    };
}
#[cfg(all(loom, test))]
pub(crate) use thread_local_in_models as thread_local;
