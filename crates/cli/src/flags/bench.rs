//! `millpond bench`: micro-benchmarks.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use millpond_bench::loopback::{LoopbackConfig, LoopbackEvent, report, run};
use millpond_bench::record::VerdictRecord;
use millpond_bench::{BenchConfig, BenchError, BenchEvent, Program};
use millpond_http::DriverChoice;
use millpond_measure::record::PoolSetting;

use crate::flags::compare::parse_setting;
use crate::flags::parse_bytes;
use crate::output;
use crate::output::{Exit, Failure, JsonFile, Progress};

use super::url::own_program;
use super::{command_line, interrupt_flag, parse_count};

/// Small programs that show what one part costs
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond bench pools
  millpond bench loopback -c 500 -i 5000
  millpond bench pools --programs objects,pair --repetitions 9")]
pub(crate) struct BenchFlags {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Pools(PoolsFlags),
    Loopback(LoopbackFlags),
}

/// Compare the memory pools with malloc under every allocator
///
/// Each program runs on the pools, and on malloc under each allocator that is installed, every time in
/// a fresh process and in shuffled order. Prints time, hardware counts, heap calls and memory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond bench pools
  millpond bench pools --quick
  millpond bench pools --programs objects,churn --allocators glibc,jemalloc \\
    --json pools.json
  millpond bench pools --programs mixed --flamegraph mixed.svg

An allocator is one that `millpond allocators` lists, or your own:
NAME=/path/to/library.so.

Programs: objects, objects-vector, pair, pair-batch, pair-block, mixed,
two-threads, producer-consumer, producer-consumer-mixed, churn, churn-scattered,
connections.")]
struct PoolsFlags {
    /// Programs to run [default: all]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    programs: Option<Vec<Program>>,
    /// Allocators that malloc is to be [default: all that are installed]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Iterations of each program, about 140 allocations and frees each; slow programs do a quarter
    /// of them [default: 100k]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    iterations: Option<u64>,
    /// How often each program runs on each allocator [default: 5]
    #[arg(long, value_name = "N", value_parser = parse_repetitions)]
    repetitions: Option<u32>,
    /// A fifth of the iterations, 3 repetitions, half the idle time
    #[arg(long)]
    quick: bool,
    /// Random choices follow from it; the record names the one that was drawn
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Draw where the CPU time goes, after the timed runs; needs perf
    #[arg(long, value_name = "FILE.svg")]
    flamegraph: Option<PathBuf>,
    /// Write the record to FILE
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

fn parse_repetitions(text: &str) -> Result<u32, String> {
    u32::try_from(parse_count(text)?).map_err(|_| "that would take years".to_owned())
}

impl BenchFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self.what {
            What::Pools(flags) => flags.run(),
            What::Loopback(flags) => flags.run(),
        }
    }
}

impl PoolsFlags {
    fn run(self) -> Result<Exit, Failure> {
        let config = self.config()?;
        let stop = interrupt_flag()?;
        let mut progress = Progress::new();
        let measured = millpond_bench::run(&config, &mut |event| show(&mut progress, event), &stop);
        progress.clear();
        let Some(outcome) = unless_interrupted(measured)? else {
            return Ok(Exit::Interrupted);
        };
        let report = millpond_bench::report::render(&outcome.record, output::width());
        output::print(report)?;
        if let Some(file) = &self.json {
            file.write(&outcome.record.to_json().map_err(Failure::failed)?)?;
        }
        Ok(exit_of(
            outcome.interrupted,
            !outcome.failures.is_empty(),
            &outcome.record.verdict,
        ))
    }

    fn config(&self) -> Result<BenchConfig, Failure> {
        let mut config = BenchConfig::new(own_program()?);
        if self.quick {
            config = config.quick();
        }
        if let Some(programs) = &self.programs {
            config.programs.clone_from(programs);
        }
        config.allocators.clone_from(&self.allocators);
        config.iterations = self.iterations.unwrap_or(config.iterations);
        config.repetitions = self.repetitions.unwrap_or(config.repetitions);
        config.seed = self.seed.unwrap_or(config.seed);
        config.flamegraph.clone_from(&self.flamegraph);
        config.command = command_line();
        Ok(config)
    }
}

/// What failed is missing from the result, so the result is not the one asked for.
fn exit_of(is_interrupted: bool, has_failed: bool, verdict: &VerdictRecord) -> Exit {
    if is_interrupted {
        Exit::Interrupted
    } else if has_failed {
        Exit::Failed
    } else if verdict.is_trusted() {
        Exit::Success
    } else {
        Exit::NotTrusted
    }
}

/// What was measured; `None`, with a note, if that was interrupted before there was anything to show.
fn unless_interrupted<T>(measured: Result<T, BenchError>) -> Result<Option<T>, Failure> {
    match measured {
        Ok(outcome) => Ok(Some(outcome)),
        Err(error @ BenchError::InterruptedEarly) => {
            output::note(error);
            Ok(None)
        }
        Err(error) => Err(Failure::failed(error)),
    }
}

fn show(progress: &mut Progress, event: &BenchEvent) {
    match event {
        BenchEvent::Note(line) => progress.line(line),
        BenchEvent::Run {
            program,
            candidate,
            run,
            runs,
        } => progress.update(format!("run {run} of {runs}: {program} on {candidate}")),
        BenchEvent::Idle { program } => {
            progress.update(format!("{program}: idle, to see what memory goes back"));
        }
        BenchEvent::HeapCalls { program } => {
            progress.update(format!("counting heap calls of {program}"));
        }
        BenchEvent::Flamegraph { program } => {
            progress.update(format!("recording a flame graph of {program}"));
        }
        _ => {}
    }
}

// `millpond bench loopback`: client and server in one process.

/// Client and server in one process, against each other over loopback
///
/// The workload of an earlier benchmark: 500 connections, 5,000 requests on each, bodies of 1,024 bytes in
/// a chunk, responses of 740 bytes in a chunk. Every combination of allocator and pools runs in fresh
/// processes, in shuffled order. Prints a line for each second, and then rates, latency, heap calls per
/// transaction and fairness.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond bench loopback
  millpond bench loopback -c 500 -i 5000 --allocators glibc,tcmalloc,jemalloc
  millpond bench loopback --pools on --threads 3 --repetitions 6 \\
    --json loopback.json

An allocator is one that `millpond allocators` lists; all of these: all; or your
own: NAME=/path/to/library.so. Both sides run under it, and with --pools off
both are without their pools. Server threads take the first CPUs, the client's
the next.")]
struct LoopbackFlags {
    /// Connections
    #[arg(short, long, value_name = "N", value_parser = parse_connections, default_value = "500")]
    connections: u64,
    /// Requests on each connection, on average: a free connection takes the next request
    #[arg(short, long, value_name = "N", value_parser = parse_count, default_value = "5000")]
    iterations: u64,
    /// Threads of the client, and as many of the server
    #[arg(long, value_name = "N", value_parser = parse_threads, default_value = "1")]
    threads: u64,
    /// Memory pools of both sides: on, off, or both [default: both]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = parse_setting)]
    pools: Option<Vec<PoolSetting>>,
    /// Allocators that malloc is to be, on both sides [default: glibc]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// How often each combination runs
    #[arg(long, value_name = "N", value_parser = parse_repetitions, default_value = "3")]
    repetitions: u32,
    /// Kernel interface of the server
    #[arg(long, value_name = "auto|uring|epoll", default_value = "auto")]
    driver: DriverChoice,
    /// Kernel interface of the client
    #[arg(long, value_name = "auto|uring|epoll", default_value = "epoll")]
    client_driver: DriverChoice,
    /// Length of a request's body
    #[arg(long, value_name = "SIZE", value_parser = parse_body_bytes, default_value = "1024")]
    request_bytes: u64,
    /// Length of a response's body
    #[arg(long, value_name = "SIZE", value_parser = parse_body_bytes, default_value = "740")]
    response_bytes: u64,
    /// The order of the runs follows from it; the record names the one that was drawn
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the record to FILE
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
}

/// A process cannot hold both ends of more.
const CONNECTIONS_MAX: u64 = 500_000;
/// More than any machine has CPUs is a typo.
const THREADS_MAX: u64 = 1024;
/// Bodies are gathered in memory.
const BODY_BYTES_MAX: u64 = 16 << 20;

fn parse_connections(text: &str) -> Result<u64, String> {
    bounded(parse_count(text)?, CONNECTIONS_MAX)
}

fn parse_threads(text: &str) -> Result<u64, String> {
    bounded(parse_count(text)?, THREADS_MAX)
}

fn parse_body_bytes(text: &str) -> Result<u64, String> {
    bounded(parse_bytes(text)?, BODY_BYTES_MAX)
}

fn bounded(value: u64, most: u64) -> Result<u64, String> {
    match value {
        value if value <= most => Ok(value),
        _ => Err(format!("it can be at most {most}")),
    }
}

impl LoopbackFlags {
    fn run(self) -> Result<Exit, Failure> {
        let config = self.config()?;
        let stop = interrupt_flag()?;
        let mut progress = Progress::new();
        let mut printed = Ok(());
        let mut show = |event: &LoopbackEvent| {
            let shown = loopback_show(&mut progress, event);
            if printed.is_ok() {
                printed = shown;
            }
        };
        let measured = run(&config, &mut show, &stop);
        progress.clear();
        printed?;
        let Some(outcome) = unless_interrupted(measured)? else {
            return Ok(Exit::Interrupted);
        };
        output::print(format!(
            "\n{}",
            report::render(&outcome.record, output::width())
        ))?;
        if let Some(file) = &self.json {
            file.write(&outcome.record.to_json().map_err(Failure::failed)?)?;
        }
        let has_failed = !outcome.failures.is_empty() || outcome.record.failures() > 0;
        Ok(exit_of(
            outcome.interrupted,
            has_failed,
            &outcome.record.verdict,
        ))
    }

    fn config(&self) -> Result<LoopbackConfig, Failure> {
        let mut config = LoopbackConfig::new(own_program()?);
        config.connections = self.connections;
        config.iterations = self.iterations;
        config.threads = self.threads;
        if let Some(pools) = &self.pools {
            // Each once, however often it was said.
            config.pools.retain(|setting| pools.contains(setting));
        }
        config.allocators.clone_from(&self.allocators);
        config.repetitions = self.repetitions;
        config.server_driver = self.driver;
        config.client_driver = self.client_driver;
        config.request_bytes = self.request_bytes;
        config.response_bytes = self.response_bytes;
        config.seed = self.seed.unwrap_or(config.seed);
        config.command = command_line();
        Ok(config)
    }
}

/// Seconds are results, and go where results go.
fn loopback_show(progress: &mut Progress, event: &LoopbackEvent) -> Result<(), Failure> {
    match event {
        LoopbackEvent::Note(line) => progress.line(line),
        LoopbackEvent::Run {
            candidate,
            run,
            runs,
        } => {
            progress.clear();
            output::print(format!("run {run} of {runs}: {candidate}\n"))?;
        }
        LoopbackEvent::Second(second) => {
            progress.clear();
            output::print(format!("{}\n", report::second_line(second)))?;
        }
        LoopbackEvent::HeapCalls { pools } => {
            let pools = match pools {
                PoolSetting::On => "with pools",
                PoolSetting::Off => "without pools",
            };
            progress.update(format!("counting heap calls {pools}"));
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/bench.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/loopback.rs"]
mod loopback_tests;
