//! The few facts of an ELF file that decide whether preloading can work at all.
//!
//! `allocator` refuses a library that cannot replace malloc, and `presence` explains why a target
//! ignored one. A table that is missing, cut short or absurd has no facts in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf::{
    EM_AARCH64, EM_X86_64, ET_DYN, ET_EXEC, FileHeader64, Machine, PF_X, PT_GNU_EH_FRAME,
    PT_INTERP, PT_LOAD, ProgramHeader64, ProgramType, R_AARCH64_ABS64, R_AARCH64_GLOB_DAT,
    R_AARCH64_JUMP_SLOT, R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, RelocationType,
    SHT_DYNSYM, SHT_SYMTAB, SectionType, Sym64,
};
use object::read::elf::{
    FileHeader as _, ProgramHeader as _, Rela as _, SectionHeader as _, SectionTable, Sym as _,
    SymbolTable,
};

type Header = FileHeader64<LittleEndian>;
type Sections<'a> = SectionTable<'a, Header>;
type Symbols<'a> = SymbolTable<'a, Header>;

const LE: LittleEndian = LittleEndian;

/// Those by which the dynamic linker writes a symbol's plain address: a global's, a function's that
/// is called, and a pointer in the data.
const ADDRESS_RELOCATIONS: [RelocationType; 3] = match cfg!(target_arch = "aarch64") {
    true => [R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_ABS64],
    false => [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_64],
};

const THIS_MACHINE: Machine = match cfg!(target_arch = "aarch64") {
    true => EM_AARCH64,
    false => EM_X86_64,
};

/// A file that is ELF, read whole.
#[derive(Debug)]
pub struct Elf {
    bytes: Vec<u8>,
}

impl Elf {
    /// Reads a file; `None` if it is not a 64-bit little-endian ELF file.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        let elf = Self {
            bytes: fs::read(path)?,
        };
        Ok(elf.header().is_some().then_some(elf))
    }

    fn header(&self) -> Option<&Header> {
        let header = Header::parse(&*self.bytes).ok()?;
        header.is_little_endian().then_some(header)
    }

    /// True if it is made for this machine's processor.
    #[must_use]
    pub fn is_for_this_machine(&self) -> bool {
        self.machine() == Some(THIS_MACHINE)
    }

    fn machine(&self) -> Option<Machine> {
        Some(self.header()?.e_machine(LE))
    }

    /// True for a shared object (or a position independent program).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.header()
            .is_some_and(|header| header.e_type(LE) == ET_DYN)
    }

    /// True for a program without a dynamic linker: it never reads `LD_PRELOAD`.
    #[must_use]
    pub fn is_static_program(&self) -> bool {
        let header = self.header();
        let is_program = header.is_some_and(|header| matches!(header.e_type(LE), ET_EXEC | ET_DYN));
        is_program && self.segments(PT_INTERP).next().is_none()
    }

    /// The dynamic linker that a program asks for.
    #[must_use]
    pub fn interpreter(&self) -> Option<PathBuf> {
        let segment = self.segments(PT_INTERP).next()?;
        let path = segment.interpreter(LE, &*self.bytes).ok()??;
        Some(PathBuf::from(str::from_utf8(path).ok()?))
    }

    /// The difference between an address in this file and in a process that has its part at
    /// `file_offset` mapped at `start`.
    #[must_use]
    pub fn load_bias(&self, start: u64, file_offset: u64) -> Option<u64> {
        self.segments(PT_LOAD).find_map(|segment| {
            let (in_file, address) = (segment.p_offset(LE), segment.p_vaddr(LE));
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
        let Some(sections) = self.sections() else {
            return slots;
        };
        for section in sections.iter() {
            let Ok(Some((relocations, symbols))) = section.rela(LE, &*self.bytes) else {
                continue;
            };
            let Ok(symbols) = sections.symbol_table_by_index(LE, &*self.bytes, symbols) else {
                continue;
            };
            for relocation in relocations {
                let is_address = ADDRESS_RELOCATIONS.contains(&relocation.r_type(LE, false));
                let symbol = || symbols.symbol(relocation.symbol(LE, false)?).ok();
                if is_address && symbol().is_some_and(|symbol| is_named(&symbols, symbol, name)) {
                    slots.push(relocation.r_offset(LE));
                }
            }
        }
        slots
    }

    /// True if the file has a table of all its symbols.
    #[must_use]
    pub fn has_symbols(&self) -> bool {
        self.sections()
            .is_some_and(|sections| sections.iter().any(|one| one.sh_type(LE) == SHT_SYMTAB))
    }

    /// True if these bytes are anywhere in the file.
    #[must_use]
    pub fn holds(&self, wanted: &[u8]) -> bool {
        memchr::memmem::find(&self.bytes, wanted).is_some()
    }

    /// The capitals and underscores that stand before `end` and a zero, with it: `_RJEM_MALLOC_CONF` for `MALLOC_CONF`.
    #[must_use]
    pub fn name_ending_in(&self, end: &str) -> Option<String> {
        let wanted = [end.as_bytes(), b"\0"].concat();
        let at = memchr::memmem::find(&self.bytes, &wanted)?;
        let before = self.bytes.get(..at)?.iter().rev();
        let is_name = |byte: &&u8| byte.is_ascii_uppercase() || **byte == b'_';
        let len = before.take_while(is_name).count();
        let name = self.bytes.get(at - len..at + end.len())?;
        Some(str::from_utf8(name).ok()?.to_owned())
    }

    /// True if there is a section of that name.
    #[must_use]
    pub fn has_section(&self, name: &str) -> bool {
        self.sections()
            .is_some_and(|sections| sections.section_by_name(LE, name.as_bytes()).is_some())
    }

    /// True if `name` is a symbol here, defined or wanted from elsewhere.
    #[must_use]
    pub fn mentions(&self, name: &str) -> bool {
        let mentions = |kind| self.find_symbol(kind, |table, one| is_named(table, one, name));
        mentions(SHT_DYNSYM).is_some() || mentions(SHT_SYMTAB).is_some()
    }

    /// The address in this file of a symbol that is defined here for others.
    #[must_use]
    pub fn address_of(&self, name: &str) -> Option<u64> {
        Some(self.definition(SHT_DYNSYM, name)?.st_value(LE))
    }

    /// The same of any symbol that is defined here; a stripped file has only those for others.
    #[must_use]
    pub fn address_of_any(&self, name: &str) -> Option<u64> {
        let own = self.definition(SHT_SYMTAB, name);
        own.map(|symbol| symbol.st_value(LE))
            .or_else(|| self.address_of(name))
    }

    /// True if the dynamic linker finds a definition of `name` here.
    #[must_use]
    pub fn exports(&self, name: &str) -> bool {
        self.definition(SHT_DYNSYM, name).is_some()
    }

    /// True if `name` is defined in either symbol table; a stripped program has only the dynamic.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.exports(name) || self.definition(SHT_SYMTAB, name).is_some()
    }

    fn definition(&self, table: SectionType, name: &str) -> Option<&Sym64<LittleEndian>> {
        self.find_symbol(table, |table, symbol| {
            !symbol.is_undefined(LE) && is_named(table, symbol, name)
        })
    }

    fn find_symbol(
        &self,
        table: SectionType,
        is_it: impl Fn(&Symbols<'_>, &Sym64<LittleEndian>) -> bool,
    ) -> Option<&Sym64<LittleEndian>> {
        let symbols = self.sections()?.symbols(LE, &*self.bytes, table).ok()?;
        symbols.iter().find(|symbol| is_it(&symbols, symbol))
    }

    /// How many of the functions set up a frame pointer, as a share; `None` where that is unknown. Counts the two
    /// instructions that do so, and divides by the functions in the unwind tables.
    #[must_use]
    pub fn frame_pointer_share(&self) -> Option<f64> {
        // The beginning of a function: push rbp; mov rbp, rsp.
        const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
        /// The count is four bytes, behind a pointer of four.
        const ENCODINGS: [u8; 3] = [0x1b, 0x03, 0x3b];
        if self.machine() != Some(EM_X86_64) {
            return None;
        }
        let index = self.segments(PT_GNU_EH_FRAME).next()?;
        let index = index.data(LE, &*self.bytes).ok()?;
        if index.get(1..4)? != ENCODINGS {
            return None;
        }
        let functions = index.get(8..12)?.try_into().ok()?;
        let functions = Some(u32::from_le_bytes(functions)).filter(|&count| count > 0)?;
        let code = self.segments(PT_LOAD).filter_map(|segment| {
            let is_code = segment.p_flags(LE).contains(PF_X);
            segment.data(LE, &*self.bytes).ok().filter(|_| is_code)
        });
        let with = code
            .map(|code| memchr::memmem::find_iter(code, &PROLOGUE).count())
            .sum::<usize>();
        Some(with as f64 / f64::from(functions))
    }

    /// The program headers of that type.
    fn segments(
        &self,
        wanted: ProgramType,
    ) -> impl Iterator<Item = &ProgramHeader64<LittleEndian>> {
        let headers = self
            .header()
            .and_then(|header| header.program_headers(LE, &*self.bytes).ok());
        let headers = headers.unwrap_or_default().iter();
        headers.filter(move |header| header.p_type(LE) == wanted)
    }

    fn sections(&self) -> Option<Sections<'_>> {
        self.header()?.sections(LE, &*self.bytes).ok()
    }
}

/// True if it has this very name.
fn is_named(table: &Symbols<'_>, symbol: &Sym64<LittleEndian>, wanted: &str) -> bool {
    table.symbol_name(LE, symbol) == Ok(wanted.as_bytes())
}

#[cfg(test)]
#[path = "tests/elf.rs"]
mod tests;
