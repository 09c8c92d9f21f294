//! Where time or memory goes, by stack: collected, compared, drawn, and written for other tools.
//!
//! On the path: `lab` (`millpond profile`) and `bench` take samples and add them to [`Stacks`]; a
//! picture is a plain string of SVG, so that a report may hold it as well as a file.
//!
//! ```text
//! stacks        how much was seen below each stack; folded text in and out; the heaviest functions
//! perf_script   perf's samples as stacks
//! tree          stacks that begin alike, laid upon each other
//! svg           one picture; difference: one picture of two
//! still         the same for a page that has its own style and runs nothing
//! outline       the widest frames as a few lines, for a record
//! pprof         the same for `go tool pprof` and everything that reads its files
//! ```
//!
//! Absent on purpose: taking samples, files, and the terminal.

mod difference;
mod outline;
mod perf_script;
pub mod pprof;
mod stacks;
mod still;
mod svg;
mod tree;

pub use difference::{Difference, draw_difference, fold_difference};
pub use outline::{from_outline, outline};
pub use perf_script::{Root, without_hash};
pub use stacks::{FoldedError, HeavyFunction, Stacks};
pub(crate) use still::{Still, still, still_difference};
pub use svg::{Picture, Unit, draw};
