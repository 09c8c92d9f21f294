//! The files of a profile: pictures, folded stacks, and what `go tool pprof` reads.

use std::fs;
use std::path::{Path, PathBuf};

use millpond_measure::flamegraph::pprof::{Column, Profile};
use millpond_measure::flamegraph::{
    Difference, Picture, Stacks, Unit, draw, draw_difference, fold_difference,
};

use super::ProfileConfig;
use super::outcome::Side;
use crate::error::LabError;

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

    /// What `after` has more and less of than `before`.
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
