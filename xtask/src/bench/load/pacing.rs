//! How exactly a constant rate leaves: one connection, 2,000 a second, seen by the generator and by a
//! server that writes down when requests come.
//!
//! The targets are for an otherwise idle machine. Few are: a kernel thread that takes the CPU for some
//! milliseconds in every hundred is all of the p99. So each run has a second one at a real-time
//! priority, which only what is not preempted can delay, and those figures stand beside.

use super::target::arrivals;
use super::{TargetProgram, number, run_behind};
use crate::bench::Bench;
use crate::bench::command::real_time;
use crate::bench::figure::Figure;

const RATE: &str = "2000";
const INTERVAL_NS: u64 = 500_000;

pub(super) fn measure(bench: &Bench, target: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    let real_time = real_time();
    let (mut plain, mut first_in_line) = (Runs::default(), Runs::default());
    for _ in 0..bench.plan.pairs.min(5) {
        plain.add(bench, target, &[])?;
        if !real_time.is_empty() {
            first_in_line.add(bench, target, &real_time)?;
        }
    }
    let [slip_p50, slip_p99, shift, short] = plain.figures("load_r2000");
    let mut figures = vec![
        slip_p50.at_most(5.0),
        slip_p99.at_most(100.0),
        shift.at_most(10.0),
        short.at_most(0.01),
    ];
    if !real_time.is_empty() {
        figures.extend(first_in_line.figures("load_r2000_real_time"));
    }
    Ok(figures)
}

/// What some runs of the same kind found.
#[derive(Debug, Default)]
struct Runs {
    slips_p50: Vec<f64>,
    slips_p99: Vec<f64>,
    shifts: Vec<f64>,
    short_shares: Vec<f64>,
}

impl Runs {
    /// One more, behind the words of `before`.
    fn add(
        &mut self,
        bench: &Bench,
        target: &TargetProgram<'_>,
        before: &[&str],
    ) -> Result<(), String> {
        let duration = if bench.plan.smoke { "1s" } else { "5s" };
        let server = target.start(0)?;
        let url = format!("http://{}/", server.address);
        let words = ["-t", "1", "-c", "1", "-R", RATE, "-d", duration, &url];
        let record = run_behind(bench, before, &words)?;
        let seen = arrivals(&server, INTERVAL_NS)?;
        let us = |path: &str| number(&record, path).map(|ns| ns / 1e3);
        let short = number(&seen, "gaps_short")? / number(&seen, "arrivals")?;
        println!(
            "slip p50 {:.1} us, p99 {:.1} us; short gaps {:.2} % {}",
            us("slip_ns/p50")?,
            us("slip_ns/p99")?,
            short * 100.0,
            before.join(" ")
        );
        self.slips_p50.push(us("slip_ns/p50")?);
        self.slips_p99.push(us("slip_ns/p99")?);
        let shift = us("response_ns/p50")? - us("service_ns/p50")?;
        self.shifts.push(shift.abs());
        self.short_shares.push(short);
        Ok(())
    }

    fn figures(self, prefix: &str) -> [Figure; 4] {
        let figure = |what: &str, runs| Figure::median(format!("{prefix}_{what}"), runs);
        [
            figure("slip_p50_us", self.slips_p50),
            figure("slip_p99_us", self.slips_p99),
            figure("response_p50_over_service_p50_us", self.shifts),
            figure("gaps_below_half_share", self.short_shares),
        ]
    }
}
