//! What is written while a comparison runs: one JSON line per run, so that even a lab that is killed
//! leaves what it measured.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use millpond_measure::record::{Measure, RoundMeasures};
use millpond_measure::series::Series;
use serde::Serialize;

use crate::error::LabError;

/// One line. Numbers only ever grow in kind: a reader ignores what it does not know.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A scored run.
    Run {
        candidate: &'a str,
        #[serde(flatten)]
        measures: &'a RoundMeasures,
        start_ns: u64,
        stop_ns: Option<u64>,
        rss_bytes: &'a Series,
        #[serde(skip_serializing_if = "Option::is_none")]
        memory_bytes: Option<&'a Series>,
    },
    /// Heap calls per request, from their own pass.
    Heap {
        candidate: &'a str,
        costs: Vec<(String, f64)>,
    },
    /// Instructions per request, counted under an emulator, for the round of this number.
    Emulated {
        candidate: &'a str,
        round: u32,
        costs: Vec<(String, f64)>,
    },
}

fn by_key(costs: &[(Measure, f64)]) -> Vec<(String, f64)> {
    let costs = costs.iter();
    costs
        .map(|(measure, value)| (measure.to_string(), *value))
        .collect()
}

/// The file of lines.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    /// Creates `runs.ndjson` in `directory`.
    pub(crate) fn create(directory: &Path) -> Result<Self, LabError> {
        let path = directory.join("runs.ndjson");
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(LabError::Output { path, error }),
        }
    }

    /// Adds one line.
    pub(crate) fn write(&mut self, line: &Line<'_>) -> Result<(), LabError> {
        self.try_write(line).map_err(|error| LabError::Output {
            path: self.path.clone(),
            error,
        })
    }

    /// Adds the costs found by a heap pass.
    pub(crate) fn write_heap(
        &mut self,
        candidate: &str,
        costs: &[(Measure, f64)],
    ) -> Result<(), LabError> {
        let costs = by_key(costs);
        self.write(&Line::Heap { candidate, costs })
    }

    /// Adds what was counted under an emulator.
    pub(crate) fn write_emulated(
        &mut self,
        candidate: &str,
        round: u32,
        costs: &[(Measure, f64)],
    ) -> Result<(), LabError> {
        let costs = by_key(costs);
        self.write(&Line::Emulated {
            candidate,
            round,
            costs,
        })
    }

    fn try_write(&mut self, line: &Line<'_>) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.file.write_all(&text)
    }
}
