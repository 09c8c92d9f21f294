//! `millpond load merge`: records of several generators as one.

use std::path::{Path, PathBuf};

use clap::Args;
use millpond_load::LoadRecord;
use millpond_measure::record::{LoadHistograms, LoadReport, LoadStatus};
use millpond_measure::report::{hlog, wrk};

use crate::output::{Exit, Failure};

use super::printing::{Finished, PrintFlags};

/// Make one record of those of several generators that ran at the same time
///
/// Samples and counts are added, so the result is what one generator of all their threads and
/// connections would have recorded; it is judged anew. The window is the longest one.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond load merge one.json two.json
  millpond load merge *.json --print wrk2 -L --json all.json

Records of --json and --print json hold everything. Files of --print hlog and v2
hold the counts and the three clocks.")]
pub(crate) struct MergeFlags {
    /// Files of --json, --print json, hlog or v2
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    print: PrintFlags,
}

impl MergeFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if self.print.samples_max() > 0 {
            return Err(Failure::usage(
                "records hold no single requests: requests and ab-tsv (-g) are written by the run itself",
            ));
        }
        let reports = self.files.iter().map(|file| read(file));
        let reports = reports.collect::<Result<Vec<LoadReport>, _>>()?;
        let mut records = Vec::with_capacity(reports.len());
        for (report, file) in reports.iter().zip(&self.files) {
            let record = LoadRecord::from_report(report);
            records.push(record.map_err(|error| failed(file, &error.to_string()))?);
        }
        let record = LoadRecord::merged(records).map_err(Failure::failed)?;
        let report = LoadReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: urls(&reports),
            ..record.to_report()
        };
        let header = wrk::header(
            &report.url,
            report.duration_ns,
            report.threads,
            report.connections,
        );
        if self.print.has_header() {
            crate::output::print(&header)?;
        }
        let run = Finished {
            record: &record,
            report: &report,
        };
        let mut streams = self.print.streams()?;
        streams.whole(&run);
        streams.finish(&report)?;
        self.print.finish(&run, &header)?;
        Ok(match record.verdict.status {
            LoadStatus::Invalid => Exit::NotTrusted,
            LoadStatus::Ok | LoadStatus::Suspect => Exit::Success,
        })
    }
}

fn failed(file: &Path, problem: &str) -> Failure {
    Failure::failed(format!("{}: {problem}", file.display()))
}

fn read(file: &Path) -> Result<LoadReport, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| failed(file, &format!("it cannot be read: {error}")))?;
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text)
            .map_err(|error| failed(file, &format!("it is no record of a run: {error}")));
    }
    let (report, [response, service, slip]) =
        hlog::read(&text).map_err(|error| failed(file, &error.to_string()))?;
    let histograms = LoadHistograms {
        response,
        service,
        slip,
        ..LoadHistograms::default()
    };
    Ok(LoadReport {
        histograms: Some(histograms),
        ..report
    })
}

/// The URLs, each once.
fn urls(reports: &[LoadReport]) -> String {
    let mut urls: Vec<&str> = Vec::new();
    for report in reports {
        if !urls.contains(&report.url.as_str()) {
            urls.push(&report.url);
        }
    }
    urls.join(" and ")
}
