//! Outputs of `millpond load` that are written during the run: a line for each second, or three
//! histograms.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use millpond_load::{LoadRecord, Second};
use millpond_measure::record::{LoadReport, LoadSecond};
use millpond_measure::report::hlog;

use crate::output;
use crate::output::JsonFile;

use super::Failure;
use super::printing::Finished;

/// What its lines are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// A JSON object for each second, and one for the run at the end.
    Ndjson,
    /// HdrHistogram's interval log.
    Hlog,
}

/// One output.
#[derive(Debug)]
struct Stream {
    form: Form,
    /// `None`: stdout.
    file: Option<(File, JsonFile)>,
    /// The first thing that went wrong; nothing is written after it.
    failure: Option<Failure>,
}

impl Stream {
    fn write(&mut self, text: &str) {
        if self.failure.is_some() {
            return;
        }
        let written = match &mut self.file {
            None => output::print(text),
            Some((file, name)) => file
                .write_all(text.as_bytes())
                .map_err(|error| Failure::failed(format!("{name} cannot be written: {error}"))),
        };
        self.failure = written.err();
    }
}

/// All of one run.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    /// Begins one; an older file is gone then.
    pub(super) fn open(&mut self, form: Form, file: Option<&JsonFile>) -> Result<(), Failure> {
        let file = match file {
            None => None,
            Some(name) => Some((name.create()?, name.clone())),
        };
        let failure = None;
        self.0.push(Stream {
            form,
            file,
            failure,
        });
        Ok(())
    }

    /// Whether one of them is on stdout.
    pub(super) fn has_stdout(&self) -> bool {
        self.0.iter().any(|stream| stream.file.is_none())
    }

    /// Sending begins.
    pub(super) fn started(&mut self, at: SystemTime) {
        for stream in self.0.iter_mut().filter(|one| one.form == Form::Hlog) {
            stream.write(&hlog::header(env!("CARGO_PKG_VERSION"), at));
        }
    }

    /// A second is over.
    pub(super) fn second(&mut self, second: &Second<'_>) {
        let clocks = second.clocks;
        for stream in &mut self.0 {
            let text = match stream.form {
                Form::Ndjson => line_of(second.figures),
                Form::Hlog => {
                    let clocks = [&clocks.response, &clocks.service, &clocks.slip];
                    Ok(hlog::second(second.figures, clocks))
                }
            };
            match text {
                Ok(text) => stream.write(&text),
                Err(failure) => stream.failure = Some(failure),
            }
        }
    }

    /// A run that is over and has no seconds any more: an interval log holds it as one.
    pub(super) fn whole(&mut self, run: &Finished<'_>) {
        let LoadRecord {
            response,
            service,
            slip,
            ..
        } = run.record;
        let figures = LoadSecond {
            duration_ns: run.record.duration_ns,
            ..LoadSecond::default()
        };
        self.started(UNIX_EPOCH + Duration::from_nanos(run.record.started_unix_ns));
        for stream in self.0.iter_mut().filter(|one| one.form == Form::Hlog) {
            stream.write(&hlog::second(&figures, [response, service, slip]));
        }
    }

    /// The run is over: the last lines, and whatever went wrong before.
    pub(super) fn finish(mut self, report: &LoadReport) -> Result<(), Failure> {
        for stream in &mut self.0 {
            let text = match stream.form {
                Form::Ndjson => {
                    let summary = LoadReport {
                        histograms: None,
                        ..report.clone()
                    };
                    summary.to_line()
                }
                Form::Hlog => hlog::remark(report),
            };
            stream.write(&text.map_err(Failure::failed)?);
            if let Some(failure) = stream.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }
}

fn line_of(second: &LoadSecond) -> Result<String, Failure> {
    second.to_line().map_err(Failure::failed)
}
