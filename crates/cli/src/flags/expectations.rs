//! `--expect-...`: which responses are right.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use millpond_load::{
    BodyCheck, Checksum, CookiePlan, LoadConfig, LoadRecord, RequestPlan, Script, ScriptConfig,
    StatusSet, Validation, Workload,
};

use crate::output;
use crate::output::Exit;

use super::requests::RequestFlags;
use super::{Failure, parse_bytes};

/// The flags of what responses have to be.
#[derive(Args, Debug)]
#[command(next_help_heading = "Responses (a wrong one is an error, counted by what is wrong)")]
pub(super) struct ExpectFlags {
    /// Statuses that are right, single or from-to: 200,404 or 200-299
    /// [default: below 400; of --put, --get and mixes those of the entity API]
    #[arg(long, value_name = "STATUSES", value_parser = parse_statuses)]
    expect_status: Option<StatusSet>,
    /// Length of every body
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    expect_length: Option<u64>,
    /// SHA-256 of every body, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = Checksum::sha256, conflicts_with = "expect_body_crc32")]
    expect_body_sha256: Option<Checksum>,
    /// CRC-32 of every body, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = Checksum::crc32)]
    expect_body_crc32: Option<Checksum>,
    /// Every body is that of the first response, byte for byte
    #[arg(long)]
    expect_same_body: bool,
    /// The {key} of the request occurs in the body of its response
    #[arg(long)]
    expect_echo: bool,
}

impl ExpectFlags {
    /// The first of these flags that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            (self.expect_status.is_some(), "--expect-status"),
            (self.expect_length.is_some(), "--expect-length"),
            (self.expect_body_sha256.is_some(), "--expect-body-sha256"),
            (self.expect_body_crc32.is_some(), "--expect-body-crc32"),
            (self.expect_same_body, "--expect-same-body"),
            (self.expect_echo, "--expect-echo"),
        ];
        let given = given.iter().find(|(is_given, _)| *is_given);
        given.map(|(_, flag)| *flag)
    }

    /// Changes what responses of `plan` are held to.
    pub(super) fn apply(&self, plan: &mut RequestPlan) {
        self.change(&mut plan.validation);
        if let Workload::Mix(mix) = &mut plan.workload {
            for class in &mut mix.classes {
                self.change(&mut class.validation);
            }
        }
    }

    fn change(&self, validation: &mut Validation) {
        if let Some(statuses) = self.expect_status {
            validation.statuses = statuses;
        }
        if self.expect_same_body {
            validation.body = BodyCheck::Exact;
        }
        validation.length = self.expect_length;
        validation.checksum = self.expect_body_sha256.or(self.expect_body_crc32);
        validation.has_echo = self.expect_echo;
    }
}

fn parse_statuses(text: &str) -> Result<StatusSet, String> {
    let wrong =
        || format!("`{text}` is not a list of statuses from 200 to 599: 200,404 or 200-299");
    let code = |text: &str| {
        let code = text
            .parse::<u16>()
            .ok()
            .filter(|code| (200..600).contains(code));
        code.ok_or_else(wrong)
    };
    let mut codes = Vec::new();
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) if code(first)? <= code(last)? => {
                codes.extend(code(first)?..=code(last)?);
            }
            Some(_) => return Err(wrong()),
            None => codes.push(code(part)?),
        }
    }
    Ok(StatusSet::of(&codes))
}

// The flags of `millpond load` that concern cookies.

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct CookieFlags {
    /// Each connection is a user: it keeps the cookies that the server sets, and sends them back
    /// where their path fits, until they expire. The next connection in its place has them too
    #[arg(long, conflicts_with_all = ["script", "find_max"])]
    cookies: bool,
    /// A cookie to send, as ab's -C; may be given several times. With --cookies each user begins
    /// with it, and the server may change it
    #[arg(short = 'C', long, value_name = "NAME=VALUE", value_parser = parse_cookie,
        conflicts_with = "script")]
    cookie: Vec<(String, String)>,
}

/// A pair that a Cookie field can carry.
fn parse_cookie(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    let is_plain = |text: &str| {
        text.bytes()
            .all(|byte| byte > b' ' && byte != 0x7f && byte != b';')
    };
    if name.is_empty() || !is_plain(name) || !is_plain(value) {
        return Err("neither name nor value holds blanks, semicolons or control characters".into());
    }
    Ok((name.to_owned(), value.to_owned()))
}

impl CookieFlags {
    /// What users begin with, if there are any.
    pub(super) fn plan(&self) -> Option<CookiePlan> {
        let given = self.cookie.clone();
        self.cookies.then_some(CookiePlan { given })
    }

    /// The field of requests whose cookies stay as they are; `fields` are the others.
    pub(super) fn field(
        &self,
        fields: &[(String, String)],
    ) -> Result<Option<(String, String)>, Failure> {
        let is_given = self.cookies || !self.cookie.is_empty();
        let is_twice = |(name, _): &(String, String)| name.eq_ignore_ascii_case("cookie");
        if is_given && fields.iter().any(is_twice) {
            return Err(Failure::usage(
                "a request has one Cookie field: give its cookies with --cookie NAME=VALUE and \
                 leave -H Cookie out",
            ));
        }
        if self.cookies || self.cookie.is_empty() {
            return Ok(None);
        }
        let pairs = self.cookie.iter();
        let pairs: Vec<_> = pairs
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        Ok(Some(("Cookie".to_owned(), pairs.join("; "))))
    }
}

// The flags that concern wrk's Lua scripts.

/// A script that has not come back so long after an interruption is taken for one that loops.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the interruption is looked for.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Args, Debug)]
#[command(next_help_heading = "Scripts")]
pub(super) struct ScriptFlags {
    /// A Lua script of wrk's: setup, init, delay, request, response and done are called as wrk
    /// calls them. --method, --header and --body are what it finds in its table `wrk`
    #[arg(short, long, value_name = "FILE", conflicts_with_all = [
        "urls", "body_size", "template_file", "no_templates", "keys", "key_distribution", "expect_echo"])]
    script: Option<PathBuf>,
    /// Seed math.random of each thread, differently; without it all threads draw the same numbers,
    /// as in wrk
    #[arg(long, value_name = "N", requires = "script")]
    lua_seed: Option<u64>,
    /// A word for the script's init(args); repeatable
    #[arg(
        long,
        value_name = "ARG",
        requires = "script",
        allow_hyphen_values = true
    )]
    script_arg: Vec<String>,
}

impl ScriptFlags {
    pub(super) fn is_given(&self) -> bool {
        self.script.is_some()
    }

    /// The script, if one is given, with its text; it finds in its table what `asked` says of a request of `url`, whose
    /// body is in `workload`. `args`: words for it besides --script-arg.
    pub(super) fn config(
        &self,
        url: &str,
        asked: &RequestFlags,
        workload: &Workload,
        args: &[String],
    ) -> Result<Option<ScriptConfig>, Failure> {
        let Some(file) = &self.script else {
            return Ok(None);
        };
        Ok(Some(ScriptConfig {
            file: file.clone(),
            source: ScriptConfig::source_of(file).map_err(Failure::failed)?,
            url: url.to_owned(),
            args: self.script_arg.iter().chain(args).cloned().collect(),
            method: asked.method().as_str().to_owned(),
            fields: asked.header.clone(),
            body: asked.body_for_script(workload),
            seed: self.lua_seed,
        }))
    }
}

/// The script, ready to run. From here on an interruption ends the program even if the script never comes back.
pub(super) fn load_script(
    script: &ScriptConfig,
    config: &LoadConfig,
    stop: &Arc<AtomicBool>,
) -> Result<LoadedScript, Failure> {
    let stage = Arc::new(AtomicU8::new(Stage::Loading as u8));
    watch(Arc::clone(stop), Arc::clone(&stage))?;
    let script = Script::load(script, config).map_err(Failure::failed)?;
    stage.store(Stage::Running as u8, Ordering::Release);
    Ok(LoadedScript { script, stage })
}

/// What the script is asked to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Stage {
    /// `setup`, `init` and its first request.
    Loading,
    /// Requests and responses: the run itself ends if threads do not come back.
    Running,
    /// `done`.
    Finishing,
    Ended,
}

/// Ends the program when it was interrupted and does not end by itself, while no run watches.
fn watch(stop: Arc<AtomicBool>, stage: Arc<AtomicU8>) -> Result<(), Failure> {
    let is_in = move |one: Stage| stage.load(Ordering::Acquire) == one as u8;
    let body = move || {
        let mut interrupted: Option<Instant> = None;
        while !is_in(Stage::Ended) {
            std::thread::sleep(LOOK);
            if !stop.load(Ordering::Acquire) || is_in(Stage::Running) {
                interrupted = None;
                continue;
            }
            if interrupted.get_or_insert_with(Instant::now).elapsed() < PATIENCE {
                continue;
            }
            let why =
                "did not come back after the interruption, perhaps from a loop without an end";
            if is_in(Stage::Finishing) {
                output::note(format!("done() {why}; all that was measured is above"));
            } else {
                output::note(format!("the script {why}; nothing was measured yet"));
            }
            output::leave(Exit::Interrupted);
        }
    };
    let started = std::thread::Builder::new()
        .name("script-watch".to_owned())
        .spawn(body);
    started
        .map(drop)
        .map_err(|error| Failure::failed(format!("the thread that watches the script: {error}")))
}

/// A script on its way through a run.
pub(super) struct LoadedScript {
    pub(super) script: Script,
    stage: Arc<AtomicU8>,
}

impl LoadedScript {
    /// Calls `done()` and tells what the script did wrong. True: nothing.
    pub(super) fn finish(self, record: &LoadRecord) -> bool {
        self.stage.store(Stage::Finishing as u8, Ordering::Release);
        let done = self.script.done(record);
        self.stage.store(Stage::Ended as u8, Ordering::Release);
        let errors = self.script.errors();
        if let Some(first) = &errors.first {
            let count = errors.count;
            let times = if count == 1 { "time" } else { "times" };
            output::note(format!("the script failed {count} {times}, first {first}"));
        }
        if let Err(problem) = &done {
            output::note(format!("the script failed {problem}"));
        }
        errors.count == 0 && done.is_ok()
    }
}

#[cfg(test)]
#[path = "tests/expectations.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/cookies.rs"]
mod cookies_tests;
