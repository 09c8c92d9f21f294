//! Byte classes, and the search for the end of a run of them, many bytes at once.
//!
//! `parse` scans every byte of a head through a [`Scanner`], whichever it is. The same source is compiled once per
//! scanner, which inlines the vector code into the parser:
//!
//! ```text
//! parse -> run(work) -+-> avx2     32 bytes   x86-64 whose CPU says so
//!                     +-> sse2     16 bytes   every other x86-64
//!                     +-> neon     16 bytes   aarch64
//!                     +-> portable  8 bytes   everything else
//!                     +-> scalar    1 byte    texts shorter than a block
//! ```
//!
//! `scalar` is the reference: it defines the classes, byte by byte, and the others must agree with it. The parser gives
//! a run its meaning.

#![allow(
    unsafe_code,
    reason = "vector instructions, and loads whose bounds the type guarantees"
)]

mod block;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "aarch64")]
mod neon;

pub(crate) use block::{is_field_value, is_host, is_quoted_text, is_target, is_token};
pub(crate) use portable::Scalar;

/// Where a field line may end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LineEnds {
    /// First byte that is no token byte.
    pub(crate) name: usize,
    /// First byte that is no field value byte.
    pub(crate) line: usize,
}

/// Where a request target may end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TargetEnds {
    /// First byte that is no target byte.
    pub(crate) target: usize,
    /// First `?` before it; without one, `target`.
    pub(crate) path: usize,
}

/// Finds ends of runs. All positions are at or after `at`, which is at most the text's length, and the text's length
/// means "not found".
pub(crate) trait Scanner: Copy {
    /// Texts shorter than this are not for this scanner.
    const TEXT_BYTES_MIN: usize;

    /// First byte that is no token byte.
    fn token_end(self, text: Text<'_, Self>, at: usize) -> usize;
    /// First byte that is no field value byte.
    fn value_end(self, text: Text<'_, Self>, at: usize) -> usize;
    /// Both at once, which is what a field line needs.
    fn line_ends(self, text: Text<'_, Self>, at: usize) -> LineEnds;
    /// End of a request target and its first question mark.
    fn target_ends(self, text: Text<'_, Self>, at: usize) -> TargetEnds;
}

/// Bytes to scan, and what scans them.
/// Invariant: they are at least `S::TEXT_BYTES_MIN`, which whole-block loads rely on.
#[derive(Clone, Copy)]
pub(crate) struct Text<'b, S> {
    bytes: &'b [u8],
    scanner: S,
}

impl<'b, S: Scanner> Text<'b, S> {
    /// `None` when the bytes are too few for this scanner.
    #[inline(always)]
    fn new(scanner: S, bytes: &'b [u8]) -> Option<Self> {
        (bytes.len() >= S::TEXT_BYTES_MIN).then_some(Self { bytes, scanner })
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The `N` bytes at `at`, if there are so many.
    #[inline(always)]
    pub(crate) fn chunk<const N: usize>(self, at: usize) -> Option<&'b [u8; N]> {
        if S::TEXT_BYTES_MIN < N {
            return self.bytes.get(at..)?.first_chunk();
        }
        if at > self.bytes.len() - N {
            return None;
        }
        // SAFETY: the text is at least `N` long (its invariant and the first line), so the
        // subtraction did not wrap, and from `at` on there are `N` bytes. Arrays of bytes need no
        // alignment.
        Some(unsafe { &*self.bytes.as_ptr().add(at).cast() })
    }

    /// Whether these bytes are at `at`: one or two comparisons of whole words.
    #[inline(always)]
    pub(crate) fn has<const N: usize>(self, at: usize, expected: &[u8; N]) -> bool {
        self.chunk::<N>(at)
            .is_some_and(|found| portable::differ::<N, 0>(found, expected) == 0)
    }

    /// The field line at `at`, if it is whole and of the usual shape, and two more bytes have come.
    #[inline(always)]
    pub(crate) fn usual_line(self, at: usize) -> Result<UsualLine<'b>, LineEnds> {
        let ends = self.scanner.line_ends(self, at);
        let is_ordered = at < ends.name && ends.name < ends.line;
        if !is_ordered || S::TEXT_BYTES_MIN < 4 || ends.line > self.bytes.len() - 4 {
            return Err(ends);
        }
        // SAFETY: `at < name < line`, and four bytes follow `line`: the second line ensures it (a text of at least four
        // bytes does not make the subtraction wrap). Arrays of bytes need no alignment.
        let (colon, first, last, line_end) = unsafe {
            let start = self.bytes.as_ptr();
            (
                start.add(ends.name).cast::<[u8; 2]>().read(),
                *self.bytes.get_unchecked(ends.name + 2),
                *self.bytes.get_unchecked(ends.line - 1),
                start.add(ends.line).cast::<[u8; 2]>().read(),
            )
        };
        let is_usual = colon == *b": " && first > b' ' && line_end == *b"\r\n" && last > b' ';
        if !is_usual {
            return Err(ends);
        }
        // SAFETY: as above. A line that ended right behind the space would have its CR where `first`
        // is, and CR is not above the space; so the value begins at or before `line`.
        let (name, value, next) = unsafe {
            (
                self.bytes.get_unchecked(at..ends.name),
                self.bytes.get_unchecked(ends.name + 2..ends.line),
                &*self.bytes.as_ptr().add(ends.line + 2).cast(),
            )
        };
        Ok(UsualLine {
            name: Name { bytes: name },
            value,
            ends,
            next,
        })
    }

    /// The bytes from `start` to `end`, if there are any.
    #[inline]
    pub(crate) fn name(self, start: usize, end: usize) -> Option<Name<'b>> {
        let bytes = self.bytes.get(start..end)?;
        (!bytes.is_empty()).then_some(Name { bytes })
    }

    #[inline(always)]
    pub(crate) fn token_end(self, at: usize) -> usize {
        self.scanner.token_end(self, at)
    }

    #[inline(always)]
    pub(crate) fn value_end(self, at: usize) -> usize {
        self.scanner.value_end(self, at)
    }

    #[inline(always)]
    pub(crate) fn target_ends(self, at: usize) -> TargetEnds {
        self.scanner.target_ends(self, at)
    }
}

/// A field line in the usual form: one space before the value, none after it.
pub(crate) struct UsualLine<'b> {
    pub(crate) name: Name<'b>,
    pub(crate) value: &'b [u8],
    pub(crate) ends: LineEnds,
    /// The bytes after its line end: perhaps the empty line.
    pub(crate) next: &'b [u8; 2],
}

/// A field's name, known to be a token.
/// Invariant: it is not empty.
#[derive(Clone, Copy)]
pub(crate) struct Name<'b> {
    bytes: &'b [u8],
}

impl Name<'_> {
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.bytes.len()
    }

    #[inline(always)]
    pub(crate) fn first(self) -> u8 {
        // SAFETY: a name is not empty: `Text` makes none that is.
        *unsafe { self.bytes.get_unchecked(0) }
    }

    /// Compares without regard to case. `lower` holds letters in lower case and hyphens: no other
    /// token byte becomes one of these when the bit of the case is set.
    #[inline(always)]
    pub(crate) fn is<const N: usize>(self, lower: &[u8; N]) -> bool {
        let whole: Result<&[u8; N], _> = self.bytes.try_into();
        whole.is_ok_and(|found| portable::differ::<N, 0x20>(found, lower) == 0)
    }
}

impl<'b> Text<'b, Scalar> {
    /// For bytes of any number.
    #[inline]
    pub(crate) fn scalar(bytes: &'b [u8]) -> Self {
        Self {
            bytes,
            scanner: Scalar,
        }
    }
}

/// Something to do with a text, whatever scans it. `run` has to be `#[inline(always)]`: only then is it compiled with
/// the scanner's instructions. Its input and output are separate references, because those are passed in registers.
pub(crate) trait Work {
    type Rules;
    type Table;
    type Outcome;
    /// Whether it succeeded; the outcome has the details.
    fn run<S: Scanner>(
        text: Text<'_, S>,
        rules: &Self::Rules,
        table: &mut Self::Table,
        outcome: &mut Self::Outcome,
    ) -> bool;
}

/// Does the work with the widest scanner that this CPU and this text allow.
#[inline(always)]
pub(crate) fn run<W: Work>(
    bytes: &[u8],
    rules: &W::Rules,
    table: &mut W::Table,
    outcome: &mut W::Outcome,
) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(text) = avx2::Avx2::detect().and_then(|scanner| Text::new(scanner, bytes)) {
        return avx2::run::<W>(text, rules, table, outcome);
    }
    run_baseline::<W>(bytes, rules, table, outcome)
}

/// The same with what every CPU of this kind has.
#[inline(never)]
fn run_baseline<W: Work>(
    bytes: &[u8],
    rules: &W::Rules,
    table: &mut W::Table,
    outcome: &mut W::Outcome,
) -> bool {
    match Text::new(BASELINE, bytes) {
        Some(text) => W::run(text, rules, table, outcome),
        None => W::run(Text::scalar(bytes), rules, table, outcome),
    }
}

#[cfg(target_arch = "aarch64")]
const BASELINE: block::Blocks<neon::Neon> = neon::SCANNER;
#[cfg(target_arch = "x86_64")]
const BASELINE: block::Blocks<avx2::Sse2> = avx2::SCANNER;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const BASELINE: block::Blocks<portable::Portable> = portable::SCANNER;

/// The methods to find the end of a run of bytes. All give the same result, which tests check by choosing each; a
/// server takes the fastest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ScannerKind {
    /// 32 bytes at once, on x86-64 with AVX2, BMI1 and BMI2.
    Avx2,
    /// The narrower vectors that every CPU of this kind has: SSE2 on x86-64, NEON on aarch64.
    /// Elsewhere the same as `Portable`.
    Baseline,
    /// Eight bytes at once in plain integers.
    Portable,
    /// One byte at a time: the reference.
    Scalar,
}

impl ScannerKind {
    /// Every one of them.
    pub const ALL: [Self; 4] = [Self::Avx2, Self::Baseline, Self::Portable, Self::Scalar];

    /// Whether this CPU has the required instructions.
    #[must_use]
    pub fn is_here(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::Avx2::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 => false,
            _ => true,
        }
    }

    /// Does the work so; with a narrower scanner where the CPU or the text does not allow it.
    pub(crate) fn run<W: Work>(
        self,
        bytes: &[u8],
        rules: &W::Rules,
        table: &mut W::Table,
        outcome: &mut W::Outcome,
    ) -> bool {
        match (self, Text::new(portable::SCANNER, bytes)) {
            (Self::Avx2, _) => run::<W>(bytes, rules, table, outcome),
            (Self::Baseline, _) => run_baseline::<W>(bytes, rules, table, outcome),
            (Self::Portable, Some(text)) => W::run(text, rules, table, outcome),
            _ => W::run(Text::scalar(bytes), rules, table, outcome),
        }
    }
}

#[cfg(test)]
#[path = "tests/scan.rs"]
mod tests;
