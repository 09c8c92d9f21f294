//! `millpond bench`: micro-benchmarks.

mod loopback;

use super::subject_target::own_program;
use super::{command_line, interrupt_flag, parse_count};
use crate::output::{self, Exit, Failure, JsonFile, Progress};
use clap::{Args, Subcommand};
use loopback::LoopbackFlags;
use millpond_bench::record::VerdictRecord;
use millpond_bench::{BenchConfig, BenchError, BenchEvent, Program};
use std::path::PathBuf;

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
        let outcome = match measured {
            Ok(outcome) => outcome,
            Err(error @ BenchError::InterruptedEarly) => {
                output::note(error);
                return Ok(Exit::Interrupted);
            }
            Err(error) => return Err(Failure::failed(error)),
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

/// What failed is missing from the answer, so the answer is not the one asked for.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn config(words: &str) -> Result<BenchConfig, String> {
        let words = ["millpond", "bench", "pools"]
            .into_iter()
            .chain(words.split_whitespace());
        match Cli::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Bench(BenchFlags {
                what: What::Pools(flags),
            }) => flags.config().map_err(|failure| format!("{failure:?}")),
            other => Err(format!("{other:?}")),
        }
    }

    /// Goal: the help's defaults are the library's, and quick is less of everything.
    #[test]
    fn defaults_are_those_of_the_library() {
        let found = config("").unwrap();
        assert_eq!((found.iterations, found.repetitions), (100_000, 5));
        assert_eq!(found.programs, Program::ALL);
        assert_eq!((found.allocators, found.flamegraph), (None, None));
        let quick = config("--quick").unwrap();
        assert_eq!((quick.iterations, quick.repetitions), (20_000, 3));
        assert!(quick.idle_seconds < found.idle_seconds);
    }

    /// Goal: each flag reaches the field it names.
    #[test]
    fn flags_reach_the_configuration() {
        let words = "--programs churn,pair-batch --allocators glibc,mine=/a.so --iterations 2k \
                     --repetitions 7 --seed 3 --flamegraph a.svg --quick";
        let config = config(words).unwrap();
        assert_eq!(config.programs, [Program::Churn, Program::PairBatch]);
        let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
        assert_eq!(config.allocators, Some(allocators));
        assert_eq!(
            (config.iterations, config.repetitions, config.seed),
            (2_000, 7, 3)
        );
        assert_eq!(config.flamegraph, Some(PathBuf::from("a.svg")));
    }

    /// Goal: the help names every program, and a wrong one is answered with those there are.
    #[test]
    fn programs_are_named() {
        let error = config("--programs frobnicate").unwrap_err();
        let help = config("--help").unwrap_err();
        for program in Program::ALL {
            assert!(error.contains(program.name()), "{error}");
            assert!(help.contains(program.name()), "{help}");
        }
        for words in ["--iterations 0", "--repetitions 0", "--repetitions 10G"] {
            assert!(config(words).is_err(), "{words}");
        }
    }
}
