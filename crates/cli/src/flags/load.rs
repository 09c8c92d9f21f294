//! `millpond load`: the load generator, with the flags of wrk and wrk2.

use super::accuracy::AccuracyFlags;
use super::arrivals::ArrivalFlags;
use super::compatible::CompatibleFlags;
use super::connections::ConnectionFlags;
use super::cookies::CookieFlags;
use super::expectations::ExpectFlags;
use super::find_max::{FindMaxFlags, SearchOptions};
use super::merge::MergeFlags;
use super::printing;
use super::printing::{PrintFlags, Tool};
use super::printing::{Results, ScriptWatcher};
use super::requests::Description;
use super::requests::EntityRequestFlags;
use super::requests::{RequestFlags, Urls};
use super::script::{LoadedScript, ScriptFlags, load_script};
use super::server_address::ServerAddressFlags;
use super::watcher::WatchFlags;
use super::{
    POOLS_VALUE, interrupt_flag, parse_busy_poll_ns, parse_bytes, parse_count, parse_duration_ns,
    parse_pools,
};
use crate::output::{self, Exit, Failure, JsonFile};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use millpond_io::DriverChoice;
use millpond_load::{
    BodyCheck, ConnectFailure, ConnectionPlan, Ended, LoadConfig, LoadError, LoadRecord, Mode,
    RequestPlan, Stop, facts_of, run_observed, run_script,
};
use millpond_measure::record::LoadStatus;
use millpond_measure::report::{ab, wrk};
use millpond_measure::slo::{Slo, SloOutcome, SloPopulation};
use millpond_mempool::PoolMode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// As wrk puts it, with the kernel interfaces it was built for.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " [epoll, io_uring]");
/// wrk's own defaults.
const THREADS_DEFAULT: u64 = 2;
const DURATION_NS_DEFAULT: u64 = 10_000_000_000;

/// `millpond load URL` or `millpond load merge FILE...`.
#[derive(Debug)]
pub(crate) enum LoadJob {
    Run(Box<LoadFlags>),
    Merge(MergeFlags),
}

/// The name of the second.
const MERGE: &str = "merge";

impl LoadJob {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        match self {
            Self::Run(flags) => flags.run(),
            Self::Merge(flags) => flags.run(),
        }
    }
}

/// By hand: what derives knows no arguments that are required unless a subcommand is given.
impl Args for LoadJob {
    fn augment_args(command: Command) -> Command {
        LoadFlags::augment_args(command)
            .subcommand(MergeFlags::augment_args(Command::new(MERGE)))
            .args_conflicts_with_subcommands(true)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LoadJob {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        match matches.subcommand() {
            Some((MERGE, words)) => Ok(Self::Merge(MergeFlags::from_arg_matches(words)?)),
            _ => Ok(Self::Run(Box::new(LoadFlags::from_arg_matches(matches)?))),
        }
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Put a server under load and time its responses
///
/// Three clocks are always on: response (from when a request was meant to leave), service (from when
/// it left) and send delay (slip_ns in JSON: the difference, the generator's or the server's
/// backlog). Without
/// --rate each connection asks again as soon as it is answered; with it, requests leave on a fixed
/// schedule whatever the server does.
#[derive(Args, Debug)]
#[command(disable_version_flag = true, version = VERSION, after_help = "Examples:
  millpond load http://127.0.0.1:8080/plaintext
  millpond load -t 2 -c 64 -d 30s --latency http://127.0.0.1:8080/plaintext
  millpond load -R 20k -c 64 -d 1m --json run.json http://127.0.0.1:8080/
  millpond load -R 5k -c 64 --slo 'p99<5ms,errors<0.1%' --junit junit.xml \\
    http://127.0.0.1:8080/
  millpond load --repeat 5 -c 64 -d 5s http://127.0.0.1:8080/
  millpond load --find-max 'p99<5ms,errors<0.1%' -c 64 http://127.0.0.1:8080/
  millpond load -R 1k..20k -d 1m --arrivals poisson http://127.0.0.1:8080/
  millpond load -s post.lua -c 64 http://127.0.0.1:8080/ -- words for the script
  millpond load --put --keys 100k --requests 100k http://127.0.0.1:8080
  millpond load --get --keys 100k -c 64 -d 10s http://127.0.0.1:8080
  millpond load --ycsb b --keys 100k -c 64 -d 10s http://127.0.0.1:8080
  millpond load 'http://127.0.0.1:8080/item/{rand:1:5000}' -H 'X-Id: {uuid}'

--put and --get speak to `millpond serve entity`: --put writes each of --keys
values once, in order, and again from the first; --get reads them in random
order and checks every byte.")]
pub(crate) struct LoadFlags {
    /// Where to ask, as in `http://127.0.0.1:8080/path`; several of one server are asked in turn
    #[arg(value_name = "URL", required_unless_present = "urls")]
    url: Vec<String>,
    /// Words for the script's init(args), behind those of --script-arg
    #[arg(last = true, value_name = "ARG", requires = "script")]
    script_args: Vec<String>,
    /// Threads [default: 2, or 1 with a single connection]
    #[arg(short, long, value_name = "N", value_parser = parse_count)]
    threads: Option<u64>,
    /// Connections of all threads together
    #[arg(short, long, value_name = "N", value_parser = parse_count, default_value = "10")]
    connections: u64,
    /// How long requests are counted [default: 10s, or until --requests]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration_ns)]
    duration: Option<u64>,
    /// Stop after so many requests
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_count)]
    requests: Option<u64>,
    /// Measure N times, warm-up included, each time on fresh connections, and say how far the N lie apart: which
    /// connections a run gets shifts its figures by some percent for as long as it lasts
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1",
        conflicts_with_all = ["find_max", "script"])]
    repeat: u64,
    /// Requests sent on a connection before its first response has come
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "1")]
    pipeline: u64,
    /// Unanswered for longer than this is an error
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "2s")]
    timeout: u64,
    /// Longest head of a response; one that is longer is a failure of the kind limit, as is one with more than 300
    /// fields
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "65535")]
    max_response_header: u64,
    /// Random numbers start here: the same seed asks for the same keys in the same order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Memory pools of the generator itself
    #[arg(long, value_name = POOLS_VALUE, value_parser = parse_pools, default_value = "on")]
    pools: PoolMode,
    /// Kernel interface of the generator. With epoll a request leaves in the moment its clock is
    /// read; with uring when its thread next waits, which costs less
    #[arg(long, value_name = "auto|uring|epoll", default_value = "epoll")]
    driver: DriverChoice,
    /// Before a thread sleeps it looks for responses for up to US microseconds, as long as that finds
    /// some: they are seen sooner, at the price of CPU time that the server then lacks if it needs
    /// the same CPUs. 0 is off
    #[arg(long, value_name = "US", value_parser = parse_busy_poll_ns, default_value = "0")]
    busy_poll: u64,
    /// Objectives of the run; exit status 3 if one is missed: p99<5ms, service.p50<200us, errors<0.1%,
    /// rate>1k; several with commas. A failed request counts as slower than any objective
    #[arg(long, value_name = "OBJECTIVES")]
    slo: Option<Slo>,
    /// Which requests objectives about time are about: all, or the successful ones and those without a response with
    /// their age. For --find-max and --abort too
    #[arg(long, value_name = "all|successful", default_value = "all")]
    slo_of: SloPopulation,
    /// Write what became of the run and of each objective to FILE as JUnit XML, as CI shows
    /// tests
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse, conflicts_with = "find_max")]
    junit: Option<JsonFile>,
    #[command(flatten)]
    asked: RequestFlags,
    #[command(flatten)]
    entity: EntityRequestFlags,
    #[command(flatten)]
    cookies: CookieFlags,
    #[command(flatten)]
    expect: ExpectFlags,
    #[command(flatten)]
    script: ScriptFlags,
    #[command(flatten)]
    opening: ConnectionFlags,
    #[command(flatten)]
    reach: ServerAddressFlags,
    #[command(flatten)]
    arrivals: ArrivalFlags,
    #[command(flatten)]
    search: FindMaxFlags,
    #[command(flatten)]
    accuracy: AccuracyFlags,
    #[command(flatten)]
    print: PrintFlags,
    #[command(flatten)]
    watch: WatchFlags,
    #[command(flatten)]
    compatible: CompatibleFlags,
}

impl LoadFlags {
    /// The run these flags describe; all is checked before a name is resolved.
    fn config(&self) -> Result<LoadConfig, Failure> {
        let urls = self.asked.parse_urls(&self.url)?;
        let threads = self
            .threads
            .unwrap_or(THREADS_DEFAULT.min(self.connections));
        if threads > self.connections {
            return Err(Failure::usage(format!(
                "--threads {threads} is more than --connections {}: each thread needs a connection",
                self.connections
            )));
        }
        let requests = self.requests(&urls)?;
        let stop = self.stop();
        let mut config = LoadConfig {
            threads: threads as usize,
            connections: self.connections as usize,
            pipeline: self.pipeline as usize,
            mode: match self.search.find_max {
                // Each step has a rate of its own.
                Some(_) => Mode::ClosedLoop,
                None => self.arrivals.mode(stop.duration_ns, self.seed)?,
            },
            deadline_ns: self.arrivals.deadline,
            stop,
            repeats: self.repeat,
            plan: self.plan(&requests),
            timeout_ns: self.timeout,
            response_head_bytes_max: usize::try_from(self.max_response_header)
                .unwrap_or(usize::MAX),
            connect_within_ns: self.opening.within_ns(),
            pool_mode: self.pools,
            driver: self.driver,
            busy_poll_ns: self.busy_poll,
            receive_stamps: self.accuracy.receive_stamps,
            keeps_going: self.opening.keep_going,
            abort: self.accuracy.abort_rule(self.slo_of),
            cookies: self.cookies.plan(),
            batch_latency: self.compatible.batch_latency,
            samples_max: self.print.samples_max(),
            warm_up: self.accuracy.warm_up(),
            ..requests.config()
        };
        config.check().map_err(|error| refused(&error))?;
        config.target.addresses = self.opening.addresses(&self.reach, &urls.first)?;
        Ok(config)
    }

    /// What is asked of the server of `urls`.
    fn requests(&self, urls: &Urls) -> Result<RequestPlan, Failure> {
        let body = self.asked.read_body()?;
        let workload = match self.script.is_given() {
            true => self.asked.workload_of_script(urls, body)?,
            false if self.entity.is_given() => {
                self.entity.workload(&self.asked, urls, self.seed)?
            }
            false => self.asked.workload(urls, self.seed, &body)?,
        };
        let description = Description {
            urls,
            asked: &self.asked,
            expect: &self.expect,
            reach: &self.reach,
            has_script: self.script.is_given(),
            handshake_timeout_ns: self.timeout,
        };
        let mut plan = description.plan(workload, self.entity.target_path(urls))?;
        let is_ab = self.print.has_ab_text() && self.compatible.compares_lengths();
        if is_ab && plan.validation.body == BodyCheck::Ignore {
            plan.validation.body = BodyCheck::Length;
        }
        Ok(plan)
    }

    /// How connections are used.
    fn plan(&self, requests: &RequestPlan) -> ConnectionPlan {
        let mut plan = self.opening.plan(requests.addresses);
        plan.requests_max = requests.requests_per_connection.or(plan.requests_max);
        plan
    }

    /// With a number of requests alone there is no time limit, as in ab; with neither, wrk's ten
    /// seconds; a trace ends by itself.
    fn stop(&self) -> Stop {
        let duration_ns = match (self.duration, self.requests) {
            (None, None) if !self.arrivals.is_trace() => Some(DURATION_NS_DEFAULT),
            (given, _) => given,
        };
        Stop {
            duration_ns,
            requests: self.requests,
        }
    }
}

impl LoadFlags {
    /// Puts what other programs call things in the places of our own names.
    fn translate(&mut self) -> Result<(), Failure> {
        let is_ab = self.print.has_ab_text();
        let timeout = self.compatible.translate(is_ab, &mut self.asked)?;
        self.compatible
            .check(self.pipeline)
            .map_err(Failure::usage)?;
        self.timeout = timeout.unwrap_or(self.timeout);
        let style = self.compatible.ab_style();
        self.print.set_up(self.arrivals.has_rate(), style);
        self.asked.header.extend(self.compatible.fields());
        let cookies = self.cookies.field(&self.asked.header)?;
        self.asked.header.extend(cookies);
        let authorization = self.asked.authorization(&self.url)?;
        self.asked.header.extend(authorization);
        Ok(())
    }

    /// The script, ready to run, if one is given.
    fn load_script(
        &self,
        config: &LoadConfig,
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<LoadedScript>, Failure> {
        let url = self.url.first().map_or("", String::as_str);
        let script = self
            .script
            .config(url, &self.asked, &config.workload, &self.script_args)?;
        script
            .map(|script| load_script(&script, config, stop))
            .transpose()
    }

    pub(super) fn run(mut self) -> Result<Exit, Failure> {
        self.translate()?;
        let config = self.config()?;
        millpond_io::raise_descriptor_limit();
        let url = self.asked.shown_url(&self.url);
        if let Some(slo) = self.search.find_max.clone() {
            let wishes = SearchOptions {
                first_per_s: self.arrivals.first_per_s()?,
                spacing: self.arrivals.spacing(),
                seed: self.seed,
                step_ns: self.duration,
                json: self.print.json().cloned(),
                url,
            };
            return self.search.run(slo.of(self.slo_of), config, wishes);
        }
        let stop = interrupt_flag()?;
        let mut script = self.load_script(&config, &stop)?;
        let expected_ns = config.stop.duration_ns.unwrap_or_default();
        let (threads, connections) = (config.threads as u32, config.connections as u32);
        let header = wrk::header(&url, expected_ns, threads, connections);
        if expected_ns > 0 && self.print.has_header() {
            output::print(header.clone())?;
        }
        let title = format!("{url} over {connections} connections");
        let watcher = self.watch.watcher(title, self.print.streams()?);
        let results = Results {
            print: &self.print,
            url: url.clone(),
            header: &header,
        };
        let record = match &mut script {
            None => run_observed(&config, &watcher, &stop),
            Some(loaded) => {
                let (watcher, results) = (&watcher, &results);
                let watcher = ScriptWatcher { watcher, results };
                run_script(&config, &mut loaded.script, &watcher, &stop)
            }
        };
        let streams = watcher.finish();
        let record = match (record, self.print.tool()) {
            (Err(error), Some(Tool::Ab)) => return exit_of_ab(&error, &url),
            (record, _) => record.map_err(Failure::failed)?,
        };
        results.write(&record, streams)?;
        let is_script_right = script.is_none_or(|script| script.finish(&record));
        if let Some(sentence) = self.accuracy.missing(&record) {
            output::note(sentence);
        }
        let slo = self.slo.map(|slo| slo.of(self.slo_of));
        let outcomes = slo.map_or_else(Vec::new, |slo| judge(&slo, &record));
        if let Some(file) = &self.junit {
            file.write(&printing::suite(&record, &outcomes).render())?;
        }
        let is_slo_met = outcomes.iter().all(|outcome| outcome.is_met);
        let exit = match self.print.tool() {
            None => exit_of(&record, is_slo_met),
            Some(tool) => exit_as(tool, &record, is_slo_met),
        };
        Ok(match exit {
            // wrk ends at a script's first mistake; here the figures come first.
            Exit::Success if !is_script_right => Exit::Failed,
            exit => exit,
        })
    }
}

/// Judges a run by its objectives, and says how that went. Not among the results: those may be a table for another
/// program.
fn judge(slo: &Slo, record: &LoadRecord) -> Vec<SloOutcome> {
    let facts = facts_of(record);
    if facts.failed > 0 && slo.counts_failures_as_slow() {
        output::note(
            "objectives are about all requests, and each that failed counts as slower than any; \
             --slo-of successful leaves them out, as before",
        );
    }
    let outcomes = slo.judge(&facts);
    for SloOutcome {
        objective,
        measured,
        is_met,
    } in &outcomes
    {
        let word = if *is_met { "met" } else { "MISSED" };
        output::note(format!("{objective}: {measured}, {word}"));
    }
    outcomes
}

/// The library's sentence, with the flag instead of a setting of its name.
fn refused(error: &LoadError) -> Failure {
    let LoadError::Setting { name, problem } = error else {
        return Failure::usage(error);
    };
    let flags = LoadFlags::augment_args(clap::Command::new("load"));
    let is_flag = flags
        .get_arguments()
        .any(|arg| arg.get_long() == Some(*name));
    let dashes = if is_flag { "--" } else { "" };
    Failure::usage(format!("{dashes}{name}: {problem}"))
}

/// A record that is marked as wrong must not look like success to a script.
fn exit_of(record: &LoadRecord, is_slo_met: bool) -> Exit {
    match record.ended {
        Ended::Interrupted => Exit::Interrupted,
        Ended::TargetGone => {
            output::note("the target went away; the figures are those until then");
            Exit::Failed
        }
        Ended::Aborted => {
            output::note(format!(
                "aborted: {}",
                record.aborted.as_deref().unwrap_or_default()
            ));
            Exit::Aborted
        }
        Ended::Complete if record.requests == 0 && record.errors.total() > 0 => {
            let why = record.why_none_is_right();
            output::note(format!(
                "all {} requests failed; {}",
                record.errors.total(),
                why.as_deref().unwrap_or("the cause is not known")
            ));
            Exit::Failed
        }
        Ended::Complete if record.verdict.status == LoadStatus::Invalid => Exit::NotTrusted,
        Ended::Complete if !is_slo_met => Exit::SloMissed,
        Ended::Complete => Exit::Success,
    }
}

/// The exit status of the program whose text is printed: for wrk and ab every run that came to an end is a success,
/// whatever the responses. Results of our own flags are still reported, and the verdict on stderr.
fn exit_as(tool: Tool, record: &LoadRecord, is_slo_met: bool) -> Exit {
    let verdict = &record.verdict;
    if verdict.status != LoadStatus::Ok {
        let reasons = verdict.reasons.join("; ");
        output::note(format!("verdict: {} ({reasons})", verdict.status.label()));
    }
    match (record.ended, tool) {
        (Ended::Aborted, _) => Exit::Aborted,
        _ if !is_slo_met => Exit::SloMissed,
        // ab prints what it has, and fails.
        (Ended::Interrupted, Tool::Ab) => Exit::Failed,
        _ => Exit::Success,
    }
}

/// ab ends with the number of the error, of which a status holds the last eight bits.
fn exit_of_ab(error: &LoadError, url: &str) -> Result<Exit, Failure> {
    /// Of its runtime's own numbers that of a timeout.
    const TIMED_OUT: i32 = 70_007;
    let LoadError::Unreachable { cause, .. } = error else {
        return Err(Failure::failed(error));
    };
    let (sentence, number) = match cause {
        ConnectFailure::Refused(errno) => (errno.to_string(), errno.raw_os_error()),
        ConnectFailure::TimedOut { .. } => {
            ("The timeout specified has expired".to_owned(), TIMED_OUT)
        }
        ConnectFailure::Handshake(_) => return Err(Failure::failed(error)),
    };
    output::print(ab::banner(env!("CARGO_PKG_VERSION"), url))?;
    output::note(format!("apr_socket_connect: {sentence} ({number})"));
    Ok(Exit::Number(number.to_le_bytes()[0]))
}

#[cfg(test)]
#[path = "tests/load.rs"]
mod tests;
