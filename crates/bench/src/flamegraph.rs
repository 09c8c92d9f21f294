//! Where the time goes: perf's samples of programs and candidates, drawn as one flame graph.
//!
//! A pass of its own after the timed runs, on request only, since sampling takes time. Samples come
//! from the processor's cycles where they can be counted, else from the CPU clock.

use crate::child::ChildSpec;
use crate::child::PrivateDirectory;
use crate::counters;
use crate::error::BenchError;
use crate::subject::{Launch, Preload, Subject};
use millpond_measure::flamegraph::{self, Picture, Root, Unit};
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

/// How often each stack was seen, below the title of its run.
#[derive(Debug, Default)]
pub(crate) struct Stacks(flamegraph::Stacks);

impl Stacks {
    /// Runs a program under perf and adds its stacks below `title`.
    pub(crate) fn record(
        &mut self,
        launcher: &Path,
        spec: &ChildSpec,
        environment: &[(OsString, OsString)],
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
        // child still expects the library.
        if let Some(library) = &spec.library {
            wrapper.push("env".into());
            let preload = (OsString::from("LD_PRELOAD"), OsString::from(library));
            for (name, value) in std::iter::once(&preload).chain(environment) {
                let mut variable = name.clone();
                variable.push("=");
                variable.push(value);
                wrapper.push(variable);
            }
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
            .args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"])
            .arg(&data)
            .stderr(Stdio::null())
            .output()
            .map_err(|error| failed(&error))?;
        let script = String::from_utf8_lossy(&script.stdout);
        self.0.add_perf_script(&script, Root::Title(title));
        Ok(())
    }

    /// Writes the picture.
    pub(crate) fn draw(&self, path: &Path) -> Result<(), BenchError> {
        if self.0.is_empty() {
            return Err(BenchError::Flamegraph(
                "perf took no samples: give the programs more --iterations".to_owned(),
            ));
        }
        let picture = Picture {
            title: "millpond bench pools: CPU time by stack",
            note: "",
            unit: Unit::Samples,
        };
        let picture = flamegraph::draw(&self.0, &picture);
        std::fs::write(path, picture).map_err(|error| BenchError::Output {
            path: path.to_owned(),
            error,
        })
    }
}
