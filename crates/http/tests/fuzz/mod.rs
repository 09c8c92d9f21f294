//! Properties for arbitrary bytes: harnesses that `cargo test` runs on the inputs kept in `tests/corpus`, and libFuzzer
//! (`cargo xtask fuzz`) on generated ones.

pub(crate) mod table;
pub(crate) mod heads;
pub(crate) mod chunks;
pub(crate) mod target;
pub(crate) mod differential;
