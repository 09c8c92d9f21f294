//! Allocators that a program of somebody else's can be given, and the proof that it takes them.
//!
//! Debian's, those that `cargo xtask allocators` built, the C library's own and ours. All are
//! preloaded, the C library too: a program that is linked with an allocator has that one otherwise,
//! as Debian's redis has jemalloc.
//! Absent on purpose: `millpond_lab`, which finds the same ones; see `Cargo.toml`.

use super::Bench;
use super::command::text_of;
use crate::step::{cargo, run_command};
use crate::tally::TestTally;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Ours.
pub(super) const MEMPOOL: &str = "mempool";

/// Where the dynamic linker finds the distribution's.
const DIRECTORIES: [&str; 4] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];
/// Names, and files that may be there.
const KNOWN: [(&str, &str); 4] = [
    ("glibc", "libc.so.6"),
    ("jemalloc", "libjemalloc.so.2"),
    ("tcmalloc", "libtcmalloc_minimal.so.4"),
    ("mimalloc", "libmimalloc.so.2.0"),
];
/// Where `millpond` looks for those that were built, when it is set.
const BUILT_VARIABLE: &str = "MILLPOND_ALLOCATORS";

/// An object to preload.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) library: PathBuf,
}

/// Ours, which is built now, and all others that are here.
pub(super) fn find(bench: &Bench) -> Result<Vec<Candidate>, String> {
    let mut found = vec![ours(bench)?];
    for (name, file) in KNOWN {
        let paths = DIRECTORIES
            .iter()
            .map(|directory| Path::new(directory).join(file));
        if let Some(library) = paths.filter_map(|path| path.canonicalize().ok()).next() {
            let name = name.to_owned();
            found.push(Candidate { name, library });
        }
    }
    let directory = std::env::var_os(BUILT_VARIABLE)
        .map_or_else(|| bench.target.join("allocators"), PathBuf::from);
    let mut built: Vec<Candidate> = std::fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let library = entry.path().canonicalize().ok()?;
            let file = library.file_name()?.to_str()?;
            let name = file.strip_prefix("libmillpond-")?.strip_suffix(".so")?;
            Some(Candidate {
                name: name.to_owned(),
                library,
            })
        })
        .collect();
    built.sort_by(|one, other| one.name.cmp(&other.name));
    found.extend(built);
    Ok(found)
}

fn ours(bench: &Bench) -> Result<Candidate, String> {
    let mut build = cargo();
    build.args(["build", "--locked", "--profile", "preload"]);
    build.args(["--package", "millpond-preload-mempool"]);
    if !run_command(&mut build, &mut TestTally::default())? {
        return Err("the pools as malloc do not build".to_owned());
    }
    let path = bench.target.join("preload/libmillpond_mempool_malloc.so");
    let library = path
        .canonicalize()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let name = MEMPOOL.to_owned();
    Ok(Candidate { name, library })
}

impl Candidate {
    /// Asks the dynamic linker whose `malloc` a program calls when this is preloaded.
    pub(super) fn prove(&self, program: &str) -> Result<(), String> {
        let mut command = Command::new("sh");
        // The linker writes to standard error.
        command.args(["-c", "exec \"$0\" --version 2>&1", program]);
        command.env("LD_PRELOAD", &self.library);
        command.env("LD_DEBUG", "bindings");
        let text = text_of(&mut command)?;
        let object = bound_to(&text, program, "malloc")
            .ok_or_else(|| format!("{program} calls no malloc that the linker knows of"))?;
        let is_bound = Path::new(object).canonicalize().ok().as_ref() == Some(&self.library);
        is_bound.then_some(()).ok_or_else(|| {
            let (name, library) = (&self.name, self.library.display());
            format!("{name}: {program} takes malloc from {object}, not from {library}")
        })
    }
}

/// Reads `binding file PROGRAM [0] to OBJECT [0]: normal symbol `malloc'`.
fn bound_to<'a>(text: &'a str, program: &str, symbol: &str) -> Option<&'a str> {
    let quoted = format!("symbol `{symbol}'");
    text.lines()
        .filter(|line| line.contains(&quoted))
        .find_map(|line| {
            let (file, rest) = line.split_once("binding file ")?.1.split_once(" [0] to ")?;
            let is_program = Path::new(file).file_name()? == program;
            is_program.then(|| rest.split(" [").next())?
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the object is that of the program's own call, and of this symbol only.
    #[test]
    fn bindings_are_read() {
        let text = "\
     7:\tbinding file /lib/libssl.so.3 [0] to /lib/libc.so.6 [0]: normal symbol `malloc' [GLIBC_2.2.5]
     7:\tbinding file redis-server [0] to /lib/a.so.2 [0]: normal symbol `malloc_usable_size'
     7:\tbinding file redis-server [0] to /lib/b.so.2 [0]: normal symbol `malloc'
";
        assert_eq!(
            bound_to(text, "redis-server", "malloc"),
            Some("/lib/b.so.2")
        );
        assert_eq!(bound_to(text, "redis-cli", "malloc"), None);
    }
}
