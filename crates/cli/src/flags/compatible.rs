//! Other load generators' names for things: flags of wrk, wrk2 and ab that have no other place.
//!
//! ab's flags that wrk has not, or has with another meaning, are for `--print ab`. ab's -t and -s are wrk's here.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use millpond_http::Method;
use millpond_measure::report::ab;

use crate::output::Failure;

use super::parse_duration_ns;
use super::requests::RequestFlags;

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
