//! Proof that the allocator a run is named after is the one that serves.
//!
//! The dynamic linker goes on without a library it cannot load, static programs never look at
//! `LD_PRELOAD`, wrapper scripts drop it: each gives a run that is plain glibc under another name.
//! So, for every process that holds the listening socket: the library's code must be mapped, the
//! program must not define malloc itself (the linker would find that first), every address of
//! malloc, calloc, realloc and free that the dynamic linker wrote must lead into the library
//! (`interposition`), its settings must have reached the process (`environment`), and with nothing
//! preloaded no allocator may be there unnoticed. What cannot be proved is refused.
//! Absent on purpose: trust in the command line, in the variables of the lab, and in the target's
//! words.

pub(crate) mod environment;
pub(crate) mod image;
pub(crate) mod interposition;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use crate::allocator::{Allocator, family_by_symbol, name_of_library};
use crate::elf::Elf;
use crate::process_tree;
use crate::suitability::{self, Unsuitable};
use image::Image;
use interposition::{Call, Slots, is_c_library};

/// How often a process is looked at that is not as it should be.
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
        /// The library that is mapped in vain.
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
        /// What it calls.
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
        /// What it uses.
        native: String,
    },
    /// The process belongs to another user, or a file of it cannot be read.
    #[error("cannot look into process {pid}: {reason}")]
    Unreadable {
        /// The serving process.
        pid: i32,
        /// What the system said.
        reason: String,
    },
    /// There was no process to look at, or all of them ended meanwhile.
    #[error("no process of the server was left when its allocator was checked")]
    NothingServes,
}

/// What was found in the processes that serve.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Presence {
    /// The processes that were looked at.
    pub pids: Vec<i32>,
    /// The allocator that the target brings along by itself, if it is not the C library's.
    pub native: Option<String>,
}

/// Looks into every process of `pids` (those that serve) and demands `allocator` there. One that ends
/// meanwhile (a worker that is replaced) serves no longer and is left out; if all do, that is
/// [`PresenceError::NothingServes`].
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

/// What `look` finds in each process; one that has ended meanwhile is left out.
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

/// The same in one process; `None` if it has ended, or is ending. One that replaces itself by another program has no memory
/// to look at for a moment: it is looked at again before it is refused.
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
    match environment::was_given(pid, name, value) {
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

/// What was read of files: workers run what their master runs, and a program may have 100 MB.
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

/// What can be seen of one process.
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
            // What stands in front has its own business with the C library.
            let is_in_front = Some(call.from.as_path()) == front;
            // A program at a fixed address (python of Debian, node) that takes malloc's address lends
            // everybody a place of its own for it, from where the call goes on through its own slot.
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
        // What was preloaded may have brought a second library of its kind, as the proxy of tbb does.
        let kind = preloaded.and_then(name_of_library);
        let is_its = |file: &Path| kind.is_some() && name_of_library(file) == kind;
        let others = others.filter(|&file| Some(file) != preloaded && !is_its(file));
        let known = native_allocator(others, self.file.elf.as_ref()).map(str::to_owned);
        // One that we do not know by name is there as well, if nothing was preloaded over it.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: this very process, which has nothing preloaded, passes as plain and fails as another.
    #[test]
    fn own_process_is_not_under_another_allocator() {
        let own = i32::try_from(std::process::id()).unwrap();
        let plain = Allocator::native("glibc");
        assert_eq!(
            prove(&[own], &plain),
            Ok(Presence {
                pids: vec![own],
                native: None
            })
        );
        let other = Allocator::preloaded("other", "/lib/libother.so".into());
        let sentence = prove(&[own], &other).unwrap_err().to_string();
        assert!(
            sentence.starts_with("allocator not in use: /lib/libother.so"),
            "{sentence}"
        );
        assert_eq!(prove(&[], &plain), Err(PresenceError::NothingServes));
        assert_eq!(
            prove(&[i32::MAX], &plain),
            Err(PresenceError::NothingServes)
        );
    }

    /// A worker of Apache that its parent ended while it was looked at had no memory any more, and was alive for another
    /// moment: a comparison ended with "allocator not in use".
    ///
    /// Goal: what is not as it should be for a moment only is no error, whether it ends then or is right then; what
    /// stays wrong is.
    #[test]
    fn a_process_that_vanishes_is_looked_at_again() {
        let own = i32::try_from(std::process::id()).unwrap();
        let right_at = |right: u32| {
            let mut looks = 0;
            let found = each_living(&[own], |_| {
                looks += 1;
                match looks < right {
                    true => Err(PresenceError::NothingServes),
                    false => Ok(()),
                }
            });
            found.map(|found| found.len())
        };
        assert_eq!(right_at(5), Ok(1));
        assert_eq!(right_at(u32::MAX), Err(PresenceError::NothingServes));
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let vanishing = i32::try_from(child.id()).unwrap();
        let found = each_living(&[vanishing, own], |pid| {
            if pid == own {
                return Ok(());
            }
            child.kill().unwrap();
            Err(PresenceError::NothingServes)
        });
        assert_eq!(found.map(|found| found.len()), Ok(1));
        child.wait().unwrap();
    }

    /// Goal: a process that has ended since the list was made is left out, collected by its parent or
    /// not: a comparison of a server in the background once failed with "cannot look into process".
    #[test]
    fn ended_processes_are_left_out() {
        let own = i32::try_from(std::process::id()).unwrap();
        let plain = Allocator::native("glibc");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = i32::try_from(child.id()).unwrap();
        while process_tree::is_alive(ended) {
            std::thread::yield_now();
        }
        for _ in 0..2 {
            let found = prove(&[ended, own, i32::MAX], &plain).unwrap();
            assert_eq!(found.pids, [own]);
            let error = PresenceError::NothingServes;
            assert_eq!(prove(&[ended], &plain), Err(error.clone()));
            assert_eq!(prove_emulated(&[ended], &plain), Err(error));
            child.wait().unwrap();
        }
    }
}
