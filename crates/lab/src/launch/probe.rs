//! What malloc does in a program that is started under an allocator and its settings.
//!
//! `millpond launch probe BYTES...` allocates a block of each size and says where it lies: in the heap that grows
//! at the end of the program's data, or in a mapping. `allocator::effect` starts it, to learn whether a setting
//! that was taken changes anything; what the allocator itself writes to stderr is of use there too.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::hint::black_box;
use std::process::ExitCode;

/// More than the heap of a small program has left.
const FILLED_BYTES: usize = 1 << 20;
/// Bound on small blocks.
const BLOCKS_MAX: usize = 1024;

/// Where a block lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Place {
    /// In the heap at the end of the program's data.
    Heap,
    /// In a mapping: of its own or of an arena.
    Mapping,
    /// There was no memory for it, or malloc here is not the C library's or a preloaded one.
    Unknown,
}

impl Place {
    const ALL: [Self; 3] = [Self::Heap, Self::Mapping, Self::Unknown];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heap => "heap",
            Self::Mapping => "mapping",
            Self::Unknown => "unknown",
        })
    }
}

/// The words are sizes in bytes; one line is written for each.
pub(super) fn run(words: impl Iterator<Item = OsString>) -> ExitCode {
    for word in words {
        let Some(bytes) = word.to_str().and_then(|text| text.parse().ok()) else {
            eprintln!("millpond launch probe: {} is no size", word.display());
            return ExitCode::from(2);
        };
        println!("{bytes} {}", place_of_block(bytes));
    }
    ExitCode::SUCCESS
}

/// Where the last of a few blocks lies: the first ones fill what the heap had left, which malloc uses up
/// whatever its settings are.
fn place_of_block(bytes: usize) -> Place {
    let count = (FILLED_BYTES / bytes.max(1)).clamp(1, BLOCKS_MAX);
    // Never written to, so they cost address space alone.
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut block = Vec::new();
        if block.try_reserve_exact(bytes).is_err() {
            return Place::Unknown;
        }
        blocks.push(block);
    }
    let Some(address) = black_box(&blocks)
        .last()
        .map(|block| block.as_ptr().addr() as u64)
    else {
        return Place::Unknown;
    };
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // A program that is linked statically has no other malloc than its own.
    if !maps.contains("/libc.so.6") && !maps.contains("/libc-2.") {
        return Place::Unknown;
    }
    let is_heap = maps
        .lines()
        .filter(|line| line.ends_with("[heap]"))
        .filter_map(range)
        .any(|(start, end)| (start..end).contains(&address));
    match is_heap {
        true => Place::Heap,
        false => Place::Mapping,
    }
}

/// `55d0c000-55d0e000 rw-p ...`
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(start)?, number(end)?))
}

/// Where the block of `bytes` was, in what the probe wrote.
pub(crate) fn read_answer(said: &str, bytes: u64) -> Option<Place> {
    let bytes = bytes.to_string();
    said.lines().find_map(|line| {
        let (size, place) = line.split_once(' ')?;
        let place = Place::ALL
            .into_iter()
            .find(|one| one.to_string() == place)?;
        (size == bytes).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: ranges are read as the kernel writes them, and answers as the probe does.
    #[test]
    fn lines_are_read() {
        let line = "55d0c000-55d0e000 rw-p 00000000 00:00 0    [heap]";
        assert_eq!(range(line), Some((0x55d0_c000, 0x55d0_e000)));
        assert_eq!(range("nothing"), None);
        let said = "noise\n1048576 mapping\n64 heap\n";
        assert_eq!(read_answer(said, 1 << 20), Some(Place::Mapping));
        assert_eq!(read_answer(said, 64), Some(Place::Heap));
        assert_eq!(read_answer(said, 65), None);
        assert_eq!(place_of_block(usize::MAX), Place::Unknown);
    }
}
