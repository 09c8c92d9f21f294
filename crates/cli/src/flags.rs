//! The command line: one file for each command, with its flags and their help; tests lie in `tests`.
//!
//! Commands with many flags have them in groups, one file a group, with the headings of the help. `load` has its own in
//! `load.rs`, and the groups `requests`, `server_address`, `connections`, `arrivals`, `find_max`, `expectations`,
//! `cookies`, `script`, `accuracy`, `printing`, `watcher` and `compatible`; `serve` has `limits`, `tls` and `logs`.
//!
//! A flag of `load` goes into the file of its group, and from there into `millpond_load::LoadConfig` in
//! `crates/load/src/config.rs`, whose `check` refuses what makes no sense. `LOAD_FLAGS_SHORT` in `help.rs` names those
//! that `-h` shows.

mod accuracy;
mod arrivals;
mod baseline;
mod bench;
mod compare;
mod compatible;
mod config;
mod connections;
mod cookies;
mod descriptors;
mod doctor;
#[cfg(feature = "entity")]
mod entity;
mod expectations;
mod find_max;
mod help;
mod limits;
mod live;
mod load;
mod logs;
mod merge;
mod printing;
mod profile;
mod proxy;
mod report;
mod requests;
mod script;
mod serve;
mod server_address;
mod streams;
mod tls;
mod url;
mod watcher;

use crate::output::{Exit, Failure};
use clap::{Parser, Subcommand};
pub(crate) use config::Refusal;
use millpond_mempool::PoolMode;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    version,
    about = "Which allocator gives a server the most throughput, the lowest latency, the least memory?",
    after_help = "Examples:
  millpond doctor
  millpond compare
  millpond compare --url http://127.0.0.1:8081/ -- nginx -c /etc/nginx/mine.conf
  millpond serve entity --data ./data
  millpond proxy --upstream 127.0.0.1:8081
  millpond config example entity > millpond.toml
  millpond profile --url http://127.0.0.1:8081/ -- nginx -c /etc/nginx/mine.conf
  millpond load -c 64 -d 30s http://127.0.0.1:8080/plaintext
  millpond bench pools
  millpond report millpond-report/results.json

Exit status:
  0    done
  1    failed
  2    wrong usage
  3    an objective was missed, or something became worse
  4    the measurement is not to be trusted
  5    a condition of --abort ended the run
  130  interrupted; what was measured until then is printed"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// In the order in which somebody new reads of them: what this is for, what else there is, what helps.
#[derive(Debug, Subcommand)]
enum Command {
    Compare(Box<compare::CompareFlags>),
    Load(load::LoadJob),
    Serve(Box<serve::ServeFlags>),
    Proxy(Box<proxy::ProxyFlags>),
    Profile(Box<profile::ProfileFlags>),
    Bench(bench::BenchFlags),
    Report(report::ReportFlags),
    Doctor(doctor::DoctorFlags),
    Allocators(doctor::AllocatorsFlags),
    Config(config::ConfigFlags),
    #[cfg(feature = "entity")]
    Entity(entity::EntityFlags),
    Completions(help::CompletionsFlags),
    Version(doctor::VersionFlags),
    Pages(help::PagesFlags),
}

impl Cli {
    /// Reads a command line, and the configuration file if it names one.
    pub(crate) fn read(words: Vec<OsString>) -> Result<Self, Refusal> {
        config::CommandLine::of(words)
            .map_err(Refusal::File)?
            .read()
    }

    /// Does what the command line says.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        match self.command {
            Command::Allocators(flags) => flags.run(),
            Command::Bench(flags) => flags.run(),
            Command::Compare(flags) => flags.run(),
            Command::Completions(flags) => flags.run(),
            Command::Config(flags) => flags.run(),
            Command::Doctor(flags) => flags.run(),
            #[cfg(feature = "entity")]
            Command::Entity(flags) => flags.run(),
            Command::Load(flags) => flags.run(),
            Command::Pages(flags) => flags.run(),
            Command::Profile(flags) => flags.run(),
            Command::Proxy(flags) => flags.run(),
            Command::Report(flags) => flags.run(),
            Command::Serve(flags) => flags.run(),
            Command::Version(flags) => flags.run(),
        }
    }
}

/// Raised by Ctrl-C or SIGTERM; the second one ends the process at once.
fn interrupt_flag() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and raises it.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| Failure::failed(format!("Ctrl-C cannot be watched for: {error}")))?;
    }
    Ok(stop)
}

/// The words this was started with, as a record keeps them.
fn command_line() -> Vec<String> {
    std::env::args_os()
        .map(|word| word.display().to_string())
        .collect()
}

/// The value that `--pools` takes, as help shows it.
const POOLS_VALUE: &str = "on|off|arena-only|checked[,guard][,fail=N]";

/// What [`POOLS_VALUE`] describes.
fn parse_pools(text: &str) -> Result<PoolMode, String> {
    text.parse()
        .map_err(|error: millpond_mempool::PoolModeError| error.to_string())
}

/// A count of at least one, `10k` included.
fn parse_count(text: &str) -> Result<u64, String> {
    match millpond_measure::units::parse_count(text) {
        Ok(0) => Err("it has to be at least 1".to_owned()),
        Ok(count) => Ok(count),
        Err(error) => Err(error.to_string()),
    }
}

/// A length of time that is not nothing.
fn parse_duration_ns(text: &str) -> Result<u64, String> {
    match millpond_measure::units::parse_duration_ns(text) {
        Ok(0) => Err("it has to be longer than nothing".to_owned()),
        Ok(duration_ns) => Ok(duration_ns),
        Err(error) => Err(error.to_string()),
    }
}

/// The longest spin before a sleep: beyond it, waking a thread is cheap beside the wait.
const BUSY_POLL_US_MAX: u64 = 1_000;

/// Microseconds of `--busy-poll`, as nanoseconds; 0 is off.
fn parse_busy_poll_ns(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(limit_us) if limit_us <= BUSY_POLL_US_MAX => Ok(limit_us * 1_000),
        _ => Err(format!(
            "write a number of microseconds, from 0 (off) to {BUSY_POLL_US_MAX}"
        )),
    }
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    millpond_measure::units::parse_bytes(text).map_err(|error| error.to_string())
}

#[cfg(test)]
#[path = "tests/flags.rs"]
mod tests;
