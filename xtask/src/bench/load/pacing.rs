//! How exactly a constant rate leaves: one connection, 2,000 a second, seen by the generator and by a
//! server that writes down when requests come. For an otherwise idle machine.

use super::target::arrivals;
use super::{TargetProgram, number, run};
use crate::bench::Bench;
use crate::bench::figure::Figure;

const RATE: &str = "2000";
const INTERVAL_NS: u64 = 500_000;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let mut slips_p50 = Vec::new();
    let mut slips_p99 = Vec::new();
    let mut shifts = Vec::new();
    let mut short_shares = Vec::new();
    let duration = if bench.plan.smoke { "1s" } else { "5s" };
    for number_of_run in 0..bench.plan.pairs.min(5) {
        let server = target.start(0)?;
        let url = format!("http://{}/", server.address);
        let record = run(
            bench,
            &["-t", "1", "-c", "1", "-R", RATE, "-d", duration, &url],
        )?;
        let seen = arrivals(&server, INTERVAL_NS)?;
        let us = |path: &str| number(&record, path).map(|ns| ns / 1e3);
        let shift = (us("response_ns/p50")? - us("service_ns/p50")?).abs();
        let short = number(&seen, "gaps_short")? / number(&seen, "arrivals")?;
        println!(
            "run {number_of_run}: slip p50 {:.1} us, p99 {:.1} us; short gaps {:.2} %",
            us("slip_ns/p50")?,
            us("slip_ns/p99")?,
            short * 100.0
        );
        slips_p50.push(us("slip_ns/p50")?);
        slips_p99.push(us("slip_ns/p99")?);
        shifts.push(shift);
        short_shares.push(short);
    }
    Ok(vec![
        Figure::median("load_r2000_slip_p50_us", slips_p50).at_most(5.0),
        Figure::median("load_r2000_slip_p99_us", slips_p99).at_most(100.0),
        Figure::median("load_r2000_response_p50_over_service_p50_us", shifts).at_most(10.0),
        Figure::median("load_r2000_gaps_below_half_share", short_shares).at_most(0.01),
    ])
}
