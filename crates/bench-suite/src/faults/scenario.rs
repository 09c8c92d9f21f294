//! One run: a server, calls that fail, and the judgement of what it did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::hostile::resources::client::Client;
use crate::hostile::resources::server::{
    AT_ONCE, Launch, Server, Started, Upstream, quoted, text_of,
};
use crate::hostile::resources::writer::{Writer, Writing};

use super::{Failing, Kind, calls_of_a_thread, counting, excluded, failing_once};

/// Open files of the server: as many as usual.
const DESCRIPTORS_MAX: u64 = 1024;
/// Longest stop: the drain timeout, and what closing a store takes.
const STOP_MAX: Duration = Duration::from_secs(60);

const STDERR: &str = "stderr";
/// The result of a call that strace had taken out of the kernel's hands when it detached from the server.
const DETACHED: &str = "Function not implemented";
const DETACHED_RUNS_MAX: usize = 5;
/// More failures than a server has threads: threads that are made anew fail as well, and the failure is not over.
const ENDLESS_MIN: usize = 40;

/// The result of a server.
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
pub(super) struct RunContext<'a> {
    pub(super) program: Program,
    pub(super) driver: &'a str,
    pub(super) millpond: PathBuf,
    /// Emptied before each run.
    pub(super) directory: PathBuf,
    pub(super) upstream: &'a Upstream,
}

impl RunContext<'_> {
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

    /// Acknowledged writes are there after another start, in which nothing fails.
    fn check_reopened(&self, clients: &mut Clients) -> Result<(), String> {
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

// The servers, and what is asked of them while calls fail: is each response right, or a refusal?

/// Longest wait for a byte: a request that hangs is a failure, a server that recovers has this long.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The same while calls fail: where no connection is accepted, no request gets a response.
const TRIAL_ANSWER_MAX: Duration = Duration::from_secs(1);
/// Until the server does again what it did, once nothing fails any more.
const RECOVERY_MAX: Duration = Duration::from_secs(30);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Program {
    Entity,
    Files,
    Proxy,
}

/// Small values, and so many large ones that the smallest memtable is written to a table.
const SMALL: Writing = Writing {
    prefix: "small",
    value_bytes: 100,
    keys: 10,
    reconnects: true,
};
const LARGE: Writing = Writing {
    prefix: "large",
    value_bytes: 250_000,
    keys: 16,
    reconnects: false,
};
const FILE_NAMES: [&str; 3] = ["index.html", "small", "large"];

fn file_bytes(name: &str) -> Vec<u8> {
    let length = if name == "large" { 1 << 20 } else { 2000 };
    name.bytes().cycle().take(length).collect()
}

/// A server's clients, and the responses they got.
pub(super) struct Clients {
    program: Program,
    address: SocketAddr,
    /// Longest wait for a byte.
    wait_max: Duration,
    small: Writer,
    large: Writer,
}

impl Program {
    pub(super) const ALL: [Self; 3] = [Self::Entity, Self::Files, Self::Proxy];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Entity => "entity",
            Self::Files => "files",
            Self::Proxy => "proxy",
        }
    }

    /// Makes what the server needs in an empty directory.
    pub(super) fn prepare(self, directory: &Path) -> Result<(), String> {
        if self == Self::Files {
            for name in FILE_NAMES {
                let path = directory.join("site").join(name);
                let write = || {
                    std::fs::create_dir_all(directory.join("site"))?;
                    std::fs::write(&path, file_bytes(name))
                };
                write().map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        Ok(())
    }

    /// The words that start it.
    pub(super) fn words(self, directory: &Path, upstream: &Upstream, driver: &str) -> Vec<String> {
        let path = |name: &str| directory.join(name).display().to_string();
        let upstream = upstream.address.to_string();
        let words = match self {
            Self::Entity => {
                let memory = ["--memory", "16MiB", "--disk-reserve", "16MiB"];
                [&["serve", "entity"], &memory[..], &["--data"]].concat()
            }
            // Without a cache every response opens a file.
            Self::Files => vec!["serve", "files", "--cache", "0"],
            Self::Proxy => vec!["proxy", "--eject-after", "0", "--upstream"],
        };
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words.push(match self {
            Self::Entity => path("data"),
            Self::Files => path("site"),
            Self::Proxy => upstream,
        });
        words.extend(["--driver".to_owned(), driver.to_owned()]);
        words
    }

    pub(super) fn clients(self, address: SocketAddr) -> Clients {
        let client = || Client::with_wait(address, ANSWER_MAX);
        Clients {
            program: self,
            address,
            wait_max: ANSWER_MAX,
            small: Writer::over(client(), SMALL),
            large: Writer::over(client(), LARGE),
        }
    }
}

impl Clients {
    /// Asks for a while, whatever becomes of it: only wrong responses are errors.
    pub(super) fn try_all(&mut self) -> Result<(), String> {
        self.reconnect(TRIAL_ANSWER_MAX);
        let tried = self.try_each();
        self.reconnect(ANSWER_MAX);
        tried
    }

    fn reconnect(&mut self, wait_max: Duration) {
        self.wait_max = wait_max;
        self.small.move_to(self.reading());
        self.large.move_to(self.reading());
    }

    fn try_each(&mut self) -> Result<(), String> {
        match self.program {
            Program::Entity => {
                for _ in 0..3 {
                    self.small.write();
                    self.large.write();
                }
                self.small.check_refusals()?;
                self.large.check_refusals()?;
                // Reads may be refused while calls fail; what they return is checked.
                self.read_small().map(drop)
            }
            Program::Files | Program::Proxy => self.read_plain().map(drop),
        }
    }

    /// Writes and reads until every response is as expected, or the server of that process has ended.
    pub(super) fn insist(&mut self, pid: u32) -> Result<(), String> {
        let ended = || has_ended(pid);
        if self.program == Program::Entity {
            (0..SMALL.keys).try_for_each(|_| self.small.write_through(RECOVERY_MAX, ended))?;
            (0..LARGE.keys).try_for_each(|_| self.large.write_through(RECOVERY_MAX, ended))?;
            self.small.check_refusals()?;
            self.large.check_refusals()?;
        }
        self.wait_right(pid)
    }

    /// Reads until every response is right and none is a refusal.
    pub(super) fn wait_right(&self, pid: u32) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let refused = match self.program {
                Program::Entity => self.read_all()?,
                Program::Files | Program::Proxy => self.read_plain()?,
            };
            let Some(refused) = refused else {
                return Ok(());
            };
            if begun.elapsed() > RECOVERY_MAX || has_ended(pid) {
                return Err(format!(
                    "not served {:?} after the failure: {refused}",
                    begun.elapsed()
                ));
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// The same clients, of a server that was started again.
    pub(super) fn move_to(&mut self, address: SocketAddr) {
        self.address = address;
        self.reconnect(ANSWER_MAX);
    }

    fn read_all(&self) -> Result<Option<String>, String> {
        if let Some(refused) = self.read_small()? {
            return Ok(Some(refused));
        }
        if let Some(refused) = self.large.read_back(&mut self.reading())? {
            return Ok(Some(refused));
        }
        self.read_range()
    }

    fn read_small(&self) -> Result<Option<String>, String> {
        self.small.read_back(&mut self.reading())
    }

    fn reading(&self) -> Client {
        Client::with_wait(self.address, self.wait_max)
    }

    /// A range has the keys that are stored, each once: their number is known.
    fn read_range(&self) -> Result<Option<String>, String> {
        let expected = self.small.stored_keys();
        let mut client = self.reading();
        match client.get("/v0/entities?start=small&end=smalm") {
            Ok(answer) if answer.status == 200 => {
                let records = answer
                    .body
                    .windows(7)
                    .filter(|part| part.starts_with(b"small-"))
                    .count();
                match records >= expected {
                    true => Ok(None),
                    false => Err(format!("a range has {records} of {expected} keys")),
                }
            }
            Ok(answer) if answer.status >= 500 => Ok(Some(format!("range: {}", answer.status))),
            Ok(answer) => Err(format!("a range is answered {}", answer.status)),
            Err(sentence) => Ok(Some(sentence)),
        }
    }

    /// Files, or what the upstream says, each on a connection of its own; a refusal, if there was one.
    fn read_plain(&self) -> Result<Option<String>, String> {
        let mut client = self.reading();
        let targets: Vec<(String, Vec<u8>)> = match self.program {
            Program::Proxy => vec![(AT_ONCE.to_owned(), b"ok".to_vec()); 2],
            _ => FILE_NAMES
                .map(|name| (format!("/{name}"), file_bytes(name)))
                .to_vec(),
        };
        let mut refused = None;
        for (target, expected) in &targets {
            client.close();
            match client.get(target) {
                Ok(answer) if answer.status == 200 && answer.body == *expected => {}
                Ok(answer) if answer.status >= 500 => {
                    refused = Some(format!("{target}: {}", answer.status));
                }
                Ok(answer) => {
                    let length = answer.body.len();
                    return Err(format!(
                        "{target} is answered {} with {length} bytes",
                        answer.status
                    ));
                }
                Err(sentence) => refused = Some(sentence),
            }
        }
        Ok(refused)
    }
}

/// Whether a child has ended and was not waited for yet.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have anything in it.
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
    state.is_none_or(|state| state.starts_with(['Z', 'X']))
}

/// Goal: an ended child is detected, and this process is alive.
#[test]
fn an_end_is_seen() {
    assert!(!has_ended(std::process::id()));
    let mut child = std::process::Command::new("true").spawn().unwrap();
    while !has_ended(child.id()) {
        std::thread::yield_now();
    }
    child.wait().unwrap();
}
