//! `--phases` and `--cycles` of `millpond compare`: load that changes over each run.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, ValueEnum, value_parser};
use millpond_lab::{CompareConfig, MachineLock, OutputDirectory, allocator, lock_file, port};
use millpond_measure::record::{ComparisonRecord, PhaseKind, PhasePlan, PhaseSpec, Settings};

use crate::flags::url::own_program;
use crate::flags::{Cli, Command};
use crate::output;
use crate::output::{Exit, Failure};

use super::super::{parse_count, parse_duration_ns};
use super::{CompareFlags, subject};

/// Without `--cycles`: the first fills what is filled once, two more show growth.
const CYCLES_DEFAULT: u32 = 3;
/// Connections of a burst that names neither connections nor a rate, as a multiple of the usual ones.
const BURST_CONNECTIONS: u32 = 4;
const BURST_CONNECTIONS_MAX: u32 = 1024;
/// Longer files are not lists of phases.
const FILE_BYTES_MAX: u64 = 64 * 1024;

#[derive(Args, Debug)]
pub(super) struct PhaseFlags {
    /// Compare memory over time: each run repeats these phases, NAME:TIME, where NAME is steady, burst, churn or idle,
    /// with :connections=N, :rate=N or :path=/... behind it; or FILE with one a line. Answers how far memory falls after
    /// a burst, how soon, whether it grows from cycle to cycle and whose that is, and what it costs in CPU and p99 of
    /// steady phases. A churn ages the heap: behind it, CPU per request is compared with that before it
    #[arg(long, value_name = "PHASE,...|FILE", help_heading = "Phases")]
    phases: Option<String>,
    /// How often each run repeats the phases [default: 3]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100), requires = "phases",
        help_heading = "Phases")]
    cycles: Option<u32>,
}

impl PhaseFlags {
    /// What was asked for, where the usual load has so many connections; `None` without `--phases`.
    pub(super) fn plan(&self, connections: u64) -> Result<Option<PhasePlan>, Failure> {
        let Some(text) = &self.phases else {
            return Ok(None);
        };
        let wrong = |sentence: String| Failure::usage(format!("--phases {text}: {sentence}"));
        let path = Path::new(text);
        let list = match path.is_file() {
            true => read_list(path).map_err(wrong)?,
            false => text.clone(),
        };
        let mut plan = parse(&list).map_err(wrong)?;
        plan.cycles = self.cycles.unwrap_or(CYCLES_DEFAULT);
        let usual = u32::try_from(connections).unwrap_or(u32::MAX);
        for spec in &mut plan.phases {
            let is_plain = spec.connections.is_none() && spec.rate_per_s.is_none();
            if spec.kind == PhaseKind::Burst && is_plain && spec.path.is_none() {
                let more = usual.saturating_mul(BURST_CONNECTIONS);
                spec.connections = Some(more.min(BURST_CONNECTIONS_MAX.max(usual)));
            }
        }
        Ok(Some(plan))
    }
}

/// The phases of a file, as one would write them on the command line; `#` begins a comment.
fn read_list(path: &Path) -> Result<String, String> {
    let length = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if length.len() > FILE_BYTES_MAX {
        return Err(format!(
            "the file has {} bytes; a list of phases has {FILE_BYTES_MAX} at most",
            length.len()
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    let lines: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    Ok(lines.join(","))
}

fn parse(list: &str) -> Result<PhasePlan, String> {
    let phases: Result<Vec<PhaseSpec>, String> = list
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(parse_phase)
        .collect();
    Ok(PhasePlan {
        phases: phases?,
        cycles: CYCLES_DEFAULT,
    })
}

fn parse_phase(text: &str) -> Result<PhaseSpec, String> {
    let example = "write it as steady:20s, burst:5s:connections=256 or idle:15s";
    let mut parts = text.splitn(3, ':');
    let kind = match parts.next().unwrap_or_default() {
        "steady" => PhaseKind::Steady,
        "burst" => PhaseKind::Burst,
        "churn" => PhaseKind::Churn,
        "idle" => PhaseKind::Idle,
        other => {
            return Err(format!(
                "\"{other}\" is no phase, which is steady, burst, churn or idle; {example}"
            ));
        }
    };
    let length = parts
        .next()
        .ok_or_else(|| format!("\"{text}\" has no length; {example}"))?;
    let duration_ns = parse_duration_ns(length).map_err(|error| format!("\"{text}\": {error}"))?;
    let mut spec = PhaseSpec {
        kind,
        duration_ns,
        ..PhaseSpec::default()
    };
    let mut rest = parts.next().unwrap_or_default();
    while !rest.is_empty() {
        // A path may have colons, and is the last.
        let (option, more) = match rest.starts_with("path=") {
            true => (rest, ""),
            false => rest.split_once(':').unwrap_or((rest, "")),
        };
        set(&mut spec, option).map_err(|error| format!("\"{text}\": {error}"))?;
        rest = more;
    }
    Ok(spec)
}

fn set(spec: &mut PhaseSpec, option: &str) -> Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    if spec.kind == PhaseKind::Idle {
        return Err(format!(
            "an idle phase has no requests, and takes no {name}"
        ));
    }
    match name {
        "connections" => {
            let count = parse_count(value)?;
            spec.connections =
                Some(u32::try_from(count).map_err(|_| "too many connections".to_owned())?);
        }
        "rate" => spec.rate_per_s = Some(parse_count(value)? as f64),
        "path" if value.starts_with('/') => spec.path = Some(value.to_owned()),
        "path" => return Err(format!("a path begins with /, not {value}")),
        _ => {
            return Err(format!(
                "\"{name}\" is not known here: use connections=N, rate=N or path=/..."
            ));
        }
    }
    Ok(())
}

// The five earlier benchmarks, each one command, with their figures beside ours.

/// Which earlier benchmark.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(in crate::flags) enum Preset {
    /// 500 connections that send 1,024 B in chunks and get 740 B
    Everscale,
    /// 768 connections, 128 requests deep; then a constant rate
    Haywire,
    /// 10,000 connections, a new one for each request
    NetworkPool,
    /// 2,000 requests a second on one connection: PUT, then GET, on the durable store
    Entity,
    /// Objects on pools against malloc, without a server
    Mempool,
}

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug)]
pub(super) struct PresetFlags {
    /// One of the five earlier benchmarks, with its published figures beside ours
    #[arg(long, value_enum, conflicts_with_all = ["command", "load_cmd", "pools", "rate"])]
    pub(super) preset: Option<Preset>,
    /// The part of the earlier benchmark's work that each run does [default: 0.1, of haywire 0.02]
    #[arg(long, value_name = "SHARE", value_parser = parse_share, requires = "preset")]
    preset_share: Option<f64>,
    /// Of everscale: client and server in one process, as it had them, by `millpond bench loopback`; no
    /// time budget
    #[arg(long, requires = "preset")]
    pub(super) one_process: bool,
}

impl PresetFlags {
    /// The part of the work of `preset` that each run does.
    pub(super) fn share(&self, preset: Preset) -> f64 {
        self.preset_share.unwrap_or(preset.usual_share())
    }
}

/// Requests of the earlier run: 500 connections, 5,000 each.
const EVERSCALE_REQUESTS: f64 = 500.0 * EVERSCALE_ITERATIONS;
const EVERSCALE_ITERATIONS: f64 = 5_000.0;
const NETWORK_POOL_REQUESTS: f64 = 200_000.0;
/// What 60 s are here, on one core; the earlier run counted time and not requests.
const HAYWIRE_REQUESTS: f64 = 300_000_000.0;
const HAYWIRE_RATE_PER_S: f64 = 20_000.0;
const HAYWIRE_SECONDS: f64 = 60.0;
const ENTITY_RATE_PER_S: f64 = 2_000.0;
const ENTITY_SECONDS: f64 = 15.0;
const MEMPOOL_ITERATIONS: f64 = 100_000.0;

/// The part of the work that a run does. Connections are new in each run, and their spread does not shrink with its length:
/// many short runs decide more than a few long ones.
const SHARE: f64 = 0.1;
/// Of a benchmark that ran for a minute.
const HAYWIRE_SHARE: f64 = 0.02;

/// A server, the flags of `millpond load`, and how many requests that makes.
struct Job {
    server: Vec<String>,
    load: String,
    requests: u64,
}

/// The script that sends what everscale's clients sent.
const EVERSCALE_SCRIPT: &str = include_str!("everscale.lua");
const EVERSCALE_ANSWER_BYTES: usize = 740;

impl Preset {
    /// A name as it is written on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    const fn usual_share(self) -> f64 {
        match self {
            Self::Haywire => HAYWIRE_SHARE,
            Self::Everscale | Self::NetworkPool | Self::Entity | Self::Mempool => SHARE,
        }
    }

    /// The words that stand for the three presets with a server and a load of their own; what they need
    /// is put into `directory`.
    pub(super) fn words(
        self,
        share: f64,
        port: u16,
        directory: &Path,
    ) -> Result<Vec<String>, Failure> {
        let Some(Job {
            server,
            load,
            requests,
        }) = self.job(share, directory)?
        else {
            return Ok(Vec::new());
        };
        let program = own_program()?.display().to_string();
        let load = load.replace("{url}", &format!("http://127.0.0.1:{port}"));
        // 4 is the generator's verdict on itself, which the lab comes to by its own gate.
        let line = format!("M='{program}'; {{ \"$M\" load {load}; }} || [ $? -eq 4 ]");
        let throughput = if self == Self::Haywire {
            "throughput=regex:Requests/sec: +([0-9.]+)"
        } else {
            "throughput=regex:\"requests_per_s\": ([0-9.]+)"
        };
        let mut words = vec!["--port".to_owned(), port.to_string()];
        for (flag, value) in [
            ("--load-cmd", line.as_str()),
            ("--load-within", "10m"),
            ("--load-metric", throughput),
            (
                "--load-metric",
                "p50[ns]=regex:\"response_ns\": \\{[^}]*\"p50\": ([0-9]+)",
            ),
            (
                "--load-metric",
                "p99[ns]=regex:\"response_ns\": \\{[^}]*\"p99\": ([0-9]+)",
            ),
            ("--load-metric", &format!("requests={requests}")),
        ] {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
        words.extend(["--", &program, "serve"].map(str::to_owned));
        words.extend(server);
        let listen = format!("127.0.0.1:{port}");
        // Without our pools each request takes its memory from the allocator, as it did then.
        words.extend(["--listen", &listen, "--pools", "off"].map(str::to_owned));
        Ok(words)
    }

    /// What is started and what loads it; `None` where `compare` has both of its own.
    fn job(self, share: f64, directory: &Path) -> Result<Option<Job>, Failure> {
        let part = |all: f64| ((all * share).ceil() as u64).max(100);
        Ok(Some(match self {
            Self::Everscale => {
                let (files, script) = everscale_files(directory)?;
                let requests = part(EVERSCALE_REQUESTS);
                Job {
                    server: vec!["files".to_owned(), files.display().to_string()],
                    load: format!(
                        "-s '{}' -c 500 --requests {requests} --print json {{url}}/answer.xml",
                        script.display()
                    ),
                    requests,
                }
            }
            Self::Haywire => {
                let seconds = (HAYWIRE_SECONDS * share).max(1.0);
                let deep = part(HAYWIRE_REQUESTS);
                Job {
                    server: vec!["plaintext".to_owned()],
                    load: format!(
                        "-c 768 --pipeline 128 --requests {deep} {{url}}/plaintext && \"$M\" load \
                         -c 768 -R {HAYWIRE_RATE_PER_S} -d {:.0}ms --print json {{url}}/plaintext",
                        seconds * 1e3
                    ),
                    requests: deep + (HAYWIRE_RATE_PER_S * seconds) as u64,
                }
            }
            Self::NetworkPool => {
                // Fewer would not open all connections twice.
                let requests = part(NETWORK_POOL_REQUESTS).max(20_000);
                Job {
                    server: vec!["plaintext".to_owned(), "--max-connections=12000".to_owned()],
                    load: format!(
                        "-c 10000 --requests-per-connection 1 --source 127.1.0.0/16 --timeout 10s \
                         --requests {requests} --print json {{url}}/plaintext"
                    ),
                    requests,
                }
            }
            Self::Entity | Self::Mempool => return Ok(None),
        }))
    }

    /// Of the allocators that were compared then, and ours, those that are here.
    pub(super) fn allocators_here(self) -> Vec<String> {
        let catalogue = allocator::catalogue();
        let is_here = |name: &&str| {
            let mut entries = catalogue.iter();
            entries.any(|entry| entry.name == *name && entry.place.is_some())
        };
        let names = self.allocators().split(',').filter(is_here);
        names.map(str::to_owned).collect()
    }

    const fn allocators(self) -> &'static str {
        match self {
            Self::Everscale => "glibc,tcmalloc,mempool",
            Self::Haywire => "glibc,tcmalloc,jemalloc,mempool",
            Self::NetworkPool | Self::Entity | Self::Mempool => "glibc,mempool",
        }
    }

    /// One connection, values of three bytes, and PUT and GET for as long as then.
    pub(super) fn as_entity(config: &mut CompareConfig, share: f64) {
        config.connections = 1;
        config.value_bytes = 3;
        config.work = Some(Self::entity_work(share));
    }

    fn entity_work(share: f64) -> Settings {
        let seconds = (ENTITY_SECONDS * share).max(0.5);
        let requests = (ENTITY_RATE_PER_S * seconds) as u64;
        let rate = |operation: &str| (operation.to_owned(), ENTITY_RATE_PER_S);
        Settings {
            rate_per_s: [rate("put"), rate("get")].into(),
            memory_requests: 2 * requests,
            keys: Some(requests),
            throughput_phase_ns: (seconds * 1e9) as u64,
            latency_phase_ns: (seconds * 1e9) as u64,
            ..Settings::default()
        }
    }

    /// What was published, beside what was found.
    pub(super) fn print(self, record: &ComparisonRecord) -> Result<(), Failure> {
        output::print(subject::beside(&self.name(), record, columns()))
    }

    /// The same for the micro-benchmark.
    pub(super) fn print_pools(record: &serde_json::Value) -> Result<(), Failure> {
        output::print(subject::beside_pools(record, columns()))
    }

    /// The name of the figures.
    #[cfg(test)]
    pub(super) fn all_names() -> Vec<String> {
        Self::value_variants()
            .iter()
            .map(|one| one.name())
            .collect()
    }
}

/// For prose and its table: a terminal's, if that is neither too narrow for words nor too wide to read.
fn columns() -> usize {
    output::width().clamp(40, 100)
}

impl CompareFlags {
    /// The micro-benchmark has no server.
    pub(super) fn run_pools(&self) -> Result<Exit, Failure> {
        let share = self.preset.share(Preset::Mempool);
        let iterations = ((MEMPOOL_ITERATIONS * share) as u64).max(1_000);
        let (exit, file) = self.run_bench("pools", &["--programs", "objects"], iterations)?;
        if matches!(exit, Exit::Success | Exit::NotTrusted) {
            let text = std::fs::read_to_string(&file).map_err(Failure::failed)?;
            Preset::print_pools(&serde_json::from_str(&text).map_err(Failure::failed)?)?;
        }
        Ok(exit)
    }

    /// Client and server in one process, as everscale had them.
    pub(super) fn run_one_process(&self, preset: Preset) -> Result<Exit, Failure> {
        if preset != Preset::Everscale {
            return Err(Failure::usage(
                "--one-process is for --preset everscale: the others had a server of its own",
            ));
        }
        let here = preset.allocators_here().join(",");
        let allocators = match &self.allocators {
            Some(_) => Vec::new(),
            None => vec!["--allocators", &here],
        };
        let share = self.preset.share(preset);
        let iterations = ((EVERSCALE_ITERATIONS * share).ceil() as u64).max(1);
        let (exit, _) = self.run_bench("loopback", &allocators, iterations)?;
        Ok(exit)
    }

    /// A benchmark without a server of its own, as if it had been asked for by its name; and where its
    /// record is.
    fn run_bench(
        &self,
        what: &str,
        words: &[&str],
        iterations: u64,
    ) -> Result<(Exit, PathBuf), Failure> {
        let mut warnings = Vec::new();
        let _lock = MachineLock::take_or_warn(lock_file().as_deref(), &mut warnings)?;
        for warning in warnings {
            output::warn(&warning);
        }
        OutputDirectory::claim(&self.out)?;
        let file = self.out.join(format!("{what}.json"));
        let (iterations, json) = (iterations.to_string(), file.display().to_string());
        let mut words = [&["millpond", "bench", what][..], words].concat();
        words.extend(["--iterations", &iterations, "--json", &json]);
        let allocators = self.allocators.as_ref().map(|names| names.join(","));
        let repetitions = self.rounds.map(|rounds| rounds.to_string());
        let seed = self.seed.map(|seed| seed.to_string());
        for (flag, value) in [
            ("--allocators", &allocators),
            ("--repetitions", &repetitions),
            ("--seed", &seed),
        ] {
            words.extend(value.iter().flat_map(|value| [flag, value]));
        }
        let exit = Cli::try_parse_from(words).map_err(Failure::failed)?.run()?;
        Ok((exit, file))
    }

    /// Replaces the user's server and load by the preset's.
    pub(super) fn prepare(&mut self, preset: Preset) -> Result<(), Failure> {
        if self.allocators.is_none() {
            self.allocators = Some(preset.allocators_here());
        }
        OutputDirectory::claim(&self.out)?;
        let directory = self.out.join("preset");
        let words = preset.words(
            self.preset.share(preset),
            port::choose().map_err(Failure::failed)?,
            &directory,
        )?;
        if words.is_empty() {
            return Ok(());
        }
        let words = ["millpond", "compare"]
            .map(str::to_owned)
            .into_iter()
            .chain(words);
        let parsed = Cli::try_parse_from(words).map_err(Failure::failed)?;
        if let Command::Compare(flags) = parsed.command {
            self.command = flags.command;
            self.load = flags.load;
        }
        Ok(())
    }
}

/// More than a thousandth, for less measures nothing.
fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.001..=10.0).contains(&share) => Ok(share),
        _ => Err("write a number from 0.001 to 10; 1 is all of it".to_owned()),
    }
}

/// The script and the response, in files.
fn everscale_files(directory: &Path) -> Result<(PathBuf, PathBuf), Failure> {
    let files = directory.join("files");
    let script = directory.join("everscale.lua");
    std::fs::create_dir_all(&files)
        .and_then(|()| std::fs::write(&script, EVERSCALE_SCRIPT))
        .and_then(|()| std::fs::write(files.join("answer.xml"), "*".repeat(EVERSCALE_ANSWER_BYTES)))
        .map_err(|error| {
            Failure::failed(format!(
                "{} cannot be written: {error}; choose another directory with --out",
                directory.display()
            ))
        })?;
    let whole = |path: PathBuf| std::fs::canonicalize(path).map_err(Failure::failed);
    Ok((whole(files)?, whole(script)?))
}

#[cfg(test)]
#[path = "tests/phases.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/preset.rs"]
mod preset_tests;
