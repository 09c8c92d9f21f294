//! `millpond compare`: the main job.

mod phases;
pub(super) mod subject;

use super::baseline;
use super::baseline::BaselineFlags;
use super::requests::TargetRequestFlags;
use super::url::{SubjectTarget, launcher};
use super::{command_line, interrupt_flag, parse_count, parse_duration_ns};
use crate::output::{self, Exit, Failure, JsonFile, Progress, whole_seconds};
use clap::{Args, value_parser};
use millpond_lab::{
    CompareConfig, CompareOutcome, Earlier, LabEvent, LimitTrials, Target, Variant,
};
use millpond_measure::record::{MarginError, Margins, PoolSetting};
use millpond_measure::report::terminal::{self, TerminalOptions};
use phases::Preset;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Where most requests fail, the others say nothing of the server.
const ERRORS_ALLOWED_PERCENT_MAX: f64 = 50.0;
/// More emulated counts decide nothing that these do not.
const COUNTS_MAX: i64 = 1_000;
/// More CPUs than any machine has.
const AS_CPUS_MAX: i64 = 65_536;
/// Eleven candidates, or eighteen, in the time of seven have too few slices for each.
const TIME_BUDGET_OF_ALL: Duration = Duration::from_secs(600);

/// Compare a server under every memory allocator
///
/// Without a command: `millpond serve entity` on RocksDB, PUT and then GET, under each allocator that
/// is installed, memory pools off, and once with them. With a command: your server, which has to stay in the
/// foreground and answer at --url. Prints which is best in throughput, latency and memory, with
/// intervals, and writes report.html and results.json.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond compare
  millpond compare --time-budget 15m
  millpond compare --idle 12s \\
    --allocators glibc,jemalloc,jemalloc:background_thread=true
  millpond compare --phases steady:4s,burst:3s,idle:12s --allocators remedies
  millpond compare --settings jemalloc -- ./server {port}
  millpond compare --run-for 10m --rounds 6 --allocators glibc,jemalloc
  millpond compare --margin 2%,p99=10%
  millpond compare --allocators glibc,jemalloc --pools off
  millpond compare --baseline earlier/results.json
  millpond compare --preset haywire
  millpond compare --preset everscale --one-process --preset-share 1
  millpond compare --profile --time-budget 10m
  millpond compare --allocators glibc,glibc:arena_max=2,jemalloc:narenas=2
  millpond compare --allocators glibc,mimalloc3@3.4.3=/opt/libmimalloc.so
  millpond compare --allocators glibc --candidate py=env:PYTHONMALLOC=malloc \\
    -- python3 -m http.server --bind 127.0.0.1 {port}
  millpond compare --allocators glibc \\
    --candidate 'musl=command:./server-musl {port}' -- ./server {port}
  millpond compare --url http://127.0.0.1:8081/ -- \\
    nginx -c /etc/nginx/mine.conf -g 'daemon off;'
  millpond compare -- python3 -m http.server --bind 127.0.0.1 {port}
  millpond compare --url 'http://127.0.0.1:{port}/items' --method POST \\
    --body @item.json -H 'Content-Type: application/json' -- ./server {port}
  millpond compare --url 'https://localhost:{port}/' --ca ca.pem \\
    -- ./server {port}
  millpond compare --url http://localhost/ --unix '/tmp/s-{port}.sock' \\
    -- millpond serve plaintext --listen 'unix:/tmp/s-{port}.sock'
  millpond compare --url 'http://127.0.0.1:{port}/' --script paths.lua \\
    -- ./server {port}
  millpond compare --port 7777 --check-cmd 'redis-cli -p 7777 set k v' \\
    --load-cmd 'redis-benchmark -p 7777 -t set -n 100000 -q' \\
    --load-metric 'throughput=regex:([0-9.]+) requests per second' \\
    --load-metric 'p50[ms]=regex:p50=([0-9.]+)' --load-metric requests=100000 \\
    -- redis-server --port 7777 --save ''

An allocator is one that `millpond allocators` lists; all of these: all; or your
own: NAME=/path/to/library.so or NAME@VERSION=/path. With settings it is another
candidate: jemalloc:narenas=2,dirty_decay_ms=0 or glibc:arena_max=2. A library
that cannot be proved to be in use in the processes that serve is refused.

Variables of the shell that change allocators (MALLOC_*, GLIBC_TUNABLES,
MIMALLOC_*, TCMALLOC_*, LD_PRELOAD and the like) reach no candidate, unless
--keep-env is given; a line says which there were.

Candidates live together and are measured in turns, on fresh connections. For
that a server of yours needs a port for each: put {port} where the
port goes in its command or in an --env value. Without it the variable PORT is
tried, and, for root, a network namespace for each; if neither works, they live
one after the other, which is less sharp.

Rounds end at the first interim analysis that finds every verdict decided. The
interim analyses are few and planned beforehand, and share the 5 % of false
claims among them; --rounds N fixes the number, with one analysis at the end.

What your server is asked, how it is reached and which responses are right is
described with the flags of `millpond load`. In --unix, {port} is a number that
each start has for itself. A script begins anew in each slice.

One comparison at a time runs on a machine: MILLPOND_LOCK names another file to
lock than /tmp/millpond-compare.lock, or, empty, none.")]
pub(crate) struct CompareFlags {
    /// Allocators to compare; all: every one that is installed; remedies: what people do against memory that a
    /// service keeps [default: glibc, jemalloc, tcmalloc, mimalloc and
    /// mempool, as far as they are installed]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Compare one allocator with up to 16 settings that matter: what each changes, and the front of memory against
    /// CPU per request, as lines for a unit file or a Dockerfile. Lists are for glibc, jemalloc, mimalloc and
    /// tcmalloc
    #[arg(long, value_name = "NAME", conflicts_with_all = ["allocators", "preset"])]
    settings: Option<String>,
    /// A candidate that is no allocator: the server with more variables, NAME=env:VARIABLE=VALUE[,...], or
    /// another command in its place, NAME=command:PROGRAM ARGUMENTS, with {port} as in the server's; repeatable
    #[arg(long, value_name = "NAME=HOW", value_parser = Variant::parse)]
    candidate: Vec<Variant>,
    /// Run each --candidate under every allocator too
    #[arg(long, requires = "candidate")]
    cross: bool,
    /// Give allocators that size themselves by the number of CPUs (glibc, jemalloc) as many arenas as N CPUs would;
    /// locks and TLBs of such a machine are not shown
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=AS_CPUS_MAX))]
    as_cpus: Option<u32>,
    /// Memory pools of our own server: on, off, or both, with every allocator [default: off with every
    /// allocator, and on with the baseline's]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = parse_setting)]
    pools: Option<Vec<PoolSetting>>,
    /// The whole table: --pools on,off
    #[arg(long, conflicts_with = "pools")]
    all: bool,
    /// Rounds; each starts every candidate once [default: until every verdict is decided, at least 10,
    /// within the time budget]
    #[arg(long, value_name = "N", value_parser = parse_rounds)]
    rounds: Option<u32>,
    /// What differs by less counts as the same; a 99th percentile (p99=) and instructions and heap calls
    /// (counts=) have margins of their own [default: 5%,p99=15%,counts=1%]
    #[arg(long, value_name = "PERCENT,...", value_parser = parse_margins)]
    margin: Option<Margins>,
    /// Longest the whole comparison may take; the fewest rounds that can give a verdict, or --rounds,
    /// take as long as they do [default: 300s, with --all or --settings 600s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    time_budget: Option<u64>,
    /// Connections of the load generator
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "64")]
    connections: u64,
    /// The share of requests that may fail before a candidate does: fewer are counted, and in no other figure
    #[arg(long, value_name = "PERCENT", value_parser = parse_errors_allowed, default_value = "0.1%",
        conflicts_with = "load_cmd")]
    errors_allowed: f64,
    /// Requests per second while latency is measured [default: 0.4 of what the slowest can do]
    #[arg(long, value_name = "N", value_parser = parse_count, conflicts_with = "baseline")]
    rate: Option<u64>,
    /// Between the work and the second look at memory; jemalloc gives back by itself, after 10s, only with
    /// background_thread=true
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "250ms")]
    idle: u64,
    #[command(flatten)]
    lengths: subject::LengthFlags,
    #[command(flatten)]
    phases: phases::PhaseFlags,
    /// Look for the smallest memory limit that each candidate survives, K of N times, by bisection in runs of their own,
    /// under one cycle of --phases or a second of load; needs a control group that counts memory (root)
    #[arg(long, value_name = "K/N", num_args = 0..=1, default_missing_value = "3/3",
        require_equals = true, value_parser = LimitTrials::parse)]
    find_limit: Option<LimitTrials>,
    /// Count each candidate's instructions per request so often under valgrind, in passes of their own, and
    /// compare them like any other measure: neighbours change nothing there; 0: never [default: where the
    /// processor's counters are hidden and valgrind is installed, as often as a tenth of the time budget pays]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=COUNTS_MAX))]
    emulated_counts: Option<u32>,
    /// Draw flame graphs of the baseline and the best into the report: CPU time, bytes of allocation, and
    /// the difference, in runs of their own after the rounds; takes up to a fifth of the time budget
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    preset: phases::PresetFlags,
    /// Where report.html, results.json and the logs go
    #[arg(long, value_name = "DIR", default_value = "millpond-report")]
    out: PathBuf,
    /// Where our own server's data lie: on a disk, to have it in the figures [default: in memory (/dev/shm) if
    /// there is room for all candidates, else in --out, without syncs]
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    data: Option<PathBuf>,
    /// Random choices follow from it; the record names the one that was drawn
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the record (results.json) to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    /// Your server and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    requests: TargetRequestFlags,
    #[command(flatten)]
    subject: subject::SubjectFlags,
    #[command(flatten)]
    load: subject::LoadCommandFlags,
    #[command(flatten)]
    baseline: BaselineFlags,
}

pub(super) fn parse_setting(text: &str) -> Result<PoolSetting, String> {
    match text {
        "on" => Ok(PoolSetting::On),
        "off" => Ok(PoolSetting::Off),
        _ => Err("write on, off or on,off".to_owned()),
    }
}

/// `0.1%`, or `0.1`: always a percentage, as margins are.
fn parse_errors_allowed(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent: Option<f64> = number.parse().ok();
    percent
        .filter(|percent| (0.0..=ERRORS_ALLOWED_PERCENT_MAX).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "write a percentage from 0% to 50%, as in 0.1%".to_owned())
}

fn parse_margins(text: &str) -> Result<Margins, String> {
    text.parse().map_err(|error: MarginError| error.to_string())
}

pub(super) fn parse_rounds(text: &str) -> Result<u32, String> {
    u32::try_from(parse_count(text)?).map_err(|_| "that would take years".to_owned())
}

impl CompareFlags {
    pub(super) fn run(mut self) -> Result<Exit, Failure> {
        match self.preset.preset {
            Some(preset) if self.preset.one_process => self.run_one_process(preset),
            Some(Preset::Mempool) => self.run_pools(),
            Some(preset) => {
                self.prepare(preset)?;
                self.compare()
            }
            None => self.compare(),
        }
    }

    fn compare(self) -> Result<Exit, Failure> {
        let config = self.config()?;
        let stop = interrupt_flag()?;
        let mut progress = Progress::new();
        let outcome =
            millpond_lab::compare(&config, &mut |event| show(&mut progress, event), &stop)?;
        progress.clear();
        for failure in &outcome.failures {
            output::note(failure);
        }
        let options = TerminalOptions {
            colour: output::colour(),
            width: output::width(),
            report_path: Some(outcome.report.display().to_string()),
        };
        output::print(terminal::render(&outcome.record, &options))?;
        if let Some(preset) = self.preset.preset {
            preset.print(&outcome.record)?;
        }
        if let Some(file) = &self.json {
            file.write(&outcome.record.to_json().map_err(Failure::failed)?)?;
        }
        self.baseline.write_junit(&outcome.record)?;
        Ok(exit_of(&outcome))
    }

    fn config(&self) -> Result<CompareConfig, Failure> {
        let target = self.target()?;
        let mut config = CompareConfig::new(target, launcher()?);
        config.allocators.clone_from(&self.allocators);
        config.settings_of.clone_from(&self.settings);
        config.variants.clone_from(&self.candidate);
        config.is_crossed = self.cross;
        config.as_cpus = self.as_cpus;
        config.options = self.subject.options(self.load.port.is_none())?;
        if let Some(within) = self.subject.ready_within {
            config.ready_bound = Duration::from_nanos(within);
        }
        config.load_command = self.load.load_command();
        config.earlier = self.baseline.earlier()?.map(|record| Earlier {
            record,
            rule: self.baseline.rule(),
        });
        config.pools.clone_from(&self.pools);
        if self.all {
            config.pools = Some(vec![PoolSetting::On, PoolSetting::Off]);
        }
        config.rounds = self.rounds;
        config.margins = self.margin.unwrap_or_default();
        config.time_budget = match self.time_budget {
            Some(time_ns) => Duration::from_nanos(time_ns),
            None if self.all || self.settings.is_some() => TIME_BUDGET_OF_ALL,
            None => config.time_budget,
        };
        config.connections = self.connections as usize;
        config.errors_allowed = self.errors_allowed;
        config.rate_per_s = self.rate.map(|rate| rate as f64);
        config.idle = Duration::from_nanos(self.idle);
        config.lengths = self.lengths.lengths();
        config.limit_trials = self.find_limit;
        config.phases = self.phases.plan(self.connections)?;
        config.emulated_counts = self.emulated_counts;
        config.profile = self.profile || self.preset.preset == Some(Preset::Entity);
        config.lock = millpond_lab::lock_file();
        config.out.clone_from(&self.out);
        config.data.clone_from(&self.data);
        config.seed = self.seed;
        if self.preset.preset == Some(Preset::Entity) {
            Preset::as_entity(&mut config, self.preset.share(Preset::Entity));
        }
        config.commit = option_env!("MILLPOND_COMMIT").map(str::to_owned);
        config.command = command_line();
        Ok(config)
    }

    fn target(&self) -> Result<Target, Failure> {
        let subject = SubjectTarget {
            verb: "compared",
            requests: &self.requests,
            port: self.load.port,
            has_load_command: self.load.is_given(),
            command: &self.command,
            has_pools: self.pools.is_some() || self.all,
        };
        subject.target()
    }
}

/// Not to be trusted is the whole, not a part: on a machine with neighbours, memory and instructions
/// still stand when latency does not, and the report marks each verdict by itself.
fn exit_of(outcome: &CompareOutcome) -> Exit {
    let verdicts = &outcome.record.analysis.verdicts;
    let answers = [&verdicts.throughput, &verdicts.latency, &verdicts.memory];
    if outcome.interrupted {
        Exit::Interrupted
    } else if let Some(exit) = baseline::exit_of(&outcome.record) {
        exit
    } else if answers.iter().any(|answer| answer.trusted) {
        Exit::Success
    } else {
        Exit::NotTrusted
    }
}

/// What is done with one candidate after the other before and after the rounds.
fn pass_text(event: &LabEvent) -> Option<String> {
    let (what, candidate, number, of) = match event {
        LabEvent::Preflight {
            candidate,
            number,
            of,
        } => ("trying out", candidate, number, of),
        LabEvent::HeapPass {
            candidate,
            number,
            of,
        } => ("counting heap calls,", candidate, number, of),
        LabEvent::EmulatedCount {
            candidate,
            number,
            of,
        } => ("counting instructions,", candidate, number, of),
        LabEvent::PhaseTrace {
            candidate,
            number,
            of,
        } => ("tracing heaps over the phases,", candidate, number, of),
        LabEvent::LimitSearch {
            candidate,
            number,
            of,
        } => (
            "looking for the smallest memory limit,",
            candidate,
            number,
            of,
        ),
        LabEvent::FlameGraph {
            candidate,
            number,
            of,
        } => ("flame graphs,", candidate, number, of),
        _ => return None,
    };
    Some(format!("{what} {number} of {of}: {candidate}"))
}

fn show(progress: &mut Progress, event: &LabEvent) {
    if let Some(text) = pass_text(event) {
        progress.update(text);
        return;
    }
    match event {
        LabEvent::Note(line) => progress.line(line),
        LabEvent::Planned {
            rounds,
            runs,
            lines,
            eta_ns,
        } => {
            for line in lines {
                progress.line(line);
            }
            let left = whole_seconds(*eta_ns);
            progress.line(format!("{rounds} rounds, {runs} runs, about {left}"));
        }
        LabEvent::RunStarted {
            candidate,
            round,
            run,
            runs,
            eta_ns,
        } => {
            let left = whole_seconds(*eta_ns);
            progress.update(format!(
                "run {run} of {runs} (round {round}), about {left} left: {candidate}"
            ));
        }
        LabEvent::RunFinished {
            candidate,
            round,
            failure: Some(failure),
            ..
        } => {
            progress.line(format!("round {round}, {candidate}: {failure}"));
        }
        LabEvent::Analysing => progress.update("analysing"),
        _ => {}
    }
}

#[cfg(test)]
#[path = "tests/compare.rs"]
mod tests;
