//! `millpond profile`: where a server's time and memory go.

use super::compare::subject::LoadCommandFlags;
use super::compare::subject::SubjectFlags;
use super::requests::TargetRequestFlags;
use super::url::{SubjectTarget, launcher};
use super::{command_line, interrupt_flag, parse_bytes, parse_count, parse_duration_ns};
use crate::output::{self, Exit, Failure, JsonFile, Progress, whole_seconds};
use clap::Args;
use millpond_lab::profile::{ProcessConfig, ProfileConfig, ProfileOutcome, Unwind};
use millpond_lab::profile::{profile, profile_process};
use millpond_lab::{LabEvent, Target};
use millpond_measure::record::PoolSetting;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Draw flame graphs of a server under load: CPU time, bytes and calls of allocation
///
/// Without a command: `millpond serve entity`, PUT and then GET. With a command: your server, which has
/// to stay in the foreground and answer at --url. The same work is run with and without each profiler,
/// in turns, so that what profiling costs is known. Two allocators give the difference between them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond profile
  millpond profile --allocators glibc,jemalloc
  millpond profile --url http://127.0.0.1:8081/ -- \\
    nginx -c /etc/nginx/mine.conf -g 'daemon off;'
  millpond profile --no-cpu --sample-bytes 64K --url http://127.0.0.1:8000/ -- \\
    /usr/bin/python3 -m http.server --bind 127.0.0.1 8000
  millpond profile --port 7777 \\
    --load-cmd 'redis-benchmark -p 7777 -t set -n 100000 -q' \\
    -- redis-server --port 7777 --save ''
  millpond profile --pid 4711 --duration 10s

In --out: cpu.svg, alloc-bytes.svg and alloc-count.svg to look at, the same as
.folded text, and cpu.pb.gz and alloc.pb.gz for `go tool pprof`. The CPU graph
needs perf.")]
pub(crate) struct ProfileFlags {
    /// The allocator, or two whose difference is drawn [default: what the server has by itself]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    allocators: Option<Vec<String>>,
    /// Memory pools of our own server
    #[arg(long, value_name = "on|off", value_parser = super::compare::parse_setting)]
    pools: Option<PoolSetting>,
    /// A process that runs already, with its children: CPU time only
    #[arg(
        long,
        value_name = "PID",
        conflicts_with_all = ["command", "allocators", "pools", "no_cpu", "sample_bytes", "rounds", "no_cost", "rate", "seed"]
    )]
    pid: Option<u32>,
    /// Connections of the load generator
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "64")]
    connections: u64,
    /// Requests per second [default: as many as are answered]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    rate: Option<u64>,
    /// Load for each graph, over all rounds
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s")]
    duration: u64,
    /// Over how many fresh processes that is spread [default: 5]
    #[arg(long, value_name = "N", value_parser = super::compare::parse_rounds)]
    rounds: Option<u32>,
    /// No CPU graph
    #[arg(long)]
    no_cpu: bool,
    /// No allocation graphs
    #[arg(long, conflicts_with = "no_cpu")]
    no_allocations: bool,
    /// Do not run the same work without a profiler to say what profiling costs
    #[arg(long)]
    no_cost: bool,
    /// How perf follows stacks: auto, fp (frame pointers) or dwarf (unwind tables)
    #[arg(long, value_name = "HOW", default_value = "auto")]
    unwind: Unwind,
    /// CPU samples per second of CPU time
    #[arg(long, value_name = "N", default_value_t = millpond_lab::profile::SAMPLES_PER_S_DEFAULT)]
    samples_per_s: u32,
    /// Mean distance of allocation samples, in bytes asked for [default: 512K]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    sample_bytes: Option<u64>,
    /// Where the files go
    #[arg(long, value_name = "DIR", default_value = "millpond-profile")]
    out: PathBuf,
    /// Random choices follow from it
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write the figures (profile.json) to FILE as well
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    /// Your server and its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    requests: TargetRequestFlags,
    #[command(flatten)]
    subject: SubjectFlags,
    #[command(flatten)]
    load: LoadCommandFlags,
}

impl ProfileFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        let job = self.job()?;
        let stop = interrupt_flag()?;
        let mut progress = Progress::new();
        let mut events = |event: &LabEvent| show(&mut progress, event);
        let outcome = match &job {
            Job::Server(config) => profile(config, &mut events, &stop),
            Job::Process(config) => profile_process(config, &mut events, &stop),
        };
        let outcome = outcome?;
        progress.clear();
        output::print(&outcome)?;
        if let Some(file) = &self.json {
            let record = serde_json::to_string_pretty(&outcome.record);
            file.write(&record.map_err(Failure::failed)?)?;
        }
        Ok(exit_of(&outcome))
    }

    fn job(&self) -> Result<Job, Failure> {
        if let Some(pid) = self.pid {
            let requests = match self.requests.has_url() {
                true => Some(self.requests.requests(&self.requests.url)?),
                false => None,
            };
            return Ok(Job::Process(Box::new(ProcessConfig {
                pid,
                requests,
                connections: self.connections as usize,
                duration: Duration::from_nanos(self.duration),
                unwind: self.unwind,
                samples_per_s: self.samples_per_s,
                out: self.out.clone(),
                command: command_line(),
            })));
        }
        let mut config = ProfileConfig::new(self.target()?, launcher()?);
        config.allocators.clone_from(&self.allocators);
        config.pools = self.pools.unwrap_or(config.pools);
        config.options = self.subject.options(self.load.port.is_none())?;
        if let Some(within) = self.subject.ready_within {
            config.ready_bound = Duration::from_nanos(within);
        }
        config.load_command = self.load.load_command();
        config.connections = self.connections as usize;
        config.rate_per_s = self.rate.map(|rate| rate as f64);
        config.duration = Duration::from_nanos(self.duration);
        config.rounds = self.rounds.unwrap_or(config.rounds);
        (config.cpu, config.allocations) = (!self.no_cpu, !self.no_allocations);
        config.cost = !self.no_cost;
        config.unwind = self.unwind;
        config.samples_per_s = self.samples_per_s;
        config.sample_bytes = self.sample_bytes.unwrap_or(config.sample_bytes);
        config.out.clone_from(&self.out);
        config.seed = self.seed;
        config.command = command_line();
        Ok(Job::Server(Box::new(config)))
    }

    fn target(&self) -> Result<Target, Failure> {
        let subject = SubjectTarget {
            verb: "profiled",
            requests: &self.requests,
            port: self.load.port,
            has_load_command: self.load.is_given(),
            command: &self.command,
            has_pools: self.pools.is_some(),
        };
        subject.target().map_err(|failure| match failure {
            Failure::Usage(sentence) if self.requests.has_url() && self.command.is_empty() => {
                Failure::Usage(sentence + ", or --pid for one that runs already")
            }
            other => other,
        })
    }
}

/// What is to be done.
#[derive(Debug)]
enum Job {
    Server(Box<ProfileConfig>),
    Process(Box<ProcessConfig>),
}

fn exit_of(outcome: &ProfileOutcome) -> Exit {
    if outcome.interrupted {
        Exit::Interrupted
    } else {
        Exit::Success
    }
}

fn show(progress: &mut Progress, event: &LabEvent) {
    match event {
        LabEvent::Note(line) => progress.line(line),
        LabEvent::Preflight { candidate, .. } => {
            progress.update(format!("trying {candidate}"));
        }
        LabEvent::RunStarted {
            candidate,
            round,
            run,
            runs,
            eta_ns,
        } => {
            let left = if *run == 1 {
                String::new()
            } else {
                format!(", about {} left", whole_seconds(*eta_ns))
            };
            progress.update(format!(
                "run {run} of {runs} (round {round}){left}: {candidate}"
            ));
        }
        LabEvent::Analysing => progress.update("drawing"),
        _ => {}
    }
}

#[cfg(test)]
#[path = "tests/profile.rs"]
mod tests;
