//! `millpond load merge`: records of several generators as one.

use std::path::{Path, PathBuf};

use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use millpond_http::Method;
use millpond_load::{AbortRule, LoadRecord, WarmUp};
use millpond_measure::record::{LoadHistograms, LoadReport, LoadStatus};
use millpond_measure::report::{ab, hlog, wrk};
use millpond_measure::slo::{Slo, SloPopulation};

use crate::output::{Exit, Failure};

use super::load::LoadFlags;
use super::parse_duration_ns;
use super::printing::{Finished, PrintFlags};
use super::requests::RequestFlags;

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

/// Make one record of those of several generators that ran at the same time
///
/// Samples and counts are added, so the result is what one generator of all their threads and
/// connections would have recorded; it is judged anew. The window is the longest one.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond load merge one.json two.json
  millpond load merge *.json --print wrk2 -L --json all.json

Records of --json and --print json hold everything. Files of --print hlog and v2
hold the counts and the three clocks.")]
pub(crate) struct MergeFlags {
    /// Files of --json, --print json, hlog or v2
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    print: PrintFlags,
}

impl MergeFlags {
    fn run(self) -> Result<Exit, Failure> {
        if self.print.samples_max() > 0 {
            return Err(Failure::usage(
                "records hold no single requests: requests and ab-tsv (-g) are written by the run itself",
            ));
        }
        let reports = self.files.iter().map(|file| read(file));
        let reports = reports.collect::<Result<Vec<LoadReport>, _>>()?;
        let mut records = Vec::with_capacity(reports.len());
        for (report, file) in reports.iter().zip(&self.files) {
            let record = LoadRecord::from_report(report);
            records.push(record.map_err(|error| failed(file, &error.to_string()))?);
        }
        let record = LoadRecord::merged(records).map_err(Failure::failed)?;
        let report = LoadReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: urls(&reports),
            ..record.to_report()
        };
        let header = wrk::header(
            &report.url,
            report.duration_ns,
            report.threads,
            report.connections,
        );
        if self.print.has_header() {
            crate::output::print(&header)?;
        }
        let run = Finished {
            record: &record,
            report: &report,
        };
        let mut streams = self.print.streams()?;
        streams.whole(&run);
        streams.finish(&report)?;
        self.print.finish(&run, &header)?;
        Ok(match record.verdict.status {
            LoadStatus::Invalid => Exit::NotTrusted,
            LoadStatus::Ok | LoadStatus::Suspect => Exit::Success,
        })
    }
}

fn failed(file: &Path, problem: &str) -> Failure {
    Failure::failed(format!("{}: {problem}", file.display()))
}

fn read(file: &Path) -> Result<LoadReport, Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| failed(file, &format!("it cannot be read: {error}")))?;
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text)
            .map_err(|error| failed(file, &format!("it is no record of a run: {error}")));
    }
    let (report, [response, service, slip]) =
        hlog::read(&text).map_err(|error| failed(file, &error.to_string()))?;
    let histograms = LoadHistograms {
        response,
        service,
        slip,
        ..LoadHistograms::default()
    };
    Ok(LoadReport {
        histograms: Some(histograms),
        ..report
    })
}

/// The URLs, each once.
fn urls(reports: &[LoadReport]) -> String {
    let mut urls: Vec<&str> = Vec::new();
    for report in reports {
        if !urls.contains(&report.url.as_str()) {
            urls.push(&report.url);
        }
    }
    urls.join(" and ")
}

// How `millpond load` guards its own figures: stamps of the kernel, and an early end.

const SECOND_NS: u64 = 1_000_000_000;

/// The flags of accuracy.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accuracy")]
pub(super) struct AccuracyFlags {
    /// Have the kernel stamp a sample of the responses as they arrive, which tells a generator that
    /// woke late from a slow server. Only --driver epoll has stamps
    #[arg(long, value_name = "on|off", value_parser = parse_switch, default_value = "on",
        action = ArgAction::Set)]
    pub(super) receive_stamps: bool,
    /// Send for so long before requests count; --print ndjson shows it all the same. auto: until
    /// throughput and median response time no longer change, or for LIMIT [default limit: 30s]
    #[arg(long, value_name = "TIME|auto[:LIMIT]", value_parser = parse_warm_up)]
    warm_up: Option<WarmUp>,
    /// End the run early, with exit status 5, when one of these comes true over --abort-over:
    /// errors>5%, p99>1s, rate<100, written as the objectives of --slo; several with commas
    #[arg(long, value_name = "CONDITIONS", conflicts_with = "find_max")]
    abort: Option<Slo>,
    /// How much of the run is judged together by --abort, in whole seconds
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s",
        requires = "abort")]
    abort_over: u64,
}

/// When a warm-up ends that does not become steady.
const LIMIT_NS_DEFAULT: u64 = 30 * SECOND_NS;

fn parse_warm_up(text: &str) -> Result<WarmUp, String> {
    let Some(limit) = text.strip_prefix("auto") else {
        return parse_duration_ns(text).map(|duration_ns| WarmUp::Lasting { duration_ns });
    };
    let limit_ns = match limit.strip_prefix(':') {
        Some(limit) => parse_duration_ns(limit)?,
        None if limit.is_empty() => LIMIT_NS_DEFAULT,
        None => return Err("write a time, auto, or auto:LIMIT".to_owned()),
    };
    Ok(WarmUp::UntilSteady { limit_ns })
}

/// `on` or `off`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

impl AccuracyFlags {
    /// What comes before the window.
    pub(super) fn warm_up(&self) -> WarmUp {
        self.warm_up.unwrap_or(WarmUp::Lasting { duration_ns: 0 })
    }

    /// What ends the run early.
    pub(super) fn abort_rule(&self, population: SloPopulation) -> Option<AbortRule> {
        let seconds = self.abort_over.div_ceil(SECOND_NS) as usize;
        let rule = |when: &Slo| AbortRule {
            when: when.clone().of(population),
            seconds,
        };
        self.abort.as_ref().map(rule)
    }

    /// What a run could not do that was asked for, if anything.
    pub(super) fn missing(&self, record: &LoadRecord) -> Option<String> {
        let has_answers = record.requests > 0;
        (self.receive_stamps && has_answers && record.wake_delay.is_empty()).then(|| {
            let why = match record.driver {
                "epoll" => "this kernel or kind of connection gives none",
                _ => "receives of io_uring bring none; --driver epoll has them",
            };
            format!("no kernel stamps of responses ({why}): wake delay is unknown")
        })
    }
}

// What other load generators call things: flags of wrk, wrk2 and ab that have no other place.
//
// ab's flags that wrk has not, or has with another meaning, are for `--print ab`. ab's -t and -s are wrk's here.

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "As in wrk, wrk2 and ab")]
pub(super) struct CompatibleFlags {
    /// A connection for each request, with `Connection: close`: what ab does without -k. It is closed after the
    /// response, whatever the server does, as with -H 'Connection: close'
    #[arg(long, conflicts_with = "keepalive")]
    no_keepalive: bool,
    /// Keep connections open, as ab does with this; without --print ab it is done in any case
    #[arg(short = 'k', long)]
    keepalive: bool,
    /// Content-Type of the body, as ab's -T
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Print the latency of whole batches, as wrk2 does with this: from the start of the first of the
    /// requests that left together to the last response. The three clocks time each request as ever
    #[arg(short = 'B', long = "batch_latency", alias = "batch-latency")]
    pub(super) batch_latency: bool,
    /// With --print ab: POST the content of FILE, with -T as its type [default type: text/plain]
    #[arg(short = 'p', value_name = "FILE", conflicts_with_all = ["put_file", "head", "body"])]
    post_file: Option<PathBuf>,
    /// With --print ab: PUT the content of FILE, with -T as its type
    #[arg(short = 'u', value_name = "FILE", conflicts_with_all = ["head", "body"])]
    put_file: Option<PathBuf>,
    /// With --print ab: ask with HEAD
    #[arg(short = 'i', conflicts_with = "body")]
    head: bool,
    /// With --print ab the Content-Type of -p and -u, else as --timeout: each as in its program
    #[arg(short = 'T', value_name = "TYPE|TIME", conflicts_with = "content_type")]
    type_or_timeout: Option<String>,
    /// With --print ab: user name and password, as in a URL
    #[arg(short = 'A', value_name = "USER:PASSWORD")]
    user: Option<String>,
    /// With --print ab: bodies may differ in length; without, one of another length than the first has failed
    #[arg(short = 'l')]
    variable_length: bool,
    /// With --print ab: no lines of progress; none are printed in any case
    #[arg(short = 'q')]
    quiet: bool,
    /// With --print ab: go on after a connection broke; it is done in any case
    #[arg(short = 'r')]
    goes_on: bool,
    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
}

/// ab's type of a body that has none.
const BODY_TYPE_DEFAULT: &str = "text/plain";

impl CompatibleFlags {
    /// Header fields that these flags stand for.
    pub(super) fn fields(&self) -> Vec<(String, String)> {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let close = self.no_keepalive.then(|| field("Connection", "close"));
        let content_type = self.content_type.as_deref();
        let content_type = content_type.map(|value| field("Content-Type", value));
        close.into_iter().chain(content_type).collect()
    }

    /// Turns ab's flags into those of requests. Without `--print ab` there may be none of them but -T, which is wrk's
    /// timeout: that is returned.
    pub(super) fn translate(
        &mut self,
        is_ab: bool,
        asked: &mut RequestFlags,
    ) -> Result<Option<u64>, Failure> {
        if !is_ab {
            let given = [
                (self.post_file.is_some(), "-p"),
                (self.put_file.is_some(), "-u"),
                (self.head, "-i"),
                (self.user.is_some(), "-A"),
                (self.variable_length, "-l"),
                (self.quiet, "-q"),
                (self.goes_on, "-r"),
            ];
            if let Some((_, flag)) = given.iter().find(|(is_given, _)| *is_given) {
                return Err(Failure::usage(format!(
                    "{flag} is ab's: give --print ab with it"
                )));
            }
            let time = self.type_or_timeout.as_deref().map(parse_duration_ns);
            return time
                .transpose()
                .map_err(|problem| Failure::usage(format!("-T: {problem}")));
        }
        self.no_keepalive |= !self.keepalive;
        if let Some(user) = &self.user {
            asked.authorize(user).map_err(Failure::usage)?;
        }
        if self.head {
            asked.ask_with(Method::Head, None);
        }
        let files = [
            (Method::Post, &self.post_file),
            (Method::Put, &self.put_file),
        ];
        for (method, file) in files {
            if let Some(file) = file {
                asked.ask_with(method, Some(file));
                let content_type = self.type_or_timeout.take();
                self.content_type = content_type.or_else(|| Some(BODY_TYPE_DEFAULT.to_owned()));
            }
        }
        Ok(None)
    }

    /// Whether ab would count a body of another length than the first as a failed request.
    pub(super) const fn compares_lengths(&self) -> bool {
        !self.variable_length
    }

    /// What ab's text is like with these flags.
    pub(super) fn ab_style(&self) -> ab::Style {
        ab::Style {
            has_variable_length: self.variable_length,
            has_body: self.post_file.is_some() || self.put_file.is_some(),
        }
    }

    /// The last request on a connection cannot have others behind it.
    pub(super) fn check(&self, pipeline: u64) -> Result<(), String> {
        if self.no_keepalive && pipeline > 1 {
            return Err(
                "--no-keepalive closes after each request; leave --pipeline out".to_owned(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests/accuracy.rs"]
mod accuracy_tests;
