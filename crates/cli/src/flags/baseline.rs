//! `--baseline`: did a candidate get worse since an earlier record?

use crate::output::{Exit, Failure, JsonFile};
use clap::Args;
use millpond_measure::record::ComparisonRecord;
use millpond_measure::regression::{self, RegressionRule};
use millpond_measure::report::junit::Suite;
use std::path::{Path, PathBuf};

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Regression check")]
pub(super) struct BaselineFlags {
    /// The record (results.json) of an earlier comparison of the same server on this machine: says of
    /// each candidate whether it became better, worse, or stayed the same. Rates and work are those of
    /// then. Exit status 3 if one became worse by more than the margin
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// Compare throughput, latency and CPU time as they are, and not as ratios to the baseline candidate
    /// of the same session: sees what changed for all candidates alike, and takes the machine's own
    /// drift for a change
    #[arg(long, requires = "baseline")]
    baseline_values: bool,
    /// Write what became of each candidate to FILE as JUnit XML, as CI shows tests
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse, requires = "baseline")]
    junit: Option<JsonFile>,
}

impl BaselineFlags {
    /// The earlier record, if one was named.
    pub(super) fn earlier(&self) -> Result<Option<ComparisonRecord>, Failure> {
        self.baseline.as_deref().map(read).transpose()
    }

    pub(super) const fn rule(&self) -> RegressionRule {
        RegressionRule {
            by_value: self.baseline_values,
        }
    }

    /// Writes the result for CI, if one was asked for.
    pub(super) fn write_junit(&self, record: &ComparisonRecord) -> Result<(), Failure> {
        match (&self.junit, &record.regression) {
            (Some(file), Some(found)) => {
                file.write(&Suite::of_regression(found, record.duration_ns).render())
            }
            _ => Ok(()),
        }
    }

    /// Puts the result into `record`.
    pub(super) fn check(&self, record: &mut ComparisonRecord) -> Result<(), Failure> {
        if let Some(earlier) = self.earlier()? {
            let found = regression::check(record, &earlier, self.rule());
            record.regression = Some(found.map_err(Failure::failed)?);
        }
        Ok(())
    }
}

/// The record in `file`; the failure names the file.
pub(super) fn read(file: &Path) -> Result<ComparisonRecord, Failure> {
    let failed = |problem: String| Failure::failed(format!("{}: {problem}", file.display()));
    let text = std::fs::read_to_string(file)
        .map_err(|error| failed(format!("it cannot be read: {error}")))?;
    ComparisonRecord::from_text(&text).map_err(|error| failed(error.to_string()))
}

/// What a check asks for, if it asks for anything else than success.
pub(super) fn exit_of(record: &ComparisonRecord) -> Option<Exit> {
    let regression = record.regression.as_ref()?;
    if regression.regressed {
        Some(Exit::SloMissed)
    } else if regression.is_judged() {
        None
    } else {
        Some(Exit::NotTrusted)
    }
}
