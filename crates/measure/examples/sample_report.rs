//! Writes a report of SYNTHETIC data, to check the layout without measuring anything:
//! `cargo run -p millpond-measure --example sample_report -- DIRECTORY`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::PathBuf;

use millpond_measure::record::{ComparisonRecord, NoiseFlag, NoiseKind};
use millpond_measure::report::{html, terminal};

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    std::fs::create_dir_all(&directory)?;
    let quiet = synthetic::record(&synthetic::nine_plans(), 10, 0.03, 7);
    for (name, record) in [("report", &quiet), ("disturbed", &disturbed(&quiet))] {
        let path = directory.join(format!("{name}.html"));
        let options = terminal::TerminalOptions {
            report_path: Some(path.display().to_string()),
            ..terminal::TerminalOptions::default()
        };
        println!(
            "SYNTHETIC DATA, nothing was measured.\n\n{}",
            terminal::render(record, &options)
        );
        std::fs::write(path, html::render(record))?;
    }
    std::fs::write(directory.join("results.json"), quiet.to_json()?)
}

/// The same stopped by Ctrl-C after four rounds, on a machine where another program compiled meanwhile.
fn disturbed(quiet: &ComparisonRecord) -> ComparisonRecord {
    let mut record = quiet.clone();
    record.interrupted = true;
    record.settings.rounds_done = 4;
    for candidate in &mut record.candidates {
        candidate.rounds.truncate(4);
        candidate.name = candidate
            .name
            .replace("jemalloc", "jemalloc 5.3.0 with background threads");
        for round in &mut candidate.rounds[1..] {
            round.noise.push(NoiseFlag {
                kind: NoiseKind::ForeignCpu,
                value: 0.41,
                limit: 0.05,
                phase: None,
            });
        }
    }
    record.analyse();
    record
}
