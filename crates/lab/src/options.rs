//! How the user's server is started, asked whether it serves, and stopped.
//!
//! `cli` fills it, `started_candidate` turns it into what the launcher does.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use millpond_measure::record::Engine;

use crate::error::LabError;
use crate::identity::Identity;
use crate::isolation::IdleCpus;
use crate::launch::StopSignal;
use crate::placement::Placement;
use crate::probe::Probe;
use crate::readiness::Ready;
use crate::subject::STOP_GRACE;
use crate::suitability::Inherited;

/// The defaults are right for most servers.
#[derive(Clone, Debug)]
pub struct SubjectOptions {
    /// Variables for the server.
    pub environment: Vec<(OsString, OsString)>,
    /// The handling of the shell's variables that change allocators.
    pub inherited: Inherited,
    /// Where it starts; `None`: here.
    pub directory: Option<PathBuf>,
    /// The user it runs as; `None`: the user of the lab.
    pub user: Option<Identity>,
    /// How it is detected that it serves.
    pub ready: Ready,
    /// Its CPUs; `None`: as [`Placement`] divides them.
    pub server_cpus: Option<Vec<usize>>,
    /// The generator's CPUs.
    pub load_cpus: Option<Vec<usize>>,
    /// Whether both are bound to their CPUs. Allocators and runtimes size themselves by the CPUs that they may use.
    pub is_pinned: bool,
    /// The state of idle processors.
    pub idle_cpus: IdleCpus,
    /// The signal that asks it to end.
    pub stop_signal: StopSignal,
    /// When it is killed.
    pub stop_grace: Duration,
    /// Most memory that all its processes may hold together, page cache included; beyond it the kernel kills one of them.
    pub memory_limit_bytes: Option<u64>,
    /// Whether the kernel may give it huge pages it did not ask for (where the machine's mode allows it); `None`: as
    /// the machine has it.
    pub huge_pages: Option<bool>,
    /// A line for the shell that must end well before anything is timed, and print the same under
    /// every candidate.
    pub check: Option<String>,
}

impl Default for SubjectOptions {
    fn default() -> Self {
        Self {
            environment: Vec::new(),
            inherited: Inherited::of_this_process(false),
            directory: None,
            user: None,
            ready: Ready::default(),
            server_cpus: None,
            load_cpus: None,
            is_pinned: true,
            idle_cpus: IdleCpus::default(),
            stop_signal: StopSignal::default(),
            stop_grace: STOP_GRACE,
            memory_limit_bytes: None,
            huge_pages: None,
            check: None,
        }
    }
}

impl SubjectOptions {
    /// Refuses what can be refused without starting anything.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refuse = |sentence: String| Err(LabError::Setting(sentence));
        let preload = self
            .environment
            .iter()
            .find(|(name, _)| name == "LD_PRELOAD");
        if preload.is_some() {
            return refuse(
                "--env LD_PRELOAD would undo what is compared; give the library as an allocator, \
                 --allocators NAME=/path/to/library.so"
                    .to_owned(),
            );
        }
        if let Some(directory) = self.directory.as_ref().filter(|path| !path.is_dir()) {
            return refuse(format!("there is no directory {}", directory.display()));
        }
        let own = rustix::process::geteuid().as_raw();
        match &self.user {
            Some(user) if own != 0 && user.uid != own => {
                refuse("only root can start a server as another user".to_owned())
            }
            _ => self.check_cpus(),
        }
    }

    fn check_cpus(&self) -> Result<(), LabError> {
        let allowed = millpond_io::allowed_cpus().unwrap_or_default();
        let wanted = self.server_cpus.iter().chain(&self.load_cpus).flatten();
        match wanted.into_iter().find(|cpu| !allowed.contains(cpu)) {
            Some(cpu) => {
                let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
                Err(LabError::Setting(format!(
                    "CPU {cpu} is none of those that this process may use: {}",
                    allowed.join(", ")
                )))
            }
            None => Ok(()),
        }
    }

    /// The variables that every target gets: of the shell, as far as they are kept, and of the user.
    pub(crate) fn given(&self) -> Vec<(OsString, OsString)> {
        let kept = self.inherited.kept().into_iter();
        kept.chain(self.environment.iter().cloned()).collect()
    }

    /// The CPUs of both sides, with the user's wishes.
    pub(crate) fn placement(&self) -> Placement {
        let mut placement = Placement::of_this_machine();
        if let Some(cpus) = &self.server_cpus {
            placement.server.clone_from(cpus);
        }
        if let Some(cpus) = &self.load_cpus {
            placement.generator.clone_from(cpus);
        }
        if self.is_pinned {
            placement
        } else {
            placement.without_pins()
        }
    }
}

// Values from our own server's `/metrics`: its I/O driver and its storage engine.
//
// Every result names the engine version that ran. Empty for a third-party server.

/// The labels of `millpond_build_info` that a record keeps.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ServerInfo {
    pub(crate) driver: Option<String>,
    pub(crate) engine: Option<Engine>,
}

impl ServerInfo {
    /// Asks the server behind `probe`; unknown if it does not respond as ours does.
    pub(crate) fn ask(probe: &Probe) -> Self {
        if probe.tls.is_some() {
            // Ours is asked in plaintext; of others this is not known anyway.
            return Self::default();
        }
        let metrics = Probe {
            path: "/metrics".to_owned(),
            ..probe.clone()
        };
        metrics
            .body()
            .map(|text| Self::parse(&text))
            .unwrap_or_default()
    }

    fn parse(metrics: &str) -> Self {
        let Some(line) = metrics
            .lines()
            .find(|line| line.starts_with("millpond_build_info{"))
        else {
            return Self::default();
        };
        let label = |name: &str| label(line, name).map(str::to_owned);
        Self {
            driver: label("driver"),
            engine: label("engine").map(|name| Engine {
                name,
                version: label("engine_version").unwrap_or_default(),
                linkage: label("engine_linkage").unwrap_or_default(),
            }),
        }
    }
}

/// The value of a label; our server writes none that needs escapes.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, labels) = line.split_once('{')?;
    labels.split('}').next()?.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        (key == name).then(|| value.trim_matches('"'))
    })
}

#[cfg(test)]
#[path = "tests/options.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/server_info.rs"]
mod server_info_tests;
