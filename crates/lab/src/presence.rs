//! Proof that the allocator a run is named after is the one that serves.
//!
//! The dynamic linker goes on without a library it cannot load, static programs never read
//! `LD_PRELOAD`, wrapper scripts drop it: each gives a run of plain glibc under another name. So,
//! for every process that holds the listening socket: the library's code must be mapped, the
//! program must not define malloc itself (the linker would find that first), every address of
//! malloc, calloc, realloc and free that the dynamic linker wrote must lead into the library
//! (`interposition`), its settings must have reached the process, and with nothing preloaded no
//! other allocator may be there. A run without this proof is refused.

pub(crate) mod interposition;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use std::{fs, io, thread};

use interposition::{Call, Slots, is_c_library};

use crate::allocator::{Allocator, family_by_symbol, name_of_library};
use crate::elf::Elf;
use crate::process_tree::parent_of;
use crate::suitability::Unsuitable;
use crate::{process_tree, suitability};

/// How often a process that is not as it should be is checked again.
const LOOKS_MAX: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Why a run may not be counted under its allocator's name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PresenceError {
    /// The library is not mapped.
    #[error(
        "allocator not in use: {} is not mapped in process {pid} ({}), because {reason}",
        library.display(), program.display()
    )]
    NotMapped {
        /// The library that should be there.
        library: PathBuf,
        /// The serving process.
        pid: i32,
        /// Its program.
        program: PathBuf,
        /// The likely cause.
        reason: String,
    },
    /// The library is mapped, but malloc is another.
    #[error(
        "allocator not in use: {} defines malloc itself, so a preloaded {} is never called",
        program.display(), library.display()
    )]
    OwnMalloc {
        /// The program.
        program: PathBuf,
        /// The library that is mapped but not used.
        library: PathBuf,
    },
    /// No preloaded library can serve this program.
    #[error("allocator not in use: process {pid} runs {}, which {reason}", program.display())]
    Unsuitable {
        /// The serving process.
        pid: i32,
        /// Its program.
        program: PathBuf,
        /// Why.
        reason: Unsuitable,
    },
    /// Calls get somewhere else.
    #[error(
        "allocator not in use everywhere: in process {pid}, {} calls {function} of {}",
        from.display(), to.display()
    )]
    CallsElsewhere {
        /// The serving process.
        pid: i32,
        /// The object that calls.
        from: PathBuf,
        /// The called function.
        function: &'static str,
        /// Where that is.
        to: PathBuf,
    },
    /// No call could be followed.
    #[error(
        "cannot prove that {} is in use: no call of malloc in process {pid} ({}) could be followed",
        library.display(), program.display()
    )]
    NoCalls {
        /// The library that should be called.
        library: PathBuf,
        /// The serving process.
        pid: i32,
        /// Its program.
        program: PathBuf,
    },
    /// A setting did not arrive.
    #[error(
        "setting not in force: process {pid} ({}) cannot be shown to have been started with \
         {variable}; does a wrapper script change the environment?",
        program.display()
    )]
    SettingLost {
        /// The serving process.
        pid: i32,
        /// Its program.
        program: PathBuf,
        /// `NAME=VALUE`.
        variable: String,
    },
    /// Settings of the C library's malloc in a program that uses another one.
    #[error(
        "the settings are for the C library's malloc, but {} brings {native} along",
        program.display()
    )]
    NotTheCLibrary {
        /// Its program.
        program: PathBuf,
        /// The allocator in use.
        native: String,
    },
    /// The process belongs to another user, or a file of it cannot be read.
    #[error("cannot look into process {pid}: {reason}")]
    Unreadable {
        /// The serving process.
        pid: i32,
        /// The system's error.
        reason: String,
    },
    /// There was no process to check, or all of them ended meanwhile.
    #[error("no process of the server was left when its allocator was checked")]
    NothingServes,
}

/// The findings in the processes that serve.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Presence {
    /// The checked processes.
    pub pids: Vec<i32>,
    /// The allocator that the target brings along by itself, if it is not the C library's.
    pub native: Option<String>,
}

/// Checks that every process of `pids` (those that serve) uses `allocator`. One that ends meanwhile (a worker that is
/// replaced) serves no longer and is left out; if all do, that is [`PresenceError::NothingServes`].
pub fn prove(pids: &[i32], allocator: &Allocator) -> Result<Presence, PresenceError> {
    prove_behind(pids, allocator, None)
}

/// The same with another object preloaded in front of the allocator, which passes calls on to it.
pub fn prove_behind(
    pids: &[i32],
    allocator: &Allocator,
    front: Option<&Path>,
) -> Result<Presence, PresenceError> {
    let mut seen = Seen::default();
    let found = each_living(pids, |pid| prove_one(pid, allocator, front, &mut seen))?;
    Ok(Presence {
        pids: found.iter().map(|&(pid, _)| pid).collect(),
        native: found.into_iter().find_map(|(_, native)| native),
    })
}

/// The result of `look` for each process; one that has ended meanwhile is left out.
fn each_living<T>(
    pids: &[i32],
    mut look: impl FnMut(i32) -> Result<T, PresenceError>,
) -> Result<Vec<(i32, T)>, PresenceError> {
    let mut found = Vec::new();
    for &pid in pids {
        if let Some(one) = look_again(pid, &mut look)? {
            found.push((pid, one));
        }
    }
    if found.is_empty() {
        return Err(PresenceError::NothingServes);
    }
    Ok(found)
}

/// The same in one process; `None` if it has ended, or is ending. One that replaces itself by another program has no
/// memory to read for a moment: it is checked again before it is refused.
fn look_again<T>(
    pid: i32,
    look: &mut impl FnMut(i32) -> Result<T, PresenceError>,
) -> Result<Option<T>, PresenceError> {
    let mut looks = 1;
    loop {
        match look(pid) {
            Ok(one) => return Ok(Some(one)),
            Err(_) if !process_tree::is_running(pid) => return Ok(None),
            Err(error) if looks == LOOKS_MAX => return Err(error),
            Err(_) => thread::sleep(LOOK_INTERVAL),
        }
        looks += 1;
    }
}

/// The allocator that process `pid` brings along, after `allocator` was found in force there.
fn prove_one(
    pid: i32,
    allocator: &Allocator,
    front: Option<&Path>,
    seen: &mut Seen,
) -> Result<Option<String>, PresenceError> {
    let process = Process::look(pid, seen, front)?;
    let native = process.native(allocator.library.as_deref(), front);
    match &allocator.library {
        Some(library) => process.demand(library, front)?,
        None => process.demand_plain(allocator, native.as_deref())?,
    }
    if let Some(companion) = allocator.companion() {
        process.demand_mapped(companion)?;
    }
    demand_settings(pid, &process.program, allocator)?;
    Ok(native)
}

/// Of processes that an emulator executes: the library is mapped and the settings arrived. Calls cannot
/// be followed there, since what runs is the emulator's translation; in the scored runs they are.
pub(crate) fn prove_emulated(pids: &[i32], allocator: &Allocator) -> Result<(), PresenceError> {
    each_living(pids, |pid| prove_one_emulated(pid, allocator)).map(drop)
}

fn prove_one_emulated(pid: i32, allocator: &Allocator) -> Result<(), PresenceError> {
    let unreadable = |error: io::Error| PresenceError::Unreadable {
        pid,
        reason: error.to_string(),
    };
    let program = fs::read_link(format!("/proc/{pid}/exe")).map_err(unreadable)?;
    for library in allocator.objects() {
        let image = Image::open(pid).map_err(unreadable)?;
        if !image.mappings.iter().any(|one| one.file == library) {
            return Err(PresenceError::NotMapped {
                library: library.to_owned(),
                pid,
                program,
                reason: "it was not loaded under the emulator".to_owned(),
            });
        }
    }
    demand_settings(pid, &program, allocator)
}

/// Every setting arrived.
fn demand_settings(pid: i32, program: &Path, allocator: &Allocator) -> Result<(), PresenceError> {
    let mut settings = allocator.environment.iter();
    settings.try_for_each(|(name, value)| {
        demand_variable(pid, program, (name.as_ref(), value.as_ref()))
    })
}

fn demand_variable(
    pid: i32,
    program: &Path,
    (name, value): (&OsStr, &OsStr),
) -> Result<(), PresenceError> {
    match was_given(pid, name, value) {
        true => Ok(()),
        false => Err(PresenceError::SettingLost {
            pid,
            program: program.to_owned(),
            variable: format!("{}={}", name.display(), value.display()),
        }),
    }
}

/// Every process of `pids` (those that serve) was started with each of `variables`, whatever its allocator.
pub(crate) fn prove_variables(
    pids: &[i32],
    variables: &[(OsString, OsString)],
) -> Result<(), PresenceError> {
    if variables.is_empty() {
        return Ok(());
    }
    let look = |pid| {
        let program = fs::read_link(format!("/proc/{pid}/exe"));
        let program = program.map_err(|error| PresenceError::Unreadable {
            pid,
            reason: error.to_string(),
        })?;
        let mut variables = variables.iter();
        variables.try_for_each(|(name, value)| demand_variable(pid, &program, (name, value)))
    };
    each_living(pids, look).map(drop)
}

/// The data read from files: workers run what their master runs, and a program may have 100 MB.
#[derive(Default)]
pub(crate) struct Seen {
    slots: Slots,
    programs: HashMap<PathBuf, Rc<Program>>,
}

/// A program's file.
pub(crate) struct Program {
    pub(crate) elf: Option<Elf>,
    pub(crate) unsuitable: Option<Unsuitable>,
}

impl Program {
    pub(crate) fn defines(&self, function: &str) -> bool {
        self.elf.as_ref().is_some_and(|elf| elf.exports(function))
    }

    fn read(path: &Path) -> io::Result<Self> {
        let elf = Elf::read(path)?;
        let unsuitable = match &elf {
            Some(elf) => suitability::of_elf(elf, path)?,
            None => None,
        };
        Ok(Self { elf, unsuitable })
    }
}

/// The visible data of one process.
pub(crate) struct Process {
    pid: i32,
    pub(crate) program: PathBuf,
    pub(crate) file: Rc<Program>,
    /// The files with code, replaced ones included.
    pub(crate) code: Vec<PathBuf>,
    pub(crate) calls: Vec<Call>,
}

impl Process {
    pub(crate) fn look(
        pid: i32,
        seen: &mut Seen,
        front: Option<&Path>,
    ) -> Result<Self, PresenceError> {
        let unreadable = |error: io::Error| PresenceError::Unreadable {
            pid,
            reason: error.to_string(),
        };
        let image = Image::open(pid).map_err(unreadable)?;
        let exe = PathBuf::from(format!("/proc/{pid}/exe"));
        let mut code: Vec<PathBuf> = Vec::new();
        for mapping in image.mappings.iter().filter(|mapping| mapping.is_code) {
            if !code.contains(&mapping.file) {
                code.push(mapping.file.clone());
            }
        }
        let mut calls = seen.slots.calls(&image);
        let program = fs::read_link(&exe).map_err(unreadable)?;
        let file = match seen.programs.get(&program) {
            Some(file) => Rc::clone(file),
            None => Rc::new(Program::read(&exe).map_err(unreadable)?),
        };
        seen.programs.insert(program.clone(), Rc::clone(&file));
        calls.retain(|call| {
            // An object in front makes its own calls to the C library.
            let is_in_front = Some(call.from.as_path()) == front;
            // A program at a fixed address (python of Debian, node) that takes malloc's address gives all objects a
            // stub of its own for it, which calls through the program's slot.
            let goes_on = call.to == program && !file.defines(call.function);
            !is_in_front && !goes_on
        });
        Ok(Self {
            pid,
            program,
            file,
            code,
            calls,
        })
    }

    /// The allocator that the program brings along, beside the one that was preloaded and what
    /// stands in front of it.
    fn native(&self, preloaded: Option<&Path>, front: Option<&Path>) -> Option<String> {
        let others = self.code.iter().map(PathBuf::as_path);
        // A preloaded object may have loaded a second library of its kind, as the proxy of tbb does.
        let kind = preloaded.and_then(name_of_library);
        let is_its = |file: &Path| kind.is_some() && name_of_library(file) == kind;
        let others = others.filter(|&file| Some(file) != preloaded && !is_its(file));
        let known = native_allocator(others, self.file.elf.as_ref()).map(str::to_owned);
        // An allocator with an unknown name counts as well, if nothing was preloaded over it.
        known.or_else(|| {
            let foreign = |call: &&Call| {
                preloaded.is_none()
                    && call.from == self.program
                    && Some(call.to.as_path()) != front
                    && !is_c_library(&call.to)
            };
            let call = self.calls.iter().find(foreign)?;
            Some(call.to.file_name()?.display().to_string())
        })
    }

    /// Every call of malloc gets into `library`, or into what stands in front of it.
    fn demand(&self, library: &Path, front: Option<&Path>) -> Result<(), PresenceError> {
        let pid = self.pid;
        if let Some(reason) = self.file.unsuitable {
            let program = self.program.clone();
            return Err(PresenceError::Unsuitable {
                pid,
                program,
                reason,
            });
        }
        self.demand_mapped(library)?;
        if self
            .file
            .elf
            .as_ref()
            .is_some_and(|elf| elf.exports("malloc"))
        {
            return Err(PresenceError::OwnMalloc {
                program: self.program.clone(),
                library: library.to_owned(),
            });
        }
        let gets_there = |call: &&Call| call.to == library || Some(call.to.as_path()) == front;
        if let Some(call) = self.calls.iter().find(|call| !gets_there(call)) {
            return Err(PresenceError::CallsElsewhere {
                pid,
                from: call.from.clone(),
                function: call.function,
                to: call.to.clone(),
            });
        }
        if self.calls.is_empty() {
            return Err(PresenceError::NoCalls {
                library: library.to_owned(),
                pid,
                program: self.program.clone(),
            });
        }
        Ok(())
    }

    /// The code of a preloaded object is there.
    fn demand_mapped(&self, object: &Path) -> Result<(), PresenceError> {
        if self.code.iter().any(|file| file == object) {
            return Ok(());
        }
        Err(PresenceError::NotMapped {
            library: object.to_owned(),
            pid: self.pid,
            reason: "its environment lost LD_PRELOAD (a wrapper script?) or the dynamic linker could not load the \
                     library (see the log)"
                .to_owned(),
            program: self.program.clone(),
        })
    }

    /// Settings of the C library's malloc mean something only where that is in use.
    fn demand_plain(
        &self,
        allocator: &Allocator,
        native: Option<&str>,
    ) -> Result<(), PresenceError> {
        if allocator.is_plain() {
            return Ok(());
        }
        if let Some(native) = native {
            return Err(PresenceError::NotTheCLibrary {
                program: self.program.clone(),
                native: native.to_owned(),
            });
        }
        match self.file.unsuitable {
            // It has a C library of its own, or none.
            Some(reason) => Err(PresenceError::Unsuitable {
                pid: self.pid,
                program: self.program.clone(),
                reason,
            }),
            None => Ok(()),
        }
    }
}

fn native_allocator<'a>(
    mut files: impl Iterator<Item = &'a Path>,
    program: Option<&Elf>,
) -> Option<&'static str> {
    files.find_map(name_of_library).or_else(|| {
        let program = program?;
        family_by_symbol(|symbol| program.contains(symbol))
    })
}

// Did a setting of the allocator reach the process? It is read once, at the start of the program,
// from the environment that the program was started with.
//
// `/proc/PID/environ` is that environment, unless the program wrote its title over it, as nginx
// does. Then the variables that the program still has count, or those of its parent: a worker that
// was forked has its parent's heap.

/// More parents than a target has.
const PARENTS_MAX: usize = 16;
/// More variables than a program has.
const VARIABLES_MAX: u64 = 4096;
/// More than the longest variable of ours.
const VARIABLE_BYTES_MAX: usize = 8192;

/// How the variable of the C library's tunables begins, and each of them.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=";
const TUNABLE: &[u8] = b"glibc.";

/// True if process `pid`, or the one it was forked from, was started with `name` set to `value`.
fn was_given(pid: i32, name: &OsStr, value: &OsStr) -> bool {
    let wanted = [name.as_bytes(), b"=", value.as_bytes()].concat();
    let mut pid = pid;
    for _ in 0..PARENTS_MAX {
        let given = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if is_intact(&given) {
            return variables(&given).contains(&wanted);
        }
        // A program's current environment may be less than it was given, never more that is ours.
        if present(pid).is_some_and(|variables| variables.contains(&wanted)) {
            return true;
        }
        match parent_of(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// The variables of a process, and where they were found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Variables {
    /// The environment at its program's start.
    Given(Vec<Vec<u8>>),
    /// Its current environment: it wrote its title over the original.
    Present(Vec<Vec<u8>>),
}

/// The variables of process `pid`.
pub(crate) fn of_process(pid: i32) -> io::Result<Variables> {
    let given = fs::read(format!("/proc/{pid}/environ"))?;
    if given.is_empty() || is_intact(&given) {
        return Ok(Variables::Given(variables(&given)));
    }
    let present = present(pid).ok_or_else(|| {
        io::Error::other("its program has overwritten the variables that it was started with")
    })?;
    Ok(Variables::Present(present))
}

/// The variables of `/proc/PID/environ`. The dynamic linker writes zeros over the colons of `GLIBC_TUNABLES` there
/// (C libraries before 2.39 do, in what the program was given), so parts that begin as tunables do belong to it.
fn variables(environment: &[u8]) -> Vec<Vec<u8>> {
    let mut list: Vec<Vec<u8>> = Vec::new();
    for part in environment.split(|&byte| byte == 0) {
        match list.last_mut() {
            Some(last) if last.starts_with(TUNABLES) && part.starts_with(TUNABLE) => {
                last.push(b':');
                last.extend_from_slice(part);
            }
            _ => list.push(part.to_vec()),
        }
    }
    list
}

/// Text, with variables in it: not zeros, and not a title.
fn is_intact(environment: &[u8]) -> bool {
    environment
        .split(|&byte| byte == 0)
        .any(|variable| variable.contains(&b'='))
}

/// The variables that a program has now, where its C library keeps them.
fn present(pid: i32) -> Option<Vec<Vec<u8>>> {
    let image = Image::open(pid).ok()?;
    let library = image
        .objects()
        .into_iter()
        .find(|object| is_c_library(&object.mapping.file))?;
    let elf = Elf::read(&library.readable).ok()??;
    let mapping = library.mapping;
    let bias = elf.load_bias(mapping.start, mapping.file_offset)?;
    let variable = elf
        .address_of("__environ")
        .or_else(|| elf.address_of("environ"))?;
    let list = image.word(bias.wrapping_add(variable))?;
    (0..VARIABLES_MAX)
        .map(|index| image.word(list.checked_add(index * 8)?))
        .map_while(|pointer| pointer.filter(|&pointer| pointer != 0))
        .map(|pointer| image.text(pointer, VARIABLE_BYTES_MAX))
        .collect()
}

// A process's memory as its own files lay it out: what is mapped where, and what is written there.

/// One line of `/proc/PID/maps` that has a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) is_code: bool,
    pub(crate) file_offset: u64,
    pub(crate) inode: u64,
    pub(crate) file: PathBuf,
}

/// A running process.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) mappings: Vec<Mapping>,
    pid: i32,
    memory: File,
}

/// A file with code in a process.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Object<'a> {
    /// The first of its mappings.
    pub(crate) mapping: &'a Mapping,
    /// Where what runs can be read: the process may have another root than this one, or an older file.
    pub(crate) readable: PathBuf,
}

impl Image {
    /// Reads the map and opens the memory of `pid`.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        Ok(Self {
            mappings: maps.lines().filter_map(parse).collect(),
            pid,
            memory: File::open(format!("/proc/{pid}/mem"))?,
        })
    }

    /// The eight bytes at an address; `None` if nothing is there.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0_u8; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// The bytes at an address; `None` if they are not all there.
    pub(crate) fn bytes(&self, address: u64, len_bytes: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len_bytes];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// The bytes at an address up to a zero, no more than `bytes_max` of them.
    pub(crate) fn text(&self, address: u64, bytes_max: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let mut part = [0_u8; 256];
        while text.len() < bytes_max {
            let at = address.checked_add(text.len() as u64)?;
            // Not across a page's end: the next page may not be there.
            let in_page = usize::try_from(256 - at % 256).ok()?;
            let piece = part.get_mut(..in_page)?;
            self.memory.read_exact_at(piece, at).ok()?;
            if let Some(end) = piece.iter().position(|&byte| byte == 0) {
                text.extend_from_slice(piece.get(..end)?);
                return Some(text);
            }
            text.extend_from_slice(piece);
        }
        Some(text)
    }

    /// The file that an address is in.
    pub(crate) fn file_at(&self, address: u64) -> Option<&Path> {
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| (mapping.start..mapping.end).contains(&address))?;
        Some(&mapping.file)
    }

    /// The files with code in this process, each once. A file that was replaced since is left out where only what is on the
    /// disk now can be read: that is not what runs.
    pub(crate) fn objects(&self) -> Vec<Object<'_>> {
        let mut objects: Vec<Object<'_>> = Vec::new();
        for mapping in &self.mappings {
            let is_new = objects
                .iter()
                .all(|object| object.mapping.file != mapping.file);
            let has_code = |other: &&Mapping| other.is_code && other.file == mapping.file;
            if !is_new || !self.mappings.iter().any(|other| has_code(&other)) {
                continue;
            }
            if let Some(readable) = self.readable(mapping) {
                objects.push(Object { mapping, readable });
            }
        }
        objects
    }

    /// Where the mapped file can be read: by its name below the process's root, or, with the right to do so, by the kernel's
    /// link to what is mapped.
    fn readable(&self, mapping: &Mapping) -> Option<PathBuf> {
        let process = PathBuf::from(format!("/proc/{}", self.pid));
        let named = in_root(self.pid, &mapping.file);
        let is_same =
            |path: &Path| fs::metadata(path).is_ok_and(|file| file.ino() == mapping.inode);
        let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        let ways = [named, process.join(link)];
        ways.into_iter().find(|path| is_same(path))
    }
}

/// A path of process `pid` as this one finds it, whatever the root of that is.
pub(crate) fn in_root(pid: i32, path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    PathBuf::from(format!("/proc/{pid}/root")).join(path)
}

/// `start-end perms offset dev inode path`; the path is the rest of the line, blanks included.
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?;
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let file = fields.next()?.trim_start();
    file.starts_with('/').then(|| Mapping {
        start: u64::from_str_radix(start, 16).unwrap_or(0),
        end: u64::from_str_radix(end, 16).unwrap_or(0),
        is_code: permissions.contains('x'),
        file_offset,
        inode,
        file: PathBuf::from(file),
    })
}

#[cfg(test)]
#[path = "tests/presence.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/environment.rs"]
mod environment_tests;

#[cfg(test)]
#[path = "tests/image.rs"]
mod image_tests;
