//! The few facts of an ELF file that decide whether preloading can work at all.
//!
//! `allocator` refuses a library that cannot stand in for malloc, and `presence` explains why a
//! target ignored one.

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_INTERPRETER: u32 = 3;
const SECTION_RELOCATIONS: u32 = 4;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const SECTION_SYMBOLS: u32 = 2;
const SYMBOL_BYTES: usize = 24;
const RELOCATION_BYTES: usize = 24;
/// Those by which the dynamic linker writes a symbol's plain address: a global's, a function's that
/// is called, and a pointer in the data.
#[cfg(not(target_arch = "aarch64"))]
const ADDRESS_RELOCATIONS: [u32; 3] = [6, 7, 1];
#[cfg(target_arch = "aarch64")]
const ADDRESS_RELOCATIONS: [u32; 3] = [1025, 1026, 257];

#[cfg(target_arch = "x86_64")]
const THIS_MACHINE: u16 = 62;
#[cfg(target_arch = "aarch64")]
const THIS_MACHINE: u16 = 183;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const THIS_MACHINE: u16 = 0;

/// A file that is ELF, read whole.
#[derive(Debug)]
pub struct Elf {
    bytes: Vec<u8>,
}

impl Elf {
    /// Reads a file; `None` if it is not a 64-bit little-endian ELF file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let bytes = fs::read(path)?;
        let known = bytes.starts_with(b"\x7fELF\x02\x01") && bytes.len() >= 64;
        Ok(known.then_some(Self { bytes }))
    }

    /// True if it is made for this machine's processor.
    #[must_use]
    pub fn is_for_this_machine(&self) -> bool {
        THIS_MACHINE == 0 || self.u16(18) == Some(THIS_MACHINE)
    }

    /// True for a shared object (or a position independent program).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.u16(16) == Some(TYPE_SHARED)
    }

    /// True for a program without a dynamic linker: it never looks at `LD_PRELOAD`.
    #[must_use]
    pub fn is_static_program(&self) -> bool {
        let program = matches!(self.u16(16), Some(TYPE_EXECUTABLE | TYPE_SHARED));
        program && !self.has_interpreter()
    }

    /// The dynamic linker that a program asks for.
    #[must_use]
    pub fn interpreter(&self) -> Option<PathBuf> {
        let at = self.segments(SEGMENT_INTERPRETER).next()?;
        let start = offset(self.u64(at + 8)?);
        let path = self.bytes.get(start..)?.split(|&byte| byte == 0).next()?;
        Some(PathBuf::from(str::from_utf8(path).ok()?))
    }

    fn has_interpreter(&self) -> bool {
        self.segments(SEGMENT_INTERPRETER).next().is_some()
    }

    /// The difference between an address in this file and in a process that has its part at
    /// `file_offset` mapped at `start`.
    #[must_use]
    pub fn load_bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        self.segments(SEGMENT_LOAD).find_map(|at| {
            let (in_file, address) = (self.u64(at + 8)?, self.u64(at + 16)?);
            // Whole pages are mapped; both are off by the same part of one.
            let within_page = in_file % rustix::param::page_size() as u64;
            (in_file - within_page == file_offset)
                .then(|| start.wrapping_sub(address.wrapping_sub(within_page)))
        })
    }

    /// Where the dynamic linker writes the address of `name` for this object's own use, as addresses
    /// in this file.
    #[must_use]
    pub fn slots_of(&self, name: &str) -> Vec<u64> {
        let mut slots = Vec::new();
        for section in self.sections(SECTION_RELOCATIONS) {
            let symbols = self.u32(section + 40).and_then(|link| self.section(link));
            let names = symbols
                .and_then(|at| self.u32(at + 40))
                .and_then(|link| self.section(link))
                .and_then(|at| self.section_bytes(at));
            let (Some(symbols), Some(names)) =
                (symbols.and_then(|at| self.section_bytes(at)), names)
            else {
                continue;
            };
            let relocations = self.section_bytes(section).unwrap_or_default();
            for relocation in relocations.chunks_exact(RELOCATION_BYTES) {
                let word = |at: usize| relocation.get(at..at + 8)?.try_into().ok();
                let (Some(at), Some(info)) = (
                    word(0).map(u64::from_le_bytes),
                    word(8).map(u64::from_le_bytes),
                ) else {
                    continue;
                };
                let symbol = offset(info >> 32).saturating_mul(SYMBOL_BYTES);
                let Some(symbol) = symbols.get(symbol..symbol.saturating_add(SYMBOL_BYTES)) else {
                    continue;
                };
                let kind = u32::try_from(info & 0xffff_ffff).unwrap_or(0);
                if ADDRESS_RELOCATIONS.contains(&kind) && is_named(symbol, names, name) {
                    slots.push(at);
                }
            }
        }
        slots
    }

    /// True if the file has a table of all its symbols.
    #[must_use]
    pub fn has_symbols(&self) -> bool {
        self.sections(SECTION_SYMBOLS).next().is_some()
    }

    /// True if these bytes are anywhere in the file.
    #[must_use]
    pub fn holds(&self, wanted: &[u8]) -> bool {
        memmem(&self.bytes, wanted).is_some()
    }

    /// The capitals and underscores that stand before `end` and a zero, with it: `_RJEM_MALLOC_CONF` for `MALLOC_CONF`.
    #[must_use]
    pub fn name_ending_in(&self, end: &str) -> Option<String> {
        let wanted = [end.as_bytes(), b"\0"].concat();
        let at = memmem(&self.bytes, &wanted)?;
        let before = self.bytes.get(..at)?.iter().rev();
        let is_name = |byte: &&u8| byte.is_ascii_uppercase() || **byte == b'_';
        let len = before.take_while(is_name).count();
        let name = self.bytes.get(at - len..at + end.len())?;
        Some(str::from_utf8(name).ok()?.to_owned())
    }

    /// True if there is a section of that name.
    #[must_use]
    pub fn has_section(&self, name: &str) -> bool {
        let names = self
            .u16(62)
            .and_then(|index| self.section(u32::from(index)))
            .and_then(|at| self.section_bytes(at));
        let Some(names) = names else { return false };
        self.all_sections().any(|at| {
            let start = self.u32(at).map(|start| offset(u64::from(start)));
            let found = start.and_then(|start| names.get(start..)?.split(|&byte| byte == 0).next());
            found == Some(name.as_bytes())
        })
    }

    /// True if `name` is a symbol here, defined or wanted from elsewhere.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        [SECTION_DYNAMIC_SYMBOLS, SECTION_SYMBOLS]
            .into_iter()
            .any(|kind| self.any_symbol(kind, |symbol, names| is_named(symbol, names, name)))
    }

    /// The address in this file of a symbol that is defined here for others.
    #[must_use]
    pub fn address_of(&self, name: &str) -> Option<u64> {
        self.address_in(SECTION_DYNAMIC_SYMBOLS, name)
    }

    /// The same of any symbol that is defined here; a stripped file has only those for others.
    #[must_use]
    pub fn address_of_any(&self, name: &str) -> Option<u64> {
        let own = self.address_in(SECTION_SYMBOLS, name);
        own.or_else(|| self.address_of(name))
    }

    fn address_in(&self, table_kind: u32, name: &str) -> Option<u64> {
        let address = Cell::new(None);
        self.any_symbol(table_kind, |symbol, names| {
            let found = is_defined(symbol) && is_named(symbol, names, name);
            if found {
                let value = symbol.get(8..16).and_then(|bytes| bytes.try_into().ok());
                address.set(value.map(u64::from_le_bytes));
            }
            found
        });
        address.get()
    }

    /// How many of the functions set up a frame pointer, as a share; `None` where that cannot be told.
    /// Counted are the two instructions that do so, against the functions in the unwind tables.
    #[must_use]
    pub fn frame_pointer_share(&self) -> Option<f64> {
        // What begins a function: push rbp; mov rbp, rsp.
        const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
        const SEGMENT_UNWIND_INDEX: u32 = 0x6474_e550;
        /// The count is four bytes, behind a pointer of four.
        const ENCODINGS: [u8; 3] = [0x1b, 0x03, 0x3b];
        if self.u16(18) != Some(62) {
            return None;
        }
        let index = self.segments(SEGMENT_UNWIND_INDEX).next()?;
        let index = offset(self.u64(index + 8)?);
        if self.bytes.get(index + 1..index + 4)? != ENCODINGS {
            return None;
        }
        let functions = self.u32(index + 8).filter(|&count| count > 0)?;
        let code = self.segments(SEGMENT_LOAD).filter_map(|at| {
            let is_code = self.u32(at + 4)? & 1 != 0;
            let (start, len) = (offset(self.u64(at + 8)?), offset(self.u64(at + 32)?));
            self.bytes
                .get(start..start.checked_add(len)?)
                .filter(|_| is_code)
        });
        let with = code
            .flat_map(|code| code.windows(PROLOGUE.len()))
            .filter(|window| *window == PROLOGUE)
            .count();
        Some(with as f64 / f64::from(functions))
    }

    /// Places of the program headers of that type.
    fn segments(&self, wanted: u32) -> impl Iterator<Item = usize> + '_ {
        let start = self.u64(32).map_or(usize::MAX / 2, offset);
        let size = usize::from(self.u16(54).unwrap_or(0));
        let count = usize::from(self.u16(56).unwrap_or(0));
        (0..count)
            .map(move |index| start.saturating_add(index * size))
            .filter(move |&at| self.u32(at) == Some(wanted))
    }

    /// Places of all section headers.
    fn all_sections(&self) -> impl Iterator<Item = usize> + '_ {
        let count = u32::from(self.u16(60).unwrap_or(0));
        (0..count).filter_map(|index| self.section(index))
    }

    /// Places of the section headers of that type.
    fn sections(&self, wanted: u32) -> impl Iterator<Item = usize> + '_ {
        self.all_sections()
            .filter(move |&at| self.u32(at + 4) == Some(wanted))
    }

    fn section(&self, index: u32) -> Option<usize> {
        let (start, size) = (self.u64(40)?, self.u16(58)?);
        let index = usize::try_from(index).ok()?;
        Some(offset(start).saturating_add(index.saturating_mul(usize::from(size))))
    }

    /// True if the dynamic linker finds a definition of `name` here.
    #[must_use]
    pub fn exports(&self, name: &str) -> bool {
        self.defines(name, SECTION_DYNAMIC_SYMBOLS)
    }

    /// True if `name` is defined in either symbol table; a stripped program has only the dynamic.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.exports(name) || self.defines(name, SECTION_SYMBOLS)
    }

    fn defines(&self, name: &str, table_kind: u32) -> bool {
        self.any_symbol(table_kind, |symbol, names| {
            is_defined(symbol) && is_named(symbol, names, name)
        })
    }

    fn any_symbol(&self, table_kind: u32, is_it: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        self.sections(table_kind).any(|at| {
            let strings = self.u32(at + 40).and_then(|link| self.section(link));
            let Some(names) = strings.and_then(|at| self.section_bytes(at)) else {
                return false;
            };
            self.section_bytes(at).is_some_and(|symbols| {
                symbols
                    .chunks_exact(SYMBOL_BYTES)
                    .any(|symbol| is_it(symbol, names))
            })
        })
    }

    fn section_bytes(&self, header: usize) -> Option<&[u8]> {
        let start = offset(self.u64(header + 24)?);
        let len = offset(self.u64(header + 32)?);
        self.bytes.get(start..start.checked_add(len)?)
    }

    fn u16(&self, at: usize) -> Option<u16> {
        self.bytes
            .get(at..at.checked_add(2)?)?
            .try_into()
            .ok()
            .map(u16::from_le_bytes)
    }

    fn u32(&self, at: usize) -> Option<u32> {
        self.bytes
            .get(at..at.checked_add(4)?)?
            .try_into()
            .ok()
            .map(u32::from_le_bytes)
    }

    fn u64(&self, at: usize) -> Option<u64> {
        self.bytes
            .get(at..at.checked_add(8)?)?
            .try_into()
            .ok()
            .map(u64::from_le_bytes)
    }
}

/// Where `wanted` begins.
fn memmem(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len().max(1))
        .position(|window| window == wanted)
}

/// A file offset as an index; an absurd one becomes one that no file reaches.
fn offset(value: u64) -> usize {
    usize::try_from(value).map_or(usize::MAX / 2, |value| value.min(usize::MAX / 2))
}

/// True for a symbol that is defined here: its section index is not zero.
fn is_defined(symbol: &[u8]) -> bool {
    symbol.get(6..8).is_some_and(|section| section != [0, 0])
}

/// True if it has this very name. Programs have hundreds of thousands of symbols: the other names are
/// not read to their ends.
fn is_named(symbol: &[u8], names: &[u8], wanted: &str) -> bool {
    let at = symbol.get(..4).and_then(|bytes| bytes.try_into().ok());
    let at = at.map_or(usize::MAX / 2, |bytes| {
        offset(u64::from(u32::from_le_bytes(bytes)))
    });
    names.get(at..).is_some_and(|name| {
        name.starts_with(wanted.as_bytes()) && name.get(wanted.len()) == Some(&0)
    })
}

#[cfg(test)]
#[path = "tests/elf.rs"]
mod tests;
