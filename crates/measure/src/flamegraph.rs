//! Where time or memory goes, by stack: collected, compared, drawn, and written for other tools.
//!
//! `lab` (`millpond profile`) and `bench` take samples and add them to [`Stacks`]; a picture is a
//! plain string of SVG, so that a report may hold it as well as a file.
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

pub mod pprof;
mod stacks;
mod svg;

pub use stacks::{Difference, draw_difference, fold_difference};
pub use stacks::{FoldedError, HeavyFunction, Stacks};
pub use stacks::{Root, without_hash};
pub use svg::{Picture, Unit, draw};
pub(crate) use svg::{Still, still, still_difference};
pub use svg::{from_outline, outline};
