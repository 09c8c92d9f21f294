//! The few facts of an ELF file that decide whether preloading can work at all.
//!
//! On the path: `allocator` refuses a library that cannot stand in for malloc, and `presence`
//! explains why a target ignored one. Absent on purpose: anything but 64-bit little-endian Linux
//! files; others are reported as not understood.

use std::fs;
use std::io;
use std::path::Path;

const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const SEGMENT_INTERPRETER: u32 = 3;
const SECTION_DYNAMIC_SYMBOLS: u32 = 11;
const SECTION_SYMBOLS: u32 = 2;
const SYMBOL_BYTES: usize = 24;

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

    fn has_interpreter(&self) -> bool {
        let (Some(start), Some(size), Some(count)) = (self.u64(32), self.u16(54), self.u16(56))
        else {
            return false;
        };
        (0..usize::from(count)).any(|index| {
            let at = offset(start).saturating_add(index * usize::from(size));
            self.u32(at) == Some(SEGMENT_INTERPRETER)
        })
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
        let (Some(start), Some(size), Some(count)) = (self.u64(40), self.u16(58), self.u16(60))
        else {
            return false;
        };
        let section = |index: usize| offset(start).saturating_add(index * usize::from(size));
        (0..usize::from(count))
            .map(section)
            .filter(|&at| self.u32(at + 4) == Some(table_kind))
            .any(|at| {
                let strings = self
                    .u32(at + 40)
                    .map(|link| section(offset(u64::from(link))));
                let Some(names) = strings.and_then(|at| self.section_bytes(at)) else {
                    return false;
                };
                self.section_bytes(at).is_some_and(|symbols| {
                    symbols
                        .chunks_exact(SYMBOL_BYTES)
                        .any(|symbol| defined_name(symbol, names) == Some(name.as_bytes()))
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

/// A file offset as an index; an absurd one becomes one that no file reaches.
fn offset(value: u64) -> usize {
    usize::try_from(value).map_or(usize::MAX / 2, |value| value.min(usize::MAX / 2))
}

/// The name of a symbol that is defined (its section index is not zero).
fn defined_name<'a>(symbol: &[u8], names: &'a [u8]) -> Option<&'a [u8]> {
    let name_at = u32::from_le_bytes(symbol.get(..4)?.try_into().ok()?);
    let section = u16::from_le_bytes(symbol.get(6..8)?.try_into().ok()?);
    if section == 0 {
        return None;
    }
    names
        .get(offset(u64::from(name_at))..)?
        .split(|&byte| byte == 0)
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a normal program of this system is dynamic, for this machine, and has no malloc.
    #[test]
    fn this_test_is_a_dynamic_program() {
        let elf = Elf::read(&std::env::current_exe().unwrap())
            .unwrap()
            .unwrap();
        assert!(elf.is_for_this_machine());
        assert!(!elf.is_static_program());
        assert!(!elf.exports("malloc"));
        assert!(elf.contains("main"));
    }

    /// Goal: truncated and foreign files are refused or harmless at every length.
    #[test]
    fn damaged_files_do_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("damaged");
        fs::write(&path, b"#!/bin/sh\n").unwrap();
        assert!(Elf::read(&path).unwrap().is_none());
        let whole = fs::read("/bin/sleep").unwrap();
        for keep in [64, 65, 200, 1000, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..keep]).unwrap();
            let elf = Elf::read(&path).unwrap().unwrap();
            assert!(!elf.exports("malloc"));
        }
        let mut absurd = whole;
        absurd[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
        absurd[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        fs::write(&path, &absurd).unwrap();
        let elf = Elf::read(&path).unwrap().unwrap();
        assert!(!elf.contains("main"));
        assert!(elf.is_static_program());
    }
}
