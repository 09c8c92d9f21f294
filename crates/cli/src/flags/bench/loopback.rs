//! `millpond bench loopback`: client and server in one process.

use super::{exit_of, parse_repetitions};
use crate::flags::compare::parse_setting;
use crate::flags::subject_target::own_program;
use crate::flags::{command_line, interrupt_flag, parse_bytes, parse_count};
use crate::output::{self, Exit, Failure, JsonFile, Progress};
use clap::Args;
use millpond_bench::BenchError;
use millpond_bench::loopback::{LoopbackConfig, LoopbackEvent, report, run};
use millpond_http::DriverChoice;
use millpond_measure::record::PoolSetting;

/// Client and server in one process, against each other over loopback
///
/// The workload of an earlier benchmark: 500 connections, 5,000 requests on each, bodies of 1,024 bytes in
/// a chunk, answers of 740 bytes in a chunk. Every combination of allocator and pools runs in fresh
/// processes, in shuffled order. Prints a line for each second, and then rates, latency, heap calls per
/// transaction and fairness beside the earlier figures.
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
pub(super) struct LoopbackFlags {
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
    /// Length of an answer's body
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
/// More than any machine has CPUs is a slip of the finger.
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
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let config = self.config()?;
        let stop = interrupt_flag()?;
        let mut progress = Progress::new();
        let mut printed = Ok(());
        let mut show = |event: &LoopbackEvent| {
            let shown = show(&mut progress, event);
            if printed.is_ok() {
                printed = shown;
            }
        };
        let measured = run(&config, &mut show, &stop);
        progress.clear();
        printed?;
        let outcome = match measured {
            Ok(outcome) => outcome,
            Err(error @ BenchError::InterruptedEarly) => {
                output::note(error);
                return Ok(Exit::Interrupted);
            }
            Err(error) => return Err(Failure::failed(error)),
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
fn show(progress: &mut Progress, event: &LoopbackEvent) -> Result<(), Failure> {
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
mod tests {
    use super::super::{BenchFlags, What};
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn config(words: &str) -> Result<LoopbackConfig, String> {
        let words = ["millpond", "bench", "loopback"]
            .into_iter()
            .chain(words.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Bench(BenchFlags {
                what: What::Loopback(flags),
            }) => flags.config().map_err(|failure| format!("{failure:?}")),
            other => Err(format!("{other:?}")),
        }
    }

    /// Goal: the help's defaults are the library's, and those the earlier workload.
    #[test]
    fn defaults_are_those_of_the_library() {
        let found = config("--seed 5").unwrap();
        let library = LoopbackConfig {
            seed: 5,
            command: found.command.clone(),
            ..LoopbackConfig::new(found.launcher.clone())
        };
        assert_eq!(found, library);
        assert_eq!(
            (found.connections, found.iterations, found.threads),
            (500, 5_000, 1)
        );
        assert_eq!((found.request_bytes, found.response_bytes), (1_024, 740));
    }

    /// Goal: each flag reaches the field it names.
    #[test]
    fn flags_reach_the_configuration() {
        let words = "-c 10 -i 2k --threads 3 --pools on,on --allocators glibc,mine=/a.so \
                     --repetitions 7 --driver epoll --client-driver uring --request-bytes 1K \
                     --response-bytes 0 --seed 3";
        let found = config(words).unwrap();
        assert_eq!(
            (found.connections, found.iterations, found.threads),
            (10, 2_000, 3)
        );
        assert_eq!(found.pools, [PoolSetting::On]);
        let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
        assert_eq!(found.allocators, Some(allocators));
        assert_eq!((found.repetitions, found.seed), (7, 3));
        assert_eq!(found.server_driver, DriverChoice::Epoll);
        assert_eq!(found.client_driver, DriverChoice::Uring);
        assert_eq!((found.request_bytes, found.response_bytes), (1_024, 0));
    }

    /// Goal: what cannot be is refused with what to write in its place.
    #[test]
    fn wrong_values_are_named() {
        for (words, part) in [
            ("-c 0", "at least 1"),
            ("-c 1M", "at most 500000"),
            ("-i 0", "at least 1"),
            ("--threads 5000", "at most 1024"),
            ("--pools maybe", "on, off"),
            ("--driver kqueue", "auto, uring or epoll"),
            ("--request-bytes 1G", "at most 16777216"),
            ("--repetitions 0", "at least 1"),
            ("somewhere", "somewhere"),
        ] {
            let error = config(words).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
