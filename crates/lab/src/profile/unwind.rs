//! How perf follows stacks: by frame pointers, or by the unwind tables over a copy of the stack.
//!
//! Frame pointers cost next to nothing and give nonsense in programs that were built without them,
//! as most distributions' are. The choice by itself looks into the program.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::elf::Elf;

/// Bytes of stack in each sample: enough for an interpreter's nest of calls.
const STACK_BYTES: u32 = 16 * 1024;
/// From this share of functions with a frame pointer on, chains of them are whole.
const SHARE_MIN: f64 = 0.5;

/// The way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unwind {
    /// What fits the program.
    #[default]
    Auto,
    /// Frame pointers.
    FramePointers,
    /// The tables that exceptions use.
    Dwarf,
}

impl Unwind {
    /// One of the other two, with the reason, for the program at `path`.
    pub(super) fn choose(self, program: &Path) -> (Self, String) {
        if self != Self::Auto {
            return (self, format!("stacks by {self}, as asked for"));
        }
        let share = Elf::read(program)
            .ok()
            .flatten()
            .and_then(|elf| elf.frame_pointer_share());
        match share {
            Some(share) if share >= SHARE_MIN => (
                Self::FramePointers,
                "stacks by frame pointers, which most functions of the program keep".to_owned(),
            ),
            Some(_) => (
                Self::Dwarf,
                "stacks by unwind tables, since the program is built without frame pointers"
                    .to_owned(),
            ),
            None => (Self::Dwarf, "stacks by unwind tables".to_owned()),
        }
    }

    /// For `perf record --call-graph`.
    pub(super) fn call_graph(self) -> String {
        match self {
            Self::FramePointers => "fp".to_owned(),
            Self::Auto | Self::Dwarf => format!("dwarf,{STACK_BYTES}"),
        }
    }
}

impl FromStr for Unwind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "fp" => Ok(Self::FramePointers),
            "dwarf" => Ok(Self::Dwarf),
            _ => Err("write auto, fp (frame pointers) or dwarf (unwind tables)".to_owned()),
        }
    }
}

impl fmt::Display for Unwind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "whatever fits",
            Self::FramePointers => "frame pointers",
            Self::Dwarf => "unwind tables",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the user's wish is done; without one, a program without frame pointers, and a file that
    /// says nothing, get the way that always works.
    #[test]
    fn the_way_fits_the_program() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(Unwind::Auto.choose(&own).0, Unwind::Dwarf);
        assert_eq!(Unwind::Auto.choose(Path::new("/nowhere")).0, Unwind::Dwarf);
        let (way, why) = Unwind::FramePointers.choose(&own);
        assert_eq!(way, Unwind::FramePointers);
        assert!(why.contains("as asked for"), "{why}");
        assert_eq!("fp".parse(), Ok(Unwind::FramePointers));
        assert!("lbr".parse::<Unwind>().is_err());
    }
}
