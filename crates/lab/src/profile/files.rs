//! The files of a profile: pictures, folded stacks, and what `go tool pprof` reads.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, fs};

use millpond_measure::flamegraph::pprof::{Column, Profile};
use millpond_measure::flamegraph::{
    Difference, Picture, Stacks, Unit, draw, draw_difference, fold_difference,
};

use crate::elf::Elf;
use crate::error::LabError;

use super::ProfileConfig;
use super::outcome::{Gathered, Side};
use super::sampler::Sample;
use super::symbols::Symbols;

/// The directory, as it fills.
pub(super) struct Files {
    pub(super) out: PathBuf,
    pub(super) written: Vec<PathBuf>,
    pub(super) title: String,
    pub(super) started_unix_ns: u64,
}

impl Files {
    /// One file.
    pub(super) fn write(&mut self, name: &Path, bytes: &[u8]) -> Result<(), LabError> {
        let path = self.out.join(name);
        let failed = |error| LabError::Output {
            path: path.clone(),
            error,
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        fs::write(&path, bytes).map_err(failed)?;
        self.written.push(path);
        Ok(())
    }

    /// Pictures, folded stacks and pprof files of one candidate.
    pub(super) fn write_side(
        &mut self,
        side: &Side,
        directory: &Path,
        config: &ProfileConfig,
    ) -> Result<(), LabError> {
        let name = &side.figures.name;
        if let Some(figures) = &side.figures.cpu {
            let note = format!(
                "{} at {} Hz; {}",
                figures.event, figures.samples_per_s, figures.unwind
            );
            let what = ("cpu", "CPU time", Unit::Samples, note.as_str());
            self.write_graph(&side.cpu, directory, name, what)?;
            let column = |name, unit, factor| Column {
                name,
                unit,
                stacks: &side.cpu,
                factor,
            };
            let period = 1_000_000_000 / u64::from(figures.samples_per_s.max(1));
            let columns = [
                column("samples", "count", 1),
                column("cpu", "nanoseconds", period),
            ];
            let samples = (&columns[..], period, side.cpu_sampled_ns);
            self.write_pprof(samples, &directory.join("cpu.pb.gz"), config)?;
        }
        if let Some(figures) = &side.figures.allocations {
            let note = format!(
                "estimated from {} samples, one in {} bytes",
                figures.samples, figures.sample_bytes
            );
            let bytes = ("alloc-bytes", "bytes asked for", Unit::Bytes, note.as_str());
            self.write_graph(&side.bytes, directory, name, bytes)?;
            let calls = ("alloc-count", "heap calls", Unit::Calls, note.as_str());
            self.write_graph(&side.calls, directory, name, calls)?;
            let column = |name, unit, stacks| Column {
                name,
                unit,
                stacks,
                factor: 1,
            };
            let columns = [
                column("alloc_objects", "count", &side.calls),
                column("alloc_space", "bytes", &side.bytes),
            ];
            let path = directory.join("alloc.pb.gz");
            let duration_ns = side.allocations_sampled_ns;
            let samples = (&columns[..], figures.sample_bytes, duration_ns);
            self.write_pprof(samples, &path, config)?;
        }
        Ok(())
    }

    fn write_graph(
        &mut self,
        stacks: &Stacks,
        directory: &Path,
        candidate: &str,
        (name, kind, unit, note): (&str, &str, Unit, &str),
    ) -> Result<(), LabError> {
        let picture = Picture {
            title: &format!("{}, {candidate}: {kind}", self.title),
            note,
            unit,
        };
        let svg = draw(stacks, &picture);
        self.write(&directory.join(format!("{name}.svg")), svg.as_bytes())?;
        let folded = stacks.to_folded();
        self.write(&directory.join(format!("{name}.folded")), folded.as_bytes())
    }

    fn write_pprof(
        &mut self,
        (columns, period, duration_ns): (&[Column<'_>], u64, u64),
        path: &Path,
        config: &ProfileConfig,
    ) -> Result<(), LabError> {
        let profile = Profile {
            columns,
            period,
            time_unix_ns: self.started_unix_ns,
            duration_ns,
            comment: &config.command.join(" "),
        };
        let bytes = profile.encode().map_err(|error| LabError::Output {
            path: path.to_owned(),
            error,
        })?;
        self.write(path, &bytes)
    }

    /// The differences between `after` and `before`.
    pub(super) fn write_differences(
        &mut self,
        before: &Side,
        after: &Side,
        directory: &Path,
    ) -> Result<(), LabError> {
        let per_sample = |total: u64, samples: Option<u64>| match samples {
            Some(samples) if samples > 0 => total as f64 / samples as f64,
            _ => 1.0,
        };
        let samples = |side: &Side| side.figures.allocations.as_ref().map(|it| it.samples);
        let both = samples(before).zip(samples(after)).map(|(a, b)| a + b);
        let sides: [(&str, &str, Unit, &Stacks, &Stacks, f64); 3] = [
            (
                "diff-cpu",
                "CPU time",
                Unit::Samples,
                &before.cpu,
                &after.cpu,
                1.0,
            ),
            (
                "diff-alloc-bytes",
                "bytes asked for",
                Unit::Bytes,
                &before.bytes,
                &after.bytes,
                per_sample(before.bytes.total() + after.bytes.total(), both),
            ),
            (
                "diff-alloc-count",
                "heap calls",
                Unit::Calls,
                &before.calls,
                &after.calls,
                per_sample(before.calls.total() + after.calls.total(), both),
            ),
        ];
        for (name, kind, unit, one, other, weight_per_sample) in sides {
            if one.is_empty() || other.is_empty() {
                continue;
            }
            let what = Difference {
                title: &format!("{}: {kind}", self.title),
                before: &before.figures.name,
                after: &after.figures.name,
                unit,
                weight_per_sample,
            };
            let svg = draw_difference(one, other, &what);
            self.write(&directory.join(format!("{name}.svg")), svg.as_bytes())?;
            let folded = fold_difference(one, other);
            self.write(&directory.join(format!("{name}.folded")), folded.as_bytes())?;
        }
        Ok(())
    }
}

// Addresses of sampled heap calls as stacks of names.

/// Turns samples into stacks.
pub(super) struct Reader<'a> {
    pub(super) maps: &'a Maps,
    pub(super) symbols: &'a mut Symbols,
    /// The sampler's own object, whose frames are not wanted.
    pub(super) own: &'a Path,
}

impl Reader<'_> {
    /// Adds all of `samples` to what was gathered.
    pub(super) fn read(&mut self, samples: &[Sample], mean_bytes: u64, gathered: &mut Gathered) {
        let mut relatives: HashMap<u32, Vec<u32>> = HashMap::new();
        for sample in samples {
            let pids = relatives
                .entry(sample.program)
                .or_insert_with(|| vec![sample.program]);
            if !pids.contains(&sample.pid) {
                pids.push(sample.pid);
            }
        }
        let related = |sample: &Sample| relatives.get(&sample.program).map_or(&[][..], |it| it);
        let mut wanted: HashMap<&Path, HashSet<u64>> = HashMap::new();
        for sample in samples {
            for &address in &sample.frames {
                let place = self
                    .maps
                    .place(sample.pid, related(sample), call_of(address));
                if let CodeLocation::File(file, offset) = place {
                    wanted.entry(file).or_default().insert(offset);
                }
            }
        }
        self.symbols.prepare(wanted);
        for sample in samples {
            let frames = self.frames(sample, related(sample));
            gathered.add_allocation(sample, mean_bytes, &frames);
        }
    }

    /// Innermost first, the process last.
    fn frames(&self, sample: &Sample, relatives: &[u32]) -> Vec<String> {
        let mut frames: Vec<String> = Vec::new();
        for &address in &sample.frames {
            match self.maps.place(sample.pid, relatives, call_of(address)) {
                CodeLocation::File(file, _) if file == self.own => {}
                CodeLocation::File(file, offset) => {
                    frames.extend(self.symbols.names(file, offset).iter().cloned());
                }
                CodeLocation::Generated => frames.push("[generated code]".to_owned()),
                // A chain that leads out of the code was none from here on.
                CodeLocation::Nowhere => break,
            }
        }
        frames.dedup_by(|one, other| one == other && one.starts_with('['));
        if sample.is_cut {
            frames.push("[deeper than recorded]".to_owned());
        }
        if frames.is_empty() {
            frames.push("[no stack]".to_owned());
        }
        frames.push(self.maps.name(sample.pid, relatives).to_owned());
        frames
    }
}

/// A return address is behind the call, which may be its function's last instruction.
fn call_of(address: u64) -> u64 {
    address.saturating_sub(1)
}

// Which file an address of a process belongs to, remembered beyond the process's end.

/// Executable memory.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Code {
    start: u64,
    end: u64,
    file_offset: u64,
    /// `None` for code that was made at run time.
    file: Option<PathBuf>,
}

/// Where an address is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum CodeLocation<'a> {
    /// In a file, at an offset.
    File(&'a PathBuf, u64),
    /// In memory without a file.
    Generated,
    /// In no known executable memory.
    Nowhere,
}

/// A process, as it was last seen.
#[derive(Clone, Debug, Default)]
struct Process {
    name: String,
    code: Vec<Code>,
}

/// All processes of a run.
#[derive(Debug, Default)]
pub(super) struct Maps {
    processes: HashMap<u32, Process>,
}

impl Maps {
    /// Reads every process; one that is gone by now keeps what was seen before.
    pub(super) fn capture(&mut self, pids: &[u32]) {
        for &pid in pids {
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
                continue;
            };
            let code: Vec<Code> = text.lines().filter_map(parse).collect();
            if code.is_empty() {
                continue;
            }
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            self.processes.insert(pid, Process { name, code });
        }
    }

    /// Where `address` is in `pid`, or in one of its program's other processes, if it was never
    /// read itself.
    pub(super) fn place(&self, pid: u32, relatives: &[u32], address: u64) -> CodeLocation<'_> {
        let own = self.processes.get(&pid);
        let known = own.or_else(|| relatives.iter().find_map(|pid| self.processes.get(pid)));
        let code = known.and_then(|process| {
            let mut all = process.code.iter();
            all.find(|code| (code.start..code.end).contains(&address))
        });
        match code {
            Some(Code {
                file: Some(file),
                start,
                file_offset,
                ..
            }) => CodeLocation::File(file, address - start + file_offset),
            Some(_) => CodeLocation::Generated,
            None => CodeLocation::Nowhere,
        }
    }

    /// The name of a process.
    pub(super) fn name(&self, pid: u32, relatives: &[u32]) -> &str {
        let own = self.processes.get(&pid);
        let known = own.or_else(|| relatives.iter().find_map(|pid| self.processes.get(pid)));
        known.map_or("[ended]", |process| process.name.as_str())
    }
}

/// `start-end perms offset dev inode path`; the path is the rest of the line, blanks included.
fn parse(line: &str) -> Option<Code> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    if !fields.next()?.contains('x') {
        return None;
    }
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let file = fields.nth(2).unwrap_or_default().trim();
    let file = file.strip_suffix(" (deleted)").unwrap_or(file);
    // Anonymous memory of V8 has a name in brackets, memory without a disk one of its own.
    let is_file = file.starts_with('/') && !file.starts_with("/memfd:");
    Some(Code {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        file_offset,
        file: is_file.then(|| PathBuf::from(file)),
    })
}

// How perf follows stacks: by frame pointers, or by the unwind tables over a copy of the stack.
//
// Frame pointers cost next to nothing and give nonsense in programs that were built without them,
// as most distributions' are. The automatic choice reads the program.

/// Bytes of stack in each sample: enough for an interpreter's nest of calls.
const STACK_BYTES: u32 = 16 * 1024;
/// From this share of functions with a frame pointer on, chains of them are whole.
const SHARE_MIN: f64 = 0.5;

/// The way.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Unwind {
    /// The choice that fits the program.
    #[default]
    Auto,
    /// Frame pointers.
    FramePointers,
    /// The tables that exceptions use.
    Dwarf,
}

impl Unwind {
    /// One of the other two, with the reason, for the program at `path`.
    pub(super) fn choose(self, program: &Path) -> (Self, String) {
        if self != Self::Auto {
            return (self, format!("stacks by {self}, as asked for"));
        }
        let share = Elf::read(program)
            .ok()
            .flatten()
            .and_then(|elf| elf.frame_pointer_share());
        match share {
            Some(share) if share >= SHARE_MIN => (
                Self::FramePointers,
                "stacks by frame pointers, which most functions of the program keep".to_owned(),
            ),
            Some(_) => (
                Self::Dwarf,
                "stacks by unwind tables, since the program is built without frame pointers"
                    .to_owned(),
            ),
            None => (Self::Dwarf, "stacks by unwind tables".to_owned()),
        }
    }

    /// For `perf record --call-graph`.
    pub(super) fn call_graph(self) -> String {
        match self {
            Self::FramePointers => "fp".to_owned(),
            Self::Auto | Self::Dwarf => format!("dwarf,{STACK_BYTES}"),
        }
    }
}

impl FromStr for Unwind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "fp" => Ok(Self::FramePointers),
            "dwarf" => Ok(Self::Dwarf),
            _ => Err("write auto, fp (frame pointers) or dwarf (unwind tables)".to_owned()),
        }
    }
}

impl fmt::Display for Unwind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "whatever fits",
            Self::FramePointers => "frame pointers",
            Self::Dwarf => "unwind tables",
        })
    }
}

#[cfg(test)]
#[path = "tests/maps.rs"]
mod maps_tests;

#[cfg(test)]
#[path = "tests/unwind.rs"]
mod unwind_tests;
