//! One run: a server, calls that fail, and the judgement of what it did.

use super::kind::{Kind, excluded};
use super::strace::{Failing, calls_of_a_thread, counting, failing_once};
use super::subject::Program;
use crate::hostile::resources::server::{Launch, Server, Started, quoted, text_of};
use crate::hostile::resources::upstream::Upstream;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

/// Open files of the server: as many as usual.
const DESCRIPTORS_MAX: u64 = 1024;
/// Longest stop: the drain timeout, and what closing a store takes.
const STOP_MAX: Duration = Duration::from_secs(60);

const STDERR: &str = "stderr";
/// What a call is answered that strace had taken out of the kernel's hands when it let go of the server.
const DETACHED: &str = "Function not implemented";
const DETACHED_RUNS_MAX: usize = 5;
/// More failures than a server has threads: threads that are made anew fail as well, and the failure is not over.
const ENDLESS_MIN: usize = 40;

/// What a server did.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Course {
    WentOn,
    /// It said what failed, and did not start.
    Refused,
    /// It said what failed, and ended while it served; what it had acknowledged was there.
    Ended,
    /// A recovery that starts threads met the failure anew in each; what was acknowledged was there.
    Refusing,
    /// It ended as [`excluded`] says.
    Excluded(&'static str),
}

impl Course {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::WentOn => "went on",
            Self::Refused => "did not start",
            Self::Ended => "ended",
            Self::Refusing => "refused as long as calls failed",
            Self::Excluded(why) => why,
        }
    }
}

/// Where runs take place.
pub(super) struct Place<'a> {
    pub(super) program: Program,
    pub(super) driver: &'a str,
    pub(super) millpond: PathBuf,
    /// Emptied before each run.
    pub(super) directory: PathBuf,
    pub(super) upstream: &'a Upstream,
}

impl Place<'_> {
    /// The most calls of each kind that one thread makes where none fails.
    pub(super) fn count_calls(&self) -> Result<BTreeMap<String, u64>, String> {
        self.empty()?;
        let log = self.directory.join("strace");
        let mut server = self.start_working(counting(&log))?;
        let mut clients = self.program.clients(server.address);
        clients.insist(server.pid())?;
        self.check_stopped(server.stop(STOP_MAX)?, &server)?;
        let log =
            std::fs::read_to_string(&log).map_err(|error| format!("strace's log: {error}"))?;
        let counts = calls_of_a_thread(&log).into_iter();
        Ok(counts
            .map(|(call, count)| (call.to_owned(), count))
            .collect())
    }

    /// From its start on, the `number`-th such call of each thread fails.
    pub(super) fn fail_once(&self, kind: &Kind, number: u64) -> Result<Course, String> {
        self.empty()?;
        let behind = failing_once(&self.directory.join("strace"), kind, number);
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let launch = self.launch(behind, STDERR);
        let mut server = match Server::try_start(&launch, &words, None)? {
            Started::Ended(status) => {
                return self.judge_end((kind, Some(number)), status);
            }
            Started::Listens(server) => server,
        };
        let mut clients = self.program.clients(server.address);
        let served = clients.insist(server.pid());
        if let Some(status) = server.ended() {
            let course = self.judge_end((kind, None), status)?;
            drop(server);
            self.check_reopened(&mut clients)?;
            return Ok(course);
        }
        if served.is_err() && self.injected() > ENDLESS_MIN {
            server.kill();
            self.check_reopened(&mut clients)?;
            return Ok(Course::Refusing);
        }
        served.map_err(|sentence| format!("{sentence}; {}", server.said()))?;
        check_said(&server.said())?;
        // Half of the runs end in order, and half do not.
        let course = match number.is_multiple_of(2) {
            true => {
                server.kill();
                Course::WentOn
            }
            false => self.judge_stop(kind, &mut server)?,
        };
        self.check_reopened(&mut clients)?;
        Ok(course)
    }

    /// A server that serves meets nothing but failures of this kind for a while.
    pub(super) fn fail_always(&self, kind: &Kind) -> Result<Course, String> {
        for _ in 1..DETACHED_RUNS_MAX {
            let course = self.fail_for_a_while(kind);
            if !text_of(&self.directory.join(STDERR)).contains(DETACHED) {
                return course;
            }
        }
        self.fail_for_a_while(kind)
    }

    fn fail_for_a_while(&self, kind: &Kind) -> Result<Course, String> {
        self.empty()?;
        let mut server = self.start_working(Vec::new())?;
        let mut clients = self.program.clients(server.address);
        clients.insist(server.pid())?;
        let log = self.directory.join("strace");
        let failing = Failing::start(server.pid(), kind, &log)?;
        let tried = clients.try_all();
        failing.finish()?;
        let said = |server: &Server, sentence: String| format!("{sentence}; {}", server.said());
        tried.map_err(|sentence| said(&server, sentence))?;
        let served = clients.insist(server.pid());
        if let Some(status) = server.ended() {
            let course = self.judge_end((kind, None), status)?;
            drop(server);
            self.check_reopened(&mut clients)?;
            return Ok(course);
        }
        served.map_err(|sentence| said(&server, sentence))?;
        check_said(&server.said())?;
        server.kill();
        self.check_reopened(&mut clients)?;
        Ok(Course::WentOn)
    }

    /// Calls that strace made fail.
    fn injected(&self) -> usize {
        let log = text_of(&self.directory.join("strace"));
        log.matches("(INJECTED)").count()
    }

    fn words(&self) -> Vec<String> {
        self.program
            .words(&self.directory, self.upstream, self.driver)
    }

    fn launch(&self, behind: Vec<String>, stderr: &str) -> Launch {
        Launch {
            millpond: self.millpond.clone(),
            descriptors_max: DESCRIPTORS_MAX,
            behind,
            stderr: self.directory.join(stderr),
            has_metrics_listener: false,
        }
    }

    fn start_working(&self, behind: Vec<String>) -> Result<Server, String> {
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Server::start(&self.launch(behind, STDERR), &words)
    }

    fn empty(&self) -> Result<(), String> {
        let directory = &self.directory;
        let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        std::fs::create_dir_all(directory).map_err(failed)?;
        self.program.prepare(directory)
    }

    /// A server that ended by itself has said why, and not by a panic. `number`: of the call that failed, if it did not
    /// listen.
    fn judge_end(
        &self,
        (kind, number): (&Kind, Option<u64>),
        status: ExitStatus,
    ) -> Result<Course, String> {
        let stderr = self.directory.join(STDERR);
        let (said, quoted) = (text_of(&stderr), quoted(&stderr));
        if let Some(why) = excluded(kind, number, &said) {
            return match status.success() {
                true => Err(format!("it ended with status 0: {quoted}")),
                false => Ok(Course::Excluded(why)),
            };
        }
        check_said(&said)?;
        if !kind.is_named_in(&said, self.program) {
            return Err(format!(
                "it ended with {status}, and does not say what failed: {quoted}"
            ));
        }
        match (status.code(), number) {
            (None | Some(0), _) => Err(format!("it ended with {status}: {quoted}")),
            (Some(_), Some(_)) => Ok(Course::Refused),
            (Some(_), None) => {
                println!(
                    "ended while it served: {}",
                    said.lines().last().unwrap_or_default()
                );
                Ok(Course::Ended)
            }
        }
    }

    /// A stop in order, or one that says what failed meanwhile.
    fn judge_stop(&self, kind: &Kind, server: &mut Server) -> Result<Course, String> {
        let status = server.stop(STOP_MAX)?;
        match status.success() {
            true => Ok(Course::WentOn),
            false => self.judge_end((kind, None), status),
        }
    }

    fn check_stopped(&self, status: ExitStatus, server: &Server) -> Result<(), String> {
        match status.success() {
            true => Ok(()),
            false => Err(format!(
                "a server without failures ended with {status}: {}",
                server.said()
            )),
        }
    }

    /// What was acknowledged is there after another start, in which nothing fails.
    fn check_reopened(&self, clients: &mut super::subject::Clients) -> Result<(), String> {
        if self.program != Program::Entity {
            return Ok(());
        }
        let words = self.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let server = Server::start(&self.launch(Vec::new(), "stderr-again"), &words)?;
        clients.move_to(server.address);
        clients
            .wait_right(server.pid())
            .map_err(|sentence| format!("after another start: {sentence}; {}", server.said()))
    }
}

fn check_said(said: &str) -> Result<(), String> {
    match said.contains("panicked at") || said.contains("RUST_BACKTRACE") {
        true => Err(format!("it panicked: {said}")),
        false => Ok(()),
    }
}
