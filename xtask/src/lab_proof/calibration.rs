//! What the planted work takes, measured without the lab.
//!
//! A process that does nothing but allocate runs under `preload/plant` with two amounts of planted work in turn; the
//! difference of their CPU times, divided by the difference of the instructions, is the truth that the lab's estimates
//! are held against.

use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::path::Path;
use std::process::Command;

/// Allocations of each process.
const ALLOCATIONS: u32 = 2_000;
/// Planted in each of them.
const INSTRUCTIONS: [f64; 2] = [15_000.0, 45_000.0];
/// Pairs of processes; the median counts.
const PAIRS: usize = 15;
/// The verb that this program starts itself by.
pub(crate) const VERB: [&str; 2] = ["lab-proof", "--allocate"];

/// Nanoseconds of CPU time of an instruction that `object` plants.
pub(super) fn ns_per_instruction(object: &Path) -> Result<f64, String> {
    let mut found = Vec::new();
    for _ in 0..PAIRS {
        let [less, more] = INSTRUCTIONS.map(|instructions| cpu_ns(object, instructions));
        let planted = (INSTRUCTIONS[1] - INSTRUCTIONS[0]) * f64::from(ALLOCATIONS);
        found.push((more? - less?) / planted);
    }
    found.sort_by(f64::total_cmp);
    Ok(found[PAIRS / 2])
}

/// What the allocations of one process take.
fn cpu_ns(object: &Path, instructions: f64) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let mut command = Command::new(program);
    command.args(VERB).arg(ALLOCATIONS.to_string());
    command.env("LD_PRELOAD", object);
    command.env("PLANT_INSTRUCTIONS", instructions.to_string());
    let output = command
        .output()
        .map_err(|error| format!("the calibration cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        let words = String::from_utf8_lossy(&output.stderr);
        format!("the calibration ended with {}: {words}", output.status)
    })
}

/// In the process that is started for it: allocates, and prints the CPU time that took.
pub(crate) fn allocate(count: &str) -> Result<(), String> {
    let count: u32 = count
        .parse()
        .map_err(|error| format!("{count} is no number of allocations: {error}"))?;
    let began = own_cpu_ns();
    for _ in 0..count {
        black_box(Vec::<u8>::with_capacity(black_box(64)));
    }
    println!("{}", own_cpu_ns() - began);
    Ok(())
}

fn own_cpu_ns() -> i64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
