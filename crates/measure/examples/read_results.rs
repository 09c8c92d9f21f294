//! Analyses a `results.json` again and writes its reports, with the rules of this version (`millpond
//! report` shows the verdicts as they were made):
//! `cargo run -p millpond-measure --example read_results -- results.json report.html`.

use millpond_measure::record::ComparisonRecord;
use millpond_measure::report::{html, terminal};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [results, report] = words.as_slice() else {
        eprintln!("usage: read_results RESULTS.JSON REPORT.HTML");
        std::process::exit(2);
    };
    let text = std::fs::read_to_string(results)?;
    let mut record = ComparisonRecord::from_text(&text).map_err(std::io::Error::other)?;
    record.analyse();
    let options = terminal::TerminalOptions {
        report_path: Some(report.clone()),
        ..terminal::TerminalOptions::default()
    };
    println!("{}", terminal::render(&record, &options));
    std::fs::write(report, html::render(&record))
}
