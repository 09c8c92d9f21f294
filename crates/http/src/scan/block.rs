//! The search over blocks, written once for all vectors.
//!
//! A block is loaded at the search position, not at an aligned place, so that a field's first block usually holds its
//! name and its value. Near the end of the text the block is loaded earlier, at the last place where a whole one fits,
//! and the marks of bytes already passed are shifted out: no byte behind the text is ever read, and no copy is made.

use super::{LineEnds, Scanner, TargetEnds, Text};

/// One CPU's test of a block of bytes: bit `i` of a mask belongs to byte `i`.
pub(super) trait Judge: Copy {
    /// At most 32, so that a mask shifted by a whole block is zero and not undefined.
    const BYTES: usize;
    /// A block in registers.
    type Block: Copy;

    /// # Safety
    /// `BYTES` bytes can be read at `from`.
    unsafe fn load(self, from: *const u8) -> Self::Block;
    /// Marks what is no token byte.
    fn not_token(self, block: Self::Block) -> u64;
    /// Marks what is no field value byte.
    fn not_value(self, block: Self::Block) -> u64;
    /// Marks what is no target byte.
    fn not_target(self, block: Self::Block) -> u64;
    /// Marks question marks.
    fn question(self, block: Self::Block) -> u64;
}

/// A judge as a scanner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks<J>(pub(super) J);

/// A test of a block's bytes. These are types and not closures, since only a named function can be marked for inlining,
/// which vector code needs.
trait Question<J: Judge> {
    type Marks: Marks;
    fn ask(judge: J, block: J::Block) -> Self::Marks;
}

/// Masks that are shifted together.
trait Marks: Copy {
    fn shifted(self, by: u32) -> Self;
}

impl Marks for u64 {
    #[inline(always)]
    fn shifted(self, by: u32) -> Self {
        self >> by
    }
}

impl Marks for (u64, u64) {
    #[inline(always)]
    fn shifted(self, by: u32) -> Self {
        (self.0 >> by, self.1 >> by)
    }
}

macro_rules! questions {
    ($($name:ident: $marks:ty = |$judge:ident, $block:ident| $answer:expr;)*) => {$(
        struct $name;

        impl<J: Judge> Question<J> for $name {
            type Marks = $marks;

            #[inline(always)]
            fn ask($judge: J, $block: J::Block) -> $marks {
                $answer
            }
        }
    )*};
}

questions! {
    NotToken: u64 = |judge, block| judge.not_token(block);
    NotValue: u64 = |judge, block| judge.not_value(block);
    NotTarget: u64 = |judge, block| judge.not_target(block);
    NotPath: u64 = |judge, block| judge.not_target(block) | judge.question(block);
    Line: (u64, u64) = |judge, block| (judge.not_token(block), judge.not_value(block));
    Target: (u64, u64) = |judge, block| (judge.not_target(block), judge.question(block));
}

impl<J: Judge> Blocks<J> {
    /// Marks of the block at `at`, shifted so that bit 0 belongs to the byte there, and the first byte behind the
    /// block. Near the end of the text the block begins earlier.
    #[inline(always)]
    fn marks<Q: Question<J>>(self, text: Text<'_, Self>, at: usize) -> (Q::Marks, usize) {
        debug_assert!(at <= text.bytes.len());
        let last = text.bytes.len() - J::BYTES;
        if at <= last {
            // SAFETY: a text for this scanner is at least `J::BYTES` long (invariant of `Text`, whose
            // fields only `Text::new` sets), so the subtraction did not wrap, and from `at` on there
            // are `J::BYTES` bytes.
            let block = unsafe { self.0.load(text.bytes.as_ptr().add(at)) };
            return (Q::ask(self.0, block), at + J::BYTES);
        }
        // SAFETY: as above, from `last` on.
        let block = unsafe { self.0.load(text.bytes.as_ptr().add(last)) };
        let shift = (at - last) as u32;
        (Q::ask(self.0, block).shifted(shift), text.bytes.len())
    }

    /// The first mark at or after `at`.
    #[inline(always)]
    fn find<Q: Question<J, Marks = u64>>(self, text: Text<'_, Self>, at: usize) -> usize {
        let mut at = at;
        loop {
            let (marks, end) = self.marks::<Q>(text, at);
            if marks != 0 {
                return at + marks.trailing_zeros() as usize;
            }
            at = end;
            if at == text.bytes.len() {
                return at;
            }
        }
    }

    /// Like `find`, from the end of a block without a mark on.
    #[inline(always)]
    fn find_behind<Q: Question<J, Marks = u64>>(self, text: Text<'_, Self>, end: usize) -> usize {
        if end == text.bytes.len() {
            return end;
        }
        self.find::<Q>(text, end)
    }

    /// Like `find_behind`, two blocks at a time, for runs that may be long.
    #[inline(always)]
    fn find_far<Q: Question<J, Marks = u64>>(self, text: Text<'_, Self>, end: usize) -> usize {
        let mut at = end;
        while text.bytes.len() - at >= 2 * J::BYTES {
            // SAFETY: the condition of the loop is that two blocks lie from `at` on.
            let (low, high) = unsafe {
                let start = text.bytes.as_ptr().add(at);
                (self.0.load(start), self.0.load(start.add(J::BYTES)))
            };
            let marks = Q::ask(self.0, low) | Q::ask(self.0, high) << J::BYTES;
            if marks != 0 {
                return at + marks.trailing_zeros() as usize;
            }
            at += 2 * J::BYTES;
        }
        self.find_behind::<Q>(text, at)
    }
}

impl<J: Judge> Scanner for Blocks<J> {
    const TEXT_BYTES_MIN: usize = J::BYTES;

    #[inline(always)]
    fn token_end(self, text: Text<'_, Self>, at: usize) -> usize {
        self.find::<NotToken>(text, at)
    }

    #[inline(always)]
    fn value_end(self, text: Text<'_, Self>, at: usize) -> usize {
        self.find::<NotValue>(text, at)
    }

    #[inline(always)]
    fn line_ends(self, text: Text<'_, Self>, at: usize) -> LineEnds {
        let ((names, values), end) = self.marks::<Line>(text, at);
        let name = match names {
            0 => self.find_behind::<NotToken>(text, end),
            marks => at + marks.trailing_zeros() as usize,
        };
        let line = match values {
            0 => self.find_far::<NotValue>(text, end),
            marks => at + marks.trailing_zeros() as usize,
        };
        LineEnds { name, line }
    }

    #[inline(always)]
    fn target_ends(self, text: Text<'_, Self>, at: usize) -> TargetEnds {
        let ((ends, marks), end) = self.marks::<Target>(text, at);
        if ends == 0 {
            let path = match marks {
                0 => self.find_behind::<NotPath>(text, end),
                marks => at + marks.trailing_zeros() as usize,
            };
            let target = match text.bytes.get(path) {
                Some(b'?') => self.find::<NotTarget>(text, path),
                _ => path,
            };
            return TargetEnds { target, path };
        }
        // Without a question mark the end of the target comes first.
        TargetEnds {
            target: at + ends.trailing_zeros() as usize,
            path: at + (ends | marks).trailing_zeros() as usize,
        }
    }
}

// The classes of bytes that heads are made of, as one table. RFC 9110 and 3986 define them; every scanner is checked
// against this table.

pub(super) const TOKEN: u8 = 1;
pub(super) const TARGET: u8 = 2;
const HOST: u8 = 4;
const QUOTED: u8 = 8;

pub(super) const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric || one_of(b, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        // RFC 3986: unreserved, sub-delims, gen-delims without '#', and '%' of an escape.
        if alphanumeric || one_of(b, b"-._~!$&'()*+,;=:@/?%[]") {
            class |= TARGET;
        }
        // reg-name, IPv4 and port; the brackets of an IPv6 address are checked by their place.
        if alphanumeric || one_of(b, b"-._~!$&'()*+,;=%") {
            class |= HOST;
        }
        if b == b'\t' || b == b' ' || (b > b' ' && b != 0x7f && b != b'"' && b != b'\\') {
            class |= QUOTED;
        }
        classes[byte] = class;
        byte += 1;
    }
    classes
}

const fn one_of(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

/// tchar of RFC 9110 5.6.2.
#[inline]
pub(crate) const fn is_token(byte: u8) -> bool {
    CLASSES[byte as usize] & TOKEN != 0
}

/// A byte allowed in a request target.
#[inline]
pub(crate) const fn is_target(byte: u8) -> bool {
    CLASSES[byte as usize] & TARGET != 0
}

/// A byte allowed in a host name or IPv4 address.
#[inline]
pub(crate) const fn is_host(byte: u8) -> bool {
    CLASSES[byte as usize] & HOST != 0
}

/// qdtext of RFC 9110 5.6.4.
#[inline]
pub(crate) fn is_quoted_text(byte: u8) -> bool {
    CLASSES[byte as usize] & QUOTED != 0
}

/// A byte of a field value: HTAB, SP, VCHAR, obs-text (RFC 9110 5.5).
#[inline]
pub(crate) const fn is_field_value(byte: u8) -> bool {
    byte >= b' ' && byte != 0x7f || byte == b'\t'
}

// A class of bytes as two tables of sixteen entries, the form that vector lookups take.

/// Two tables whose entries, picked by the low and the high half of a byte, share a bit exactly when the byte is of the
/// class. Bytes above 0x7f are in no such class.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) struct Nibbles {
    pub(super) low: [u8; 16],
    pub(super) high: [u8; 16],
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Nibbles {
    pub(super) const fn of(class: u8) -> Self {
        let mut low = [0; 16];
        let mut high = [0; 16];
        let mut byte = 0;
        while byte < 0x80 {
            if CLASSES[byte] & class != 0 {
                low[byte & 15] |= 1 << (byte >> 4);
            }
            high[byte >> 4] = 1 << (byte >> 4);
            byte += 1;
        }
        Self { low, high }
    }
}
