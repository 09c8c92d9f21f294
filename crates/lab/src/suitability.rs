//! Programs that no preloaded allocator can serve, told by their file before anything is started.
//!
//! On the path: `compare` refuses such a command at once, and `presence` looks again at the program
//! that really serves, since a command may be a script.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::elf::Elf;

/// Why a program cannot be given another malloc; a sentence that goes on after the program's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unsuitable {
    /// Nobody looks at `LD_PRELOAD`.
    #[error("is statically linked and never looks at LD_PRELOAD; link it dynamically")]
    Static,
    /// Its heap is not malloc's.
    #[error(
        "is a Go program: its heap is the Go runtime's own, and malloc serves at most what it calls \
         in C"
    )]
    Go,
    /// The dynamic linker ignores `LD_PRELOAD` there.
    #[error(
        "is setuid or setgid, where the dynamic linker ignores LD_PRELOAD; compare a copy without \
         these bits"
    )]
    SetId,
    /// The same.
    #[error(
        "has file capabilities, where the dynamic linker ignores LD_PRELOAD; compare a copy of it, \
         which has none"
    )]
    Capabilities,
    /// A sanitizer is an allocator.
    #[error(
        "is built with {0}, which is an allocator itself and checks every access; build it without"
    )]
    Sanitizer(&'static str),
}

/// A symbol that every program of a sanitizer defines or wants.
const SANITIZERS: &[(&str, &str)] = &[
    ("__asan_init", "AddressSanitizer"),
    ("__hwasan_init", "HWAddressSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__lsan_init", "LeakSanitizer"),
];
/// Sections that the Go linker writes, stripped or not.
const GO_SECTIONS: &[&str] = &[".go.buildinfo", ".note.go.buildid"];
const SET_ID_BITS: u32 = 0o6000;

/// Why the program at `path` is unsuitable; `None` if it is not, or if it is no program of this
/// machine (a script: what it starts is looked at when it serves).
///
/// # Errors
/// If the file cannot be read.
pub fn of_program(path: &Path) -> io::Result<Option<Unsuitable>> {
    let Some(elf) = Elf::read(path)? else {
        return Ok(None);
    };
    of_elf(&elf, path)
}

/// The same for the file at `path` that was read already.
pub(crate) fn of_elf(elf: &Elf, path: &Path) -> io::Result<Option<Unsuitable>> {
    Ok(of_contents(elf).or(of_permissions(path)?))
}

fn of_contents(elf: &Elf) -> Option<Unsuitable> {
    // Before the question of linking: both kinds of Go program are Go.
    if GO_SECTIONS.iter().any(|name| elf.has_section(name)) {
        return Some(Unsuitable::Go);
    }
    if elf.is_static_program() {
        return Some(Unsuitable::Static);
    }
    let found = SANITIZERS.iter().find(|(symbol, _)| elf.mentions(symbol));
    found.map(|&(_, name)| Unsuitable::Sanitizer(name))
}

fn of_permissions(path: &Path) -> io::Result<Option<Unsuitable>> {
    if fs::metadata(path)?.permissions().mode() & SET_ID_BITS != 0 {
        return Ok(Some(Unsuitable::SetId));
    }
    let mut value = [0_u8; 64];
    // A file system without attributes has no capabilities either.
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    Ok(has_capabilities.then_some(Unsuitable::Capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn compile(directory: &Path, name: &str, flags: &[&str]) -> std::path::PathBuf {
        let (source, program) = (directory.join("main.c"), directory.join(name));
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut compiler = Command::new("cc");
        let status = compiler
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .status();
        assert!(status.unwrap().success(), "cc {flags:?}");
        program
    }

    /// Goal: each kind of program that cannot be served is told by its file, and a plain one is not.
    #[test]
    fn unsuitable_programs_are_told_by_their_files() {
        let directory = tempfile::tempdir().unwrap();
        let of = |name: &str, flags: &[&str]| {
            of_program(&compile(directory.path(), name, flags)).unwrap()
        };
        assert_eq!(of("plain", &[]), None);
        assert_eq!(of("static", &["-static"]), Some(Unsuitable::Static));
        assert_eq!(of("static-pie", &["-static-pie"]), Some(Unsuitable::Static));
        let address = Some(Unsuitable::Sanitizer("AddressSanitizer"));
        assert_eq!(of("asan", &["-fsanitize=address"]), address);
        let thread = Some(Unsuitable::Sanitizer("ThreadSanitizer"));
        assert_eq!(of("tsan", &["-fsanitize=thread"]), thread);
        assert_eq!(of("ubsan", &["-fsanitize=undefined"]), None);
        let set_id = compile(directory.path(), "set-id", &[]);
        fs::set_permissions(&set_id, fs::Permissions::from_mode(0o4755)).unwrap();
        assert_eq!(of_program(&set_id).unwrap(), Some(Unsuitable::SetId));
        let script = directory.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(of_program(&script).unwrap(), None);
        assert!(of_program(Path::new("/nowhere/program")).is_err());
    }

    /// Goal: a Go program is called one, whether it is linked statically or not.
    #[test]
    fn go_programs_are_told() {
        let go = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];
        let runs = |go: &&&str| Command::new(go).arg("version").output().is_ok();
        let Some(go) = go.iter().find(runs) else {
            eprintln!("skipped: go is not installed; apt-get install golang-go brings it");
            return;
        };
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (
            directory.path().join("main.go"),
            directory.path().join("main"),
        );
        fs::write(&source, "package main\nfunc main() { println(1) }\n").unwrap();
        let mut compiler = Command::new(go);
        let cache = directory.path().join("cache");
        compiler
            .env("GOCACHE", cache)
            .env("GO111MODULE", "off")
            .env("CGO_ENABLED", "0");
        let status = compiler
            .args(["build", "-ldflags=-s -w", "-o"])
            .arg(&program)
            .arg(&source);
        assert!(status.status().unwrap().success());
        assert_eq!(of_program(&program).unwrap(), Some(Unsuitable::Go));
    }
}
