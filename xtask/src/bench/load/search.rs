//! `--find-max` against a server of known capacity: how far from it the worst of ten answers lies.

use super::{TargetProgram, number, run};
use crate::bench::Bench;
use crate::bench::figure::Figure;

/// 500 requests a second: few enough that the machine's own noise is small beside the server's time.
const SERVICE_US: u32 = 2_000;
const CAPACITY_PER_S: f64 = 500.0;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let (runs, step, precision) = if bench.plan.smoke {
        (1, "100ms", "20%")
    } else {
        (10, "1s", "1%")
    };
    let mut deviations = Vec::new();
    for number_of_run in 0..runs {
        let server = target.start(SERVICE_US)?;
        let url = format!("http://{}/", server.address);
        let words = [
            "-t",
            "1",
            "-c",
            "16",
            "-d",
            step,
            "--precision",
            precision,
            "--find-max",
            "p99<20ms,errors<0.1%",
            &url,
        ];
        let record = run(bench, &words)?;
        // No rate at all is as wrong as an answer can be.
        let per_s = number(&record, "rate_per_s").unwrap_or(0.0);
        println!("search {number_of_run}: {per_s:.1}/s of {CAPACITY_PER_S}/s");
        deviations.push((per_s / CAPACITY_PER_S - 1.0).abs());
    }
    let worst = deviations.iter().copied().fold(0.0, f64::max);
    let figure = Figure {
        value: worst,
        ..Figure::median("load_find_max_worst_deviation", deviations)
    };
    Ok(vec![figure.at_most(0.03)])
}
