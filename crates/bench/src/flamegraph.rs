//! Where the time goes: perf's samples of programs and candidates, drawn as one flame graph.
//!
//! On the path: a pass of its own after the timed runs, on request only, since sampling takes time.
//! Samples come from the processor's cycles where they can be counted, else from the CPU clock.
//! Absent on purpose: unwinding and symbols of our own. perf does both, and is named when missing.

mod svg;

use crate::child::ChildSpec;
use crate::counters;
use crate::directory::PrivateDirectory;
use crate::error::BenchError;
use crate::subject::{Launch, Preload, Subject};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Off the beat of anything that happens a thousand times a second.
const SAMPLES_PER_S: &str = "997";
/// Bytes of stack in each sample: the programs are not deep, and more takes longer to unwind.
const UNWIND: &str = "dwarf,8192";

/// Whether perf is here and the file can be written, before minutes are spent.
pub(crate) fn available(path: &Path) -> Result<(), BenchError> {
    let status = Command::new("perf")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return Err(BenchError::Flamegraph(
            "it needs perf, which is not installed or does not run (Debian package linux-perf)"
                .to_owned(),
        ));
    }
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if directory.is_dir() {
        return Ok(());
    }
    Err(BenchError::Flamegraph(format!(
        "the directory {} does not exist",
        directory.display()
    )))
}

/// How often each stack was seen, outermost frame first, `;` in between.
#[derive(Debug, Default)]
pub(crate) struct Stacks(BTreeMap<String, u64>);

impl Stacks {
    /// Runs a program under perf and adds its stacks below `title`.
    pub(crate) fn record(
        &mut self,
        launcher: &Path,
        spec: &ChildSpec,
        title: &str,
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        let directory = PrivateDirectory::create()?;
        let data = directory.path.join("perf.data");
        let event = if counters::available().is_ok() {
            "cycles"
        } else {
            "cpu-clock"
        };
        let words = ["record", "-q", "-F", SAMPLES_PER_S, "-e", event];
        let mut wrapper: Vec<OsString> = vec!["perf".into()];
        wrapper.extend(words.map(OsString::from));
        wrapper.extend(["--call-graph".into(), UNWIND.into(), "-o".into()]);
        wrapper.extend([data.clone().into(), "--".into()]);
        // perf would run under a preloaded allocator too: `env` sets it for the child alone. The
        // child is told to expect the library all the same.
        if let Some(library) = &spec.library {
            let mut variable = OsString::from("LD_PRELOAD=");
            variable.push(library);
            wrapper.extend(["env".into(), variable]);
        }
        let launch = Launch {
            program: launcher,
            wrapper: &wrapper,
            preload: Preload::Nothing,
            environment: &[],
        };
        let failed = |error: &dyn Display| BenchError::Flamegraph(format!("{title}: {error}"));
        Subject::start(&launch, spec)
            .and_then(|subject| subject.finish(stop))
            .map_err(|error| failed(&error))?;
        let script = Command::new("perf")
            .args(["script", "--no-inline", "-F", "ip,sym", "-i"])
            .arg(&data)
            .stderr(Stdio::null())
            .output()
            .map_err(|error| failed(&error))?;
        self.add(&String::from_utf8_lossy(&script.stdout), title);
        Ok(())
    }

    /// Adds `perf script -F ip,sym`: a line for each frame, innermost first, and a blank line after
    /// each stack.
    fn add(&mut self, script: &str, title: &str) {
        for stack in script.split("\n\n") {
            let frames: Vec<&str> = stack.lines().filter_map(symbol).collect();
            if frames.is_empty() {
                continue;
            }
            let mut line = title.to_owned();
            for frame in frames.iter().rev() {
                line.push(';');
                line.push_str(&frame.replace(';', ":"));
            }
            *self.0.entry(line).or_default() += 1;
        }
    }

    /// Writes the picture.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), BenchError> {
        if self.0.is_empty() {
            return Err(BenchError::Flamegraph(
                "perf took no samples: give the programs more --iterations".to_owned(),
            ));
        }
        let picture = svg::draw(&self.0, "millpond bench pools: CPU time by stack");
        std::fs::write(path, picture).map_err(|error| BenchError::Output {
            path: path.to_owned(),
            error,
        })
    }
}

/// The function of a frame's line `  55d0c0ffee name`, without the hash that Rust appends.
fn symbol(line: &str) -> Option<&str> {
    let (address, name) = line.trim().split_once(' ')?;
    u64::from_str_radix(address, 16).ok()?;
    let name = name.trim();
    let is_hash = |tail: &str| {
        tail.len() == 17
            && tail.starts_with('h')
            && tail[1..].bytes().all(|it| it.is_ascii_hexdigit())
    };
    Some(match name.rsplit_once("::") {
        Some((path, tail)) if is_hash(tail) => path,
        _ => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: stacks come outermost first, equal ones add up, and lines that are no frames are left
    /// out.
    #[test]
    fn stacks_of_a_script() {
        let script = "\
\t    55d1 malloc\n\t    55d0 bench::pair::h0123456789abcdef\n\t    55cf main\n\n\
\t    55d1 malloc\n\t    55d0 bench::pair::h0123456789abcdef\n\t    55cf main\n\n\
\t    77ff [unknown]\n\nnothing here\n";
        let mut stacks = Stacks::default();
        stacks.add(script, "glibc;pair");
        let found: Vec<_> = stacks.0.into_iter().collect();
        assert_eq!(
            found,
            [
                ("glibc;pair;[unknown]".to_owned(), 1),
                ("glibc;pair;main;bench::pair;malloc".to_owned(), 2)
            ]
        );
    }
}
