//! The outputs of `millpond load`: wrk's text, wrk2's, tables, records; on the terminal or in
//! files, several at once.

use std::time::SystemTime;

use clap::Args;
use millpond_load::{
    Connecting, Ended, LoadRecord, Observer, Progress, RequestSample, SAMPLES_MAX, Second,
};
use millpond_measure::record::{LoadReport, LoadStatus};
use millpond_measure::report::junit::{Case, Outcome, Suite};
use millpond_measure::report::{ab, csv, hlog, html, wrk};
use millpond_measure::slo::SloOutcome;

use crate::output;
use crate::output::{Exit, JsonFile};

use super::Failure;
use super::streams::{Form, Streams};
use super::watcher::Watcher;

/// The flags of what is printed and written.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct PrintFlags {
    /// What to print, or to write to FILE; may be given several times: wrk, wrk2, ab (their texts alone, and on stdout
    /// their exit status too), ab-csv, ab-tsv, json, csv, requests (a line each), hgrm (percentiles for HdrHistogram's plotter), v2 (its
    /// compressed histograms), and while the run goes on ndjson (a line each second) and hlog
    /// (HdrHistogram's interval log) [default: wrk's text, or wrk2's with -U or with --rate and -L, and below it the
    /// three clocks and the verdict]
    #[arg(long, value_name = "FORMAT[=FILE]", value_parser = Print::parse)]
    print: Vec<Print>,
    /// Print the whole spectrum of latencies
    #[arg(short = 'L', long)]
    latency: bool,
    /// Print the spectrum from the actual send too, in wrk2's format
    #[arg(short = 'U', long = "u_latency", alias = "u-latency")]
    uncorrected: bool,
    /// Write the record of the run to FILE: as --print json=FILE. - is stdout, and without --print nothing else
    /// stands there
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    json: Option<JsonFile>,
    /// Write the time within which each percentage was served, as ab does: as --print ab-csv=FILE
    #[arg(short = 'e', value_name = "FILE", value_parser = JsonFile::parse)]
    percentages: Option<JsonFile>,
    /// Write a line for each request for gnuplot, as ab does: as --print ab-tsv=FILE. The first four
    /// million are kept
    #[arg(short = 'g', value_name = "FILE", value_parser = JsonFile::parse)]
    gnuplot: Option<JsonFile>,
    /// Write a page for the browser to FILE: percentiles, the course of the run, verdict, settings
    #[arg(long, value_name = "FILE.html", value_parser = JsonFile::parse)]
    report: Option<JsonFile>,
    /// Draw the distribution of response times below the text, in ASCII
    #[arg(long, conflicts_with = "print")]
    histogram: bool,
    /// Requests leave at a rate: without --print it is wrk2 that is run so, and not wrk.
    #[arg(skip)]
    has_rate: bool,
    /// What ab's flags make of its text.
    #[arg(skip)]
    ab_style: ab::Style,
}

/// A program whose text is printed by its name, to the end as that program does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tool {
    Wrk,
    Ab,
}

/// The formats.
const NAMES: &str = "wrk, wrk2, ab, ab-csv, ab-tsv, json, csv, requests, hgrm, v2, ndjson or hlog";

/// One output.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Print {
    format: Format,
    file: Option<JsonFile>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Wrk,
    Wrk2,
    Json,
    Csv,
    /// The percentiles that HdrHistogram's plotter reads.
    Hgrm,
    /// ab's text.
    Ab,
    /// ab's table of percentages.
    AbCsv,
    /// ab's table of requests.
    AbTsv,
    /// A row of each request.
    Requests,
    /// Compressed histograms.
    V2,
    /// What grows with the run.
    Stream(Form),
}

impl Print {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, file) = match text.split_once('=') {
            Some((name, file)) => (name, Some(JsonFile::parse(file)?)),
            None => (text, None),
        };
        let format = match name {
            "wrk" => Format::Wrk,
            "wrk2" => Format::Wrk2,
            "json" => Format::Json,
            "csv" => Format::Csv,
            "hgrm" => Format::Hgrm,
            "ab" => Format::Ab,
            "ab-csv" => Format::AbCsv,
            "ab-tsv" => Format::AbTsv,
            "requests" => Format::Requests,
            "v2" => Format::V2,
            "ndjson" => Format::Stream(Form::Ndjson),
            "hlog" => Format::Stream(Form::Hlog),
            _ => return Err(format!("it is {NAMES}, or one with =FILE")),
        };
        Ok(Self { format, file })
    }

    /// Texts for people begin before the run does.
    const fn is_for_people(&self) -> bool {
        matches!(self.format, Format::Wrk | Format::Wrk2) && self.file.is_none()
    }
}

/// A run that is over.
pub(super) struct Finished<'a> {
    pub(super) record: &'a LoadRecord,
    pub(super) report: &'a LoadReport,
}

impl PrintFlags {
    /// Which program's text is asked for by name on stdout.
    pub(super) fn tool(&self) -> Option<Tool> {
        let mut shown = self.print.iter().filter(|one| one.file.is_none());
        shown.find_map(|one| match one.format {
            Format::Wrk | Format::Wrk2 => Some(Tool::Wrk),
            Format::Ab => Some(Tool::Ab),
            _ => None,
        })
    }

    /// Whether any output is ab's text.
    pub(super) fn has_ab_text(&self) -> bool {
        self.print.iter().any(|one| one.format == Format::Ab)
    }

    /// What other flags say about the texts.
    pub(super) fn set_up(&mut self, has_rate: bool, ab_style: ab::Style) {
        (self.has_rate, self.ab_style) = (has_rate, ab_style);
    }

    /// Whether wrk's first lines are wanted on the terminal before the run. wrk itself prints none of a target that it
    /// cannot reach, so asked for by name they come with the results.
    pub(super) fn has_header(&self) -> bool {
        self.print.is_empty() && self.outputs().iter().any(Print::is_for_people)
    }

    /// Begins the outputs that grow with the run.
    pub(super) fn streams(&self) -> Result<Streams, Failure> {
        let mut streams = Streams::default();
        for one in self.outputs() {
            if let Format::Stream(form) = one.format {
                streams.open(form, one.file.as_ref())?;
            }
        }
        Ok(streams)
    }

    /// How many requests have to be kept one by one.
    pub(super) fn samples_max(&self) -> usize {
        let outputs = self.outputs();
        let wants_them = |one: &Print| matches!(one.format, Format::AbTsv | Format::Requests);
        if outputs.iter().any(wants_them) {
            SAMPLES_MAX
        } else {
            0
        }
    }

    /// Where `--json` wants a record.
    pub(super) fn json(&self) -> Option<&JsonFile> {
        self.json.as_ref()
    }

    fn outputs(&self) -> Vec<Print> {
        let mut outputs = self.print.clone();
        let json_is_shown = self.json.as_ref().is_some_and(JsonFile::is_stdout);
        if outputs.is_empty() && !json_is_shown {
            let format = if self.uncorrected || self.has_rate && self.latency {
                Format::Wrk2
            } else {
                Format::Wrk
            };
            outputs.push(Print { format, file: None });
        }
        let files = [
            (Format::Json, &self.json),
            (Format::AbCsv, &self.percentages),
            (Format::AbTsv, &self.gnuplot),
        ];
        let files = files.into_iter().filter_map(|(format, file)| {
            let file = file.clone()?;
            let file = (!file.is_stdout()).then_some(file);
            Some(Print { format, file })
        });
        outputs.extend(files);
        outputs
    }

    /// Prints and writes everything that was asked for. `header` goes before wrk's text in a file.
    pub(super) fn finish(&self, run: &Finished<'_>, header: &str) -> Result<(), Failure> {
        for one in self.outputs() {
            let Some(text) = self.text(one.format, run)? else {
                continue;
            };
            let is_wrk = matches!(one.format, Format::Wrk | Format::Wrk2);
            let text = match is_wrk && !self.print.is_empty() {
                true => format!("{header}{text}"),
                false => text,
            };
            match &one.file {
                None => output::print(text)?,
                Some(file) => file.write(&text)?,
            }
        }
        if let Some(file) = &self.report {
            file.write(&html::render_load(&html::LoadPage {
                report: run.report,
                response: &run.record.response,
                service: &run.record.service,
                slip: &run.record.slip,
                seconds: &run.record.seconds,
            }))?;
        }
        Ok(())
    }

    /// The text of a format that is written at the end.
    fn text(&self, format: Format, run: &Finished<'_>) -> Result<Option<String>, Failure> {
        let slip = &run.record.slip;
        // Other programs count wrong responses as they do right ones.
        let (response, service) = (run.record.all_response(), run.record.all_service());
        let (response, service) = (&*response, &*service);
        // In a closed loop nothing is intended: both clocks are one.
        let is_open_loop = run.record.arrivals.is_some();
        let latency = if is_open_loop { response } else { service };
        let batches = &run.record.batches;
        // wrk2's -B: what its and wrk's texts call latency is that of batches then.
        let (batch_response, batch_service) = if batches.response.is_empty() {
            (response, service)
        } else {
            (&batches.response, &batches.service)
        };
        let batch_latency = if is_open_loop {
            batch_response
        } else {
            batch_service
        };
        let rates = run.record.thread_rates.sample_summary();
        // Asked for by name it is that program's text and nothing else.
        let clocks = match self.print.is_empty() {
            true if self.histogram => {
                wrk::clocks(run.report) + &wrk::bars_text("response times", response)
            }
            true => wrk::clocks(run.report),
            false => String::new(),
        };
        Ok(Some(match format {
            Format::Stream(_) => return Ok(None),
            Format::Wrk => wrk::results(run.report, batch_latency, &rates, self.latency) + &clocks,
            Format::Wrk2 => {
                let blocks = wrk::Blocks {
                    recorded: self.latency,
                    uncorrected: self.uncorrected,
                };
                wrk::wrk2_results(run.report, batch_response, batch_service, &rates, blocks)
                    + &clocks
            }
            Format::Json => run.report.to_json().map_err(Failure::failed)?,
            Format::Csv => csv::text(run.report),
            Format::Hgrm => wrk::spectrum_text(latency),
            Format::Ab => ab::text(run.report, &ab_times(run.record), self.ab_style),
            Format::AbCsv => ab::csv(&run.record.total),
            Format::AbTsv => ab::request_table(kept(run.record).iter().map(ab_row_of).collect()),
            Format::Requests => csv::requests_text(kept(run.record).iter().map(row_of).collect()),
            Format::V2 => {
                let clocks = [&run.record.response, &run.record.service, slip];
                hlog::compressed(run.report, clocks).map_err(Failure::failed)?
            }
        }))
    }
}

/// The single requests; says how many are missing.
fn kept(record: &LoadRecord) -> &[RequestSample] {
    let samples = &record.samples;
    if samples.dropped > 0 {
        output::note(format!(
            "{} requests beyond the first {SAMPLES_MAX} are not in the table of requests",
            samples.dropped
        ));
    }
    &samples.kept
}

/// ab's clock begins with connecting, if that was for this request.
fn ab_row_of(sample: &RequestSample) -> ab::RequestRow {
    let started_ns = sample.written_ns.saturating_sub(sample.connect_ns);
    ab::RequestRow {
        started_unix_s: started_ns / 1_000_000_000,
        connect_us: sample.connect_ns / 1_000,
        waiting_us: sample.waiting_ns / 1_000,
        total_us: (sample.connect_ns + sample.service_ns) / 1_000,
    }
}

fn row_of(sample: &RequestSample) -> csv::Row {
    csv::Row {
        written_unix_ns: sample.written_ns,
        slip_ns: sample.slip_ns,
        connect_ns: sample.connect_ns,
        waiting_ns: sample.waiting_ns,
        service_ns: sample.service_ns,
        kernel_service_ns: sample.kernel_service_ns,
    }
}

fn ab_times(record: &LoadRecord) -> ab::Times<'_> {
    ab::Times {
        connect: &record.connect,
        processing: &record.service,
        waiting: &record.waiting,
        total: &record.total,
    }
}

// The end of a run of `millpond load`: its record in every form that was asked for, and the run that
// cannot end by itself because its script does not.

/// Where results go.
#[derive(Debug)]
pub(super) struct Results<'a> {
    pub(super) print: &'a PrintFlags,
    pub(super) url: String,
    /// wrk's first lines.
    pub(super) header: &'a str,
}

impl Results<'_> {
    /// Prints and writes all of it.
    pub(super) fn write(&self, record: &LoadRecord, streams: Streams) -> Result<(), Failure> {
        let report = LoadReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: self.url.clone(),
            ..record.to_report()
        };
        streams.finish(&report)?;
        let finished = Finished {
            record,
            report: &report,
        };
        self.print.finish(&finished, self.header)
    }
}

/// The watcher of a run with a script.
#[derive(Debug)]
pub(super) struct ScriptWatcher<'a> {
    pub(super) watcher: &'a Watcher,
    pub(super) results: &'a Results<'a>,
}

impl Observer for ScriptWatcher<'_> {
    fn started(&self, at: SystemTime) {
        self.watcher.started(at);
    }

    fn connecting(&self, now: &Connecting) {
        self.watcher.connecting(now);
    }

    fn progress(&self, now: &Progress) {
        self.watcher.progress(now);
    }

    fn second(&self, second: &Second<'_>) {
        self.watcher.second(second);
    }

    /// Threads that never end would keep the process: it ends from here.
    fn stuck(&self, record: &LoadRecord) {
        let written = self.results.write(record, self.watcher.finish());
        if let Err(Failure::Usage(problem) | Failure::Failed(problem)) = written {
            output::note(problem);
        }
        output::note(format!(
            "the script did not come back in {} of {} threads, perhaps from a loop without an end; what \
             those measured in their last second is missing, and done() was not called",
            record.stuck_threads, record.threads
        ));
        output::leave(match record.ended {
            Ended::Interrupted => Exit::Interrupted,
            _ => Exit::Failed,
        });
    }
}

// A load run as cases of JUnit: the run itself, whether it can be trusted, and each objective.

/// What CI shows of a run. Objectives of an invalid run are reported unchanged, beside the error
/// that says so.
pub(super) fn suite(record: &LoadRecord, objectives: &[SloOutcome]) -> Suite {
    let case = |name: &str, outcome| Case {
        name: name.to_owned(),
        outcome,
    };
    let cases = [
        case("the run is complete", complete(record)),
        case("the measurement can be trusted", trusted(record)),
    ];
    Suite {
        name: "millpond load".to_owned(),
        duration_ns: record.duration_ns,
        cases: cases
            .into_iter()
            .chain(objectives.iter().map(Case::of_objective))
            .collect(),
    }
}

fn complete(record: &LoadRecord) -> Outcome {
    let (answered, failed) = (record.requests, record.errors.total());
    let figures = format!("{answered} requests succeeded, {failed} failed");
    match record.ended {
        Ended::Complete if answered == 0 && failed > 0 => Outcome::Failed(figures),
        Ended::Complete => Outcome::Passed(figures),
        Ended::Interrupted => Outcome::Error(format!("interrupted; {figures}")),
        Ended::TargetGone => Outcome::Failed(format!("the target went away; {figures}")),
        Ended::Aborted => {
            let condition = record.aborted.as_deref().unwrap_or_default();
            Outcome::Failed(format!("aborted: {condition}; {figures}"))
        }
    }
}

fn trusted(record: &LoadRecord) -> Outcome {
    let reasons = record.verdict.reasons.join("; ");
    match record.verdict.status {
        LoadStatus::Ok => Outcome::Passed("OK".to_owned()),
        LoadStatus::Suspect => Outcome::Passed(format!("with care: {reasons}")),
        LoadStatus::Invalid => Outcome::Error(reasons),
    }
}

#[cfg(test)]
#[path = "tests/printing.rs"]
mod tests;
