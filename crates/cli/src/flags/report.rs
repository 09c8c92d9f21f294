//! `millpond report`: a comparison shown again, from its record alone.

use std::path::{Path, PathBuf};

use clap::Args;
use millpond_measure::report::terminal::TerminalOptions;
use millpond_measure::report::{html, terminal};

use crate::output;
use crate::output::{Exit, JsonFile};

use super::baseline::BaselineFlags;
use super::{Failure, baseline};

/// Show a comparison again, from its record
///
/// Prints what compare printed and writes the page, byte for byte what compare wrote. A page holds its
/// record, so report.html does as well as results.json.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond report millpond-report/results.json
  millpond report results.json --out /tmp/report.html
  millpond report report.html --json results.json
  millpond report results.json --baseline earlier.json --junit junit.xml")]
pub(crate) struct ReportFlags {
    /// results.json of a comparison, or its report.html
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Where the page goes [default: report.html beside FILE]
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    out: Option<JsonFile>,
    /// Write the record to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    #[command(flatten)]
    baseline: BaselineFlags,
}

impl ReportFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let mut record = baseline::read(&self.file)?;
        self.baseline.check(&mut record)?;
        let out = match self.out {
            Some(out) => out,
            None => beside(&self.file)?,
        };
        out.write(&html::render(&record))?;
        if let Some(file) = &self.json {
            file.write(&record.to_json().map_err(Failure::failed)?)?;
        }
        self.baseline.write_junit(&record)?;
        let options = TerminalOptions {
            colour: output::colour(),
            width: output::width(),
            report_path: Some(out.to_string()),
        };
        output::print(terminal::render(&record, &options))?;
        Ok(baseline::exit_of(&record).unwrap_or(Exit::Success))
    }
}

fn beside(file: &Path) -> Result<JsonFile, Failure> {
    let page = file.with_file_name("report.html");
    JsonFile::parse(&page.display().to_string()).map_err(Failure::failed)
}
