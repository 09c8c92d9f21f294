//! The reference: one byte at a time, straight from the table of classes.
//!
//! In service for texts shorter than a vector, and for trailers; in tests as the oracle of the others.

use super::{LineEnds, Scanner, TargetEnds, Text};

/// Needs nothing of the CPU or the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

fn run_end(bytes: &[u8], at: usize, inside: impl Fn(u8) -> bool) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.iter().position(|&byte| !inside(byte));
    at + length.unwrap_or(rest.len())
}

impl Scanner for Scalar {
    const TEXT_BYTES_MIN: usize = 0;

    fn token_end(self, text: Text<'_, Self>, at: usize) -> usize {
        run_end(text.bytes, at, super::is_token)
    }

    fn value_end(self, text: Text<'_, Self>, at: usize) -> usize {
        run_end(text.bytes, at, super::is_field_value)
    }

    fn line_ends(self, text: Text<'_, Self>, at: usize) -> LineEnds {
        LineEnds {
            name: self.token_end(text, at),
            line: self.value_end(text, at),
        }
    }

    fn target_ends(self, text: Text<'_, Self>, at: usize) -> TargetEnds {
        let target = run_end(text.bytes, at, super::is_target);
        let mark = run_end(text.bytes, at, |byte| byte != b'?');
        TargetEnds {
            target,
            path: mark.min(target),
        }
    }
}
