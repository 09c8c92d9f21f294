//! Writes a report of SYNTHETIC data, to look at the layout without measuring anything:
//! `cargo run -p millpond-measure --example sample_report -- DIRECTORY`.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use std::path::PathBuf;

use millpond_measure::report::{html, terminal};

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    std::fs::create_dir_all(&directory)?;
    let record = synthetic::record(&synthetic::nine_plans(), 10, 0.03, 7);
    let options = terminal::TerminalOptions {
        report_path: Some(directory.join("report.html").display().to_string()),
        ..terminal::TerminalOptions::default()
    };
    print!(
        "SYNTHETIC DATA, nothing was measured.\n\n{}",
        terminal::render(&record, &options)
    );
    std::fs::write(directory.join("report.html"), html::render(&record))?;
    std::fs::write(directory.join("results.json"), record.to_json()?)
}
