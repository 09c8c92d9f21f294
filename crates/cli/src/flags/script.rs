//! The flags that concern wrk's Lua scripts.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use millpond_load::{LoadConfig, LoadRecord, Script, ScriptConfig, Workload};

use crate::output;
use crate::output::Exit;

use super::Failure;
use super::requests::RequestFlags;

/// A script that has not come back so long after an interruption is taken for one that loops.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often the interruption is checked.
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
    /// Calls `done()` and reports errors of the script. True: no error.
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
