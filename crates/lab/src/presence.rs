//! Proof that the allocator a run is named after is the one that serves.
//!
//! The dynamic linker goes on without a library it cannot load, static programs never look at
//! `LD_PRELOAD`, wrapper scripts drop it: each gives a run that is plain glibc under another name.
//! So, for every process that holds the listening socket: the library's code must be mapped, the
//! program must not define malloc itself (the linker would find that first), and with nothing
//! preloaded no allocator may be there unnoticed.
//! Absent on purpose: trust in the command line, in the environment, and in the target's words.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::allocator::{Allocator, name_of_library};
use crate::elf::Elf;

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
    /// The process ended, or belongs to somebody else.
    #[error("cannot look into process {pid}: {reason}")]
    Unreadable {
        /// The serving process.
        pid: i32,
        /// What the system said.
        reason: String,
    },
}

/// What was found in the processes that serve.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Presence {
    /// The processes that were looked at.
    pub pids: Vec<i32>,
    /// The allocator that the target brings along by itself, if it is not the C library's.
    pub native: Option<String>,
}

/// Looks into every process of `pids` (those that serve) and demands `allocator` there.
pub fn prove(pids: &[i32], allocator: &Allocator) -> Result<Presence, PresenceError> {
    let mut presence = Presence {
        pids: pids.to_vec(),
        native: None,
    };
    for &pid in pids {
        let unreadable = |error: std::io::Error| PresenceError::Unreadable {
            pid,
            reason: error.to_string(),
        };
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(unreadable)?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).map_err(unreadable)?;
        let code = code_files(&maps);
        let elf = Elf::read(Path::new(&format!("/proc/{pid}/exe"))).map_err(unreadable)?;
        if presence.native.is_none() {
            let others = code
                .iter()
                .filter(|&&file| Some(file) != allocator.library.as_deref());
            presence.native = native_allocator(others.copied(), elf.as_ref()).map(str::to_owned);
        }
        let Some(library) = &allocator.library else {
            continue;
        };
        if !code.contains(&library.as_path()) {
            return Err(PresenceError::NotMapped {
                library: library.clone(),
                pid,
                reason: why_not_mapped(&program, elf.as_ref()),
                program,
            });
        }
        if elf.is_some_and(|elf| elf.exports("malloc")) {
            return Err(PresenceError::OwnMalloc {
                program,
                library: library.clone(),
            });
        }
    }
    Ok(presence)
}

/// The files a process executes code from.
fn code_files(maps: &str) -> Vec<&Path> {
    let mut files: Vec<&Path> = maps
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(6, ' ');
            let permissions = fields.nth(1)?;
            let file = fields.nth(3)?.trim_start();
            (permissions.contains('x') && file.starts_with('/')).then(|| Path::new(file))
        })
        .collect();
    files.dedup();
    files
}

fn native_allocator<'a>(
    mut files: impl Iterator<Item = &'a Path>,
    program: Option<&Elf>,
) -> Option<&'static str> {
    // A symbol that only this allocator has, for those that are linked into the program.
    const MARKS: &[(&str, &str)] = &[
        ("mallctl", "jemalloc"),
        ("je_mallctl", "jemalloc"),
        ("_rjem_mallctl", "jemalloc"),
        ("mi_version", "mimalloc"),
        ("tc_version", "tcmalloc"),
        ("sn_rust_alloc", "snmalloc"),
    ];
    files.find_map(name_of_library).or_else(|| {
        let program = program?;
        MARKS
            .iter()
            .find(|(symbol, _)| program.contains(symbol))
            .map(|&(_, name)| name)
    })
}

fn why_not_mapped(program: &Path, elf: Option<&Elf>) -> String {
    let privileged = fs::metadata(program).is_ok_and(|m| m.permissions().mode() & 0o6000 != 0);
    match elf {
        Some(elf) if elf.is_static_program() => {
            "the program is statically linked and never looks at LD_PRELOAD".to_owned()
        }
        _ if privileged => {
            "the program is setuid or setgid, where the dynamic linker ignores LD_PRELOAD"
                .to_owned()
        }
        _ => "its environment lost LD_PRELOAD (a wrapper script?) or the dynamic linker could not \
              load the library (see the log)"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only code mappings of files count; data mappings and names with blanks do not confuse.
    #[test]
    fn code_files_of_maps() {
        let maps = "\
55d0-55d1 r--p 00000000 fe:00 11   /usr/bin/a\n\
55d1-55d2 r-xp 00000000 fe:00 11                  /usr/bin/my prog\n\
7f00-7f01 rw-p 00000000 00:00 0 \n\
7f02-7f03 r-xp 00000000 fe:00 12   /lib/libx.so\n\
7f03-7f04 r--p 00000000 fe:00 13   /lib/libdata.so\n\
7ffc-7ffd r-xp 00000000 00:00 0                          [vdso]\n";
        assert_eq!(
            code_files(maps),
            [Path::new("/usr/bin/my prog"), Path::new("/lib/libx.so")]
        );
    }

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
        assert!(prove(&[i32::MAX], &plain).is_err());
    }
}
