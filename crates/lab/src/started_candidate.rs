//! One candidate, started fresh, proved to be what it is called, ready for load.
//!
//! Preflight, heap pass and scored runs all begin and end here. Each gets its own process, its own
//! empty data directory, its own port, and an environment of random size, since where the stack
//! begins alone can move a program's speed by several percent.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millpond_io::Address;
use millpond_load::ConnectFailure;
use millpond_measure::counters::{CountFrom, CounterSet};
use millpond_measure::process::{self, ProcessTree};
use millpond_measure::record::Coexistence;

use crate::cgroup;
use crate::cgroup::{Cgroup, CgroupRoot};
use crate::cgroup::{MemoryGroup, MemoryGroupRoot};
use crate::drive::Driver;
use crate::endpoint::Endpoint;
use crate::error::{LabError, RunError};
use crate::isolation::Disturbances;
use crate::launch::LaunchSpec;
use crate::listen_backlog;
use crate::load_command::LoadCommand;
use crate::matrix::Candidate;
use crate::options::SubjectOptions;
use crate::outcome::Evidence;
use crate::outcome::{Answers, FailedRequests};
use crate::output_directory::DataPlace;
use crate::output_directory::OutputDirectory;
use crate::placement::CoreDistance;
use crate::plan::Reserve;
use crate::port;
use crate::presence::{self, Presence, PresenceError};
use crate::process_tree;
use crate::sampler::Sampler;
use crate::subject::{LastWords, Launcher, StopReport, Subject};
use crate::target::{Target, with_port};
use crate::trace::{PATH_VARIABLE, Trace};

/// Folders of the output directory: what targets print, and raw records.
const LOGS: &str = "logs";
const RAW: &str = "raw";

/// More than any layout effect's period; see the module's first lines.
const PADDING_BYTES_MAX: usize = 4096;
/// Where many servers search for their port.
const PORT_VARIABLE: &str = "PORT";
const PADDING_VARIABLE: &str = "MILLPOND_LAYOUT_PADDING";

/// How much longer a target under an emulator may take to start and to stop.
const EMULATED_PATIENCE: u32 = 6;

/// An object of ours in front of the allocator, with the file it writes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front<'a> {
    /// The object preloaded first.
    pub(crate) object: &'a Path,
    /// The variable that names the file.
    pub(crate) variable: &'a str,
    /// The file.
    pub(crate) file: &'a Path,
}

/// How a target is started, beside what its candidate says.
#[derive(Clone, Copy, Debug, Default)]
struct ResponseFraming<'a> {
    /// The object preloaded in front of the allocator.
    front: Option<Front<'a>>,
    /// Words of an emulator, before the command's.
    emulator: Option<&'a [OsString]>,
    /// On all CPUs, whatever the server's are.
    is_unpinned: bool,
}

impl<'a> From<&'a Trace> for Front<'a> {
    fn from(trace: &'a Trace) -> Self {
        Self {
            object: trace.object(),
            variable: PATH_VARIABLE,
            file: trace.counters(),
        }
    }
}

/// The common context of all sessions of a comparison.
#[derive(Debug)]
pub(crate) struct RunContext {
    pub(crate) driver: Driver,
    pub(crate) launcher: Launcher,
    pub(crate) options: SubjectOptions,
    pub(crate) load_command: Option<LoadCommand>,
    /// Where control groups can be made; none if there is no such place.
    pub(crate) cgroups: Option<CgroupRoot>,
    /// Where those can be made that count memory, if the others do not.
    pub(crate) memory_groups: Option<MemoryGroupRoot>,
    pub(crate) ready_bound: Duration,
    pub(crate) out: OutputDirectory,
    pub(crate) data: DataPlace,
    pub(crate) random: fastrand::Rng,
    /// How copies of the target live at the same time.
    pub(crate) coexistence: Coexistence,
    /// The disturbances of slices so far.
    pub(crate) disturbances: Disturbances,
    /// The least distance of the CPUs of server and generator so far.
    pub(crate) nearest: CoreDistance,
    /// Time for slices that are repeated.
    pub(crate) reserve: Reserve,
    /// The address space that a target's processes may have, once one served.
    pub(crate) address_space_bytes: Cell<Option<u64>>,
}

impl RunContext {
    /// Creates the report directory's parts; what an earlier comparison left in them is removed.
    pub(crate) fn prepare(&self) -> Result<(), LabError> {
        for folder in [LOGS, RAW] {
            self.out.fresh_folder(folder)?;
        }
        Ok(())
    }

    /// The limit of a target's address space: that of one which serves. One that failed before has the limit of an
    /// earlier one, for their commands are the same; without any it is ours.
    fn address_space_bytes(&self, serving: Option<&Presence>) -> Option<u64> {
        let pids = serving.into_iter().flat_map(|presence| &presence.pids);
        let mut limits = pids.filter_map(|&pid| {
            let pid = u32::try_from(pid).ok()?;
            cgroup::address_space_bytes_of(pid)
        });
        if let Some(bytes) = limits.next() {
            self.address_space_bytes.set(Some(bytes));
        }
        let earlier = self.address_space_bytes.get();
        earlier.or_else(cgroup::address_space_bytes)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.out.path().join(LOGS)
    }

    pub(crate) fn raw(&self) -> PathBuf {
        self.out.path().join(RAW)
    }

    /// Removes what targets wrote, once nothing runs any more.
    pub(crate) fn tidy(&mut self) {
        self.data.tidy();
    }

    /// The control groups of a run, with the limit that the user gave.
    fn groups(&self, name: &str) -> Result<(Option<Cgroup>, Option<MemoryGroup>), RunError> {
        let cgroups = self.cgroups.as_ref();
        let cgroup = cgroups.and_then(|root| root.create(name).ok());
        let memory_groups = self.memory_groups.as_ref();
        let memory_group = memory_groups.and_then(|root| root.create(name).ok());
        self.limit_memory(cgroup.as_ref(), memory_group.as_ref())?;
        Ok((cgroup, memory_group))
    }

    /// Sets the limit that the user gave, in the group that counts memory.
    fn limit_memory(
        &self,
        cgroup: Option<&Cgroup>,
        memory_group: Option<&MemoryGroup>,
    ) -> Result<(), RunError> {
        let Some(bytes) = self.options.memory_limit_bytes else {
            return Ok(());
        };
        let has_memory = self.cgroups.as_ref().is_some_and(CgroupRoot::has_memory);
        let limited = match (cgroup.filter(|_| has_memory), memory_group) {
            (Some(group), _) => group.limit_memory(bytes),
            (None, Some(group)) => group.limit_memory(bytes),
            (None, None) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "no control group that counts memory can be made here; root can",
            )),
        };
        limited.map_err(|error| RunError::MemoryLimit { bytes, error })
    }

    /// Where the next start is to listen.
    fn endpoint(&mut self) -> Result<Endpoint, RunError> {
        let choose = || port::choose().map_err(|error| RunError::Load(error.to_string()));
        let requests = match &self.driver.target {
            Target::Entity { .. } => {
                let port = choose()?;
                let address = Address::Inet(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                return Ok(Endpoint::here([address].into(), port));
            }
            Target::Command { requests, .. } => requests,
        };
        let is_apart = matches!(
            self.coexistence,
            Coexistence::OneAtATime | Coexistence::Namespaces
        );
        let port = match requests.port() {
            Some(port) if is_apart => port,
            _ => choose()?,
        };
        let addresses = requests.addresses_at(port);
        match self.coexistence {
            Coexistence::Namespaces => Endpoint::elsewhere(addresses, port),
            _ => Ok(Endpoint::here(addresses, port)),
        }
    }

    fn spec(
        &mut self,
        candidate: &Candidate,
        label: &str,
        endpoint: &Endpoint,
        data: &Path,
        manner: ResponseFraming<'_>,
    ) -> LaunchSpec {
        let placement = &self.driver.placement;
        let options = &self.options;
        let mut preload: Vec<PathBuf> = Vec::new();
        let padding = "x".repeat(self.random.usize(..PADDING_BYTES_MAX));
        let mut environment: Vec<(OsString, OsString)> =
            vec![(PADDING_VARIABLE.into(), padding.into())];
        let port = endpoint.port.to_string();
        // Later ones replace earlier ones: what the user says replaces the shell's, a candidate's own both.
        environment.extend(options.inherited.kept());
        let given = options.environment.iter();
        environment.extend(given.map(|(name, value)| (name.clone(), with_port(value, &port))));
        if self.coexistence == Coexistence::PortVariable {
            environment.push((PORT_VARIABLE.into(), port.into()));
        }
        if let Some(front) = manner.front {
            preload.push(front.object.to_owned());
            environment.push((front.variable.into(), front.file.into()));
        }
        preload.extend(candidate.allocator.objects().map(Path::to_owned));
        preload.extend(options.inherited.preload());
        environment.extend(own_variables(candidate, endpoint));
        LaunchSpec {
            preload,
            unset: options.inherited.dropped(),
            cpus: match manner.is_unpinned {
                true => Vec::new(),
                false => placement.server.clone(),
            },
            is_raised: placement.is_raised,
            huge_pages: options.huge_pages,
            environment,
            log: self
                .logs()
                .join(format!("{}-{label}.log", file_name(&candidate.name))),
            command: candidate.target(&self.driver.target).command(
                &self.launcher.program,
                endpoint,
                data,
                candidate.pools,
                placement.server_threads(),
            ),
            directory: options.directory.clone(),
            user: options.user.clone(),
            stop_signal: options.stop_signal,
            ..LaunchSpec::default()
        }
    }
}

/// A running candidate.
#[derive(Debug)]
pub(crate) struct StartedCandidate {
    pub(crate) subject: Subject,
    pub(crate) endpoint: Endpoint,
    pub(crate) tree: ProcessTree,
    pub(crate) counters: CounterSet,
    pub(crate) presence: Presence,
    /// From the word to begin until the first good response.
    pub(crate) start_duration: Duration,
    /// The outcomes of its requests so far.
    answers: Answers,
    /// The share of them that may fail.
    errors_allowed: f64,
    connections: usize,
    /// Where they go, for sentences.
    url: String,
    title: String,
    stop_grace: Duration,
    // After `subject`, so that nothing is in it any more when it is removed.
    pub(crate) cgroup: Option<Cgroup>,
    pub(crate) memory_group: Option<MemoryGroup>,
    /// The address space that it may have; `None`: as much as there is.
    address_space_bytes: Option<u64>,
    /// The memory that all its processes may hold, if the user limits it.
    memory_limit_bytes: Option<u64>,
    /// Whether an allocator is preloaded into it.
    has_library: bool,
    // After `subject`, so that it is removed when nothing writes to it any more.
    _data: DataDirectory,
}

impl StartedCandidate {
    /// Starts `candidate`, waits until it serves, and proves its allocator.
    pub(crate) fn start(
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        trace: Option<&Trace>,
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        Self::start_behind(workshop, candidate, label, trace.map(Front::from), stop)
    }

    /// The same with any object of ours in front of the allocator.
    pub(crate) fn start_behind(
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        front: Option<Front<'_>>,
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        let manner = ResponseFraming {
            front,
            ..ResponseFraming::default()
        };
        Self::arrange(workshop, candidate, label, manner, stop)
    }

    /// The same on all CPUs.
    pub(crate) fn start_unpinned(
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        let manner = ResponseFraming {
            is_unpinned: true,
            ..ResponseFraming::default()
        };
        Self::arrange(workshop, candidate, label, manner, stop)
    }

    /// The same under an emulator, whose words come before the command's. It takes its time.
    pub(crate) fn start_emulated(
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        emulator: &[OsString],
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        let manner = ResponseFraming {
            emulator: Some(emulator),
            ..ResponseFraming::default()
        };
        Self::arrange(workshop, candidate, label, manner, stop)
    }

    fn arrange(
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        manner: ResponseFraming<'_>,
        stop: &AtomicBool,
    ) -> Result<Self, RunError> {
        let ResponseFraming {
            front, emulator, ..
        } = manner;
        let mut endpoint = workshop.endpoint()?;
        if let Some(address) = endpoint.taken()? {
            return Err(RunError::AddressTaken { address });
        }
        let name = format!("{}-{label}", file_name(&candidate.name));
        let data = DataDirectory::create(workshop.data.path().join(&name))?;
        let mut spec = workshop.spec(candidate, label, &endpoint, &data.path, manner);
        spec.command
            .splice(..0, emulator.unwrap_or_default().iter().cloned());
        let patience = emulator.map_or(1, |_| EMULATED_PATIENCE);
        // Without one, the processes are summed up one by one.
        let (cgroup, memory_group) = workshop.groups(&name)?;
        spec.cgroups.extend(cgroup.as_ref().map(Cgroup::procs));
        spec.cgroups
            .extend(memory_group.as_ref().map(MemoryGroup::procs));
        let title = candidate.target(&workshop.driver.target).short_name();
        let prepare = || Subject::prepare(&workshop.launcher, &spec, &title);
        let mut subject = endpoint.within(prepare)??;
        let pid = u32::try_from(subject.pid()).unwrap_or(0);
        let counters = CounterSet::attach(pid, CountFrom::Exec);
        let start = Start {
            workshop,
            endpoint: &endpoint,
            candidate,
            variables: own_variables(candidate, &endpoint),
            front: front.map(|front| front.object),
            is_emulated: emulator.is_some(),
            ready_bound: workshop.ready_bound * patience,
            stop,
        };
        let started = start.until_proved(&mut subject);
        let address_space_bytes =
            workshop.address_space_bytes(started.as_ref().ok().map(|(presence, _)| presence));
        let has_library = candidate.allocator.objects().next().is_some();
        let evidence = Evidence {
            cgroup: cgroup.as_ref(),
            memory_group: memory_group.as_ref(),
            title: &title,
            log: subject.log(),
            address_space_bytes,
            memory_limit_bytes: workshop.options.memory_limit_bytes,
            has_library,
        };
        let (presence, start_duration) = started.map_err(|error| evidence.explain(error))?;
        endpoint.keep_those_that_accept()?;
        Ok(Self {
            url: workshop.driver.target.url(&endpoint),
            subject,
            endpoint,
            tree: ProcessTree::new(pid).with_data(process::DataDirectory::in_memory(&data.path)),
            counters,
            presence,
            start_duration,
            answers: Answers::default(),
            errors_allowed: workshop.driver.errors_allowed,
            connections: workshop.driver.connections,
            title,
            stop_grace: workshop.options.stop_grace * patience,
            cgroup,
            memory_group,
            address_space_bytes,
            memory_limit_bytes: workshop.options.memory_limit_bytes,
            has_library,
            _data: data,
        })
    }

    /// The processes of the target. A control group lists them without reading all others of the machine.
    pub(crate) fn members(&self) -> Vec<u32> {
        let group = self.cgroup.as_ref().and_then(|group| group.members().ok());
        group.unwrap_or_else(|| self.tree.members())
    }

    /// Begins to sample its memory.
    pub(crate) fn sampler(&self) -> Sampler {
        self.sampler_beside(1)
    }

    /// The same where so many are sampled at once, this one included.
    pub(crate) fn sampler_beside(&self, count: usize) -> Sampler {
        let procs = self.cgroup.as_ref().map(Cgroup::procs);
        Sampler::start(self.tree.clone(), procs, count)
    }

    /// Adds the outcomes of a phase's requests. An error if too many have failed so far, or if the target does not
    /// respond any more.
    pub(crate) fn account<T: AsRef<Answers>>(
        &mut self,
        phase: Result<T, RunError>,
    ) -> Result<T, RunError> {
        let judged = match phase {
            Ok(phase) => self.judge(phase.as_ref()).map(|()| phase),
            // It responded before, and now does not even accept connections.
            Err(RunError::Unreachable {
                cause: ConnectFailure::TimedOut { timeout_ns },
                ..
            }) if self.answers.right > 0 => Err(self.hung(Duration::from_nanos(timeout_ns))),
            Err(error) => Err(error),
        };
        self.explain(judged)
    }

    /// The status of its responses so far, if they point to another URL.
    pub(crate) fn redirected(&self) -> Option<u16> {
        self.answers.redirected()
    }

    fn judge(&mut self, phase: &Answers) -> Result<(), RunError> {
        self.answers.add(phase);
        if let Some(silence) = phase.silence {
            return Err(self.hung(silence));
        }
        if !self.answers.are_too_bad(phase, self.errors_allowed) {
            return Ok(());
        }
        let mut failed = FailedRequests::of(
            &self.answers,
            &self.url,
            self.connections,
            self.errors_allowed,
        );
        if failed.has_unanswered() {
            failed.backlog = self.backlog();
        }
        Err(RunError::FailedRequests(Box::new(failed)))
    }

    /// How many connections may wait at the server to be accepted, if those are fewer than will come at once.
    pub(crate) fn small_backlog(&self) -> Option<u32> {
        self.backlog()
            .filter(|&backlog| (backlog as usize) < self.connections)
    }

    /// How many connections may wait there; `None` where the kernel does not report it.
    fn backlog(&self) -> Option<u32> {
        let port = self.endpoint.sockets().next()?.port();
        let backlog = self.endpoint.within(|| listen_backlog::of_port(port));
        backlog.ok().flatten()
    }

    fn hung(&self, silence: Duration) -> RunError {
        RunError::Hung {
            title: self.title.clone(),
            answered: self.answers.right,
            silence,
            last_words: Box::new(LastWords::read(self.subject.log())),
        }
    }

    /// Prefers the target's own end as the reason of a failure that it probably caused, and the kernel's reason for
    /// that end.
    pub(crate) fn explain<T>(&mut self, result: Result<T, RunError>) -> Result<T, RunError> {
        if let Err(RunError::Interrupted) = result {
            return result;
        }
        let end = self.subject.ensure_alive();
        let result = end.map_err(RunError::from).and(result);
        let evidence = Evidence {
            cgroup: self.cgroup.as_ref(),
            memory_group: self.memory_group.as_ref(),
            title: &self.title,
            log: self.subject.log(),
            address_space_bytes: self.address_space_bytes,
            memory_limit_bytes: self.memory_limit_bytes,
            has_library: self.has_library,
        };
        result.map_err(|error| evidence.explain(error))
    }

    /// Ends it.
    pub(crate) fn stop(self) -> Result<StopReport, RunError> {
        Ok(self.subject.stop(self.stop_grace)?)
    }
}

/// A target on its way from its first instruction to the proof of its allocator.
struct Start<'a> {
    workshop: &'a RunContext,
    endpoint: &'a Endpoint,
    candidate: &'a Candidate,
    /// The settings of this candidate alone.
    variables: Vec<(OsString, OsString)>,
    /// The object preloaded in front of the allocator.
    front: Option<&'a Path>,
    is_emulated: bool,
    ready_bound: Duration,
    stop: &'a AtomicBool,
}

impl Start<'_> {
    /// Lets it go, waits until it serves, and proves its allocator. The proved facts, and how long it took to serve.
    fn until_proved(&self, subject: &mut Subject) -> Result<(Presence, Duration), RunError> {
        let began = Instant::now();
        subject.go()?;
        let probe = self.workshop.driver.target.probe(self.endpoint);
        let check = self.workshop.options.ready.check(probe);
        let wait = || subject.wait_ready(check.as_ref(), self.ready_bound, self.stop);
        self.endpoint.within(wait)??;
        let start_duration = began.elapsed();
        let tree = process_tree::tree_of(subject.pid());
        for address in self.endpoint.sockets() {
            if let Some(pid) = process_tree::other_listener(&tree, address) {
                return Err(RunError::SharedAddress { address, pid });
            }
        }
        let presence = prove_while_alive(subject, |subject| {
            let serving = match self.endpoint.unix() {
                Some(path) => subject.serving_at_path(path),
                None => subject.serving(self.endpoint.port),
            };
            let allocator = &self.candidate.allocator;
            let proved = if self.is_emulated {
                presence::prove_emulated(&serving, allocator)?;
                Presence::default()
            } else {
                presence::prove_behind(&serving, allocator, self.front)?
            };
            presence::prove_variables(&serving, &self.variables)?;
            Ok(proved)
        })?;
        Ok((presence, start_duration))
    }
}

/// The settings of a candidate alone, at `endpoint`: its changes, and its allocator's settings.
fn own_variables(candidate: &Candidate, endpoint: &Endpoint) -> Vec<(OsString, OsString)> {
    let port = endpoint.port.to_string();
    let variables = candidate.variables().into_iter();
    variables
        .map(|(name, value)| (name, with_port(&value, &port)))
        .collect()
}

/// How often the processes are listed anew when all that were listed have ended.
const PROOFS_MAX: usize = 10;

/// Proves the allocator of the processes that serve. If the first process of the server ended
/// meanwhile, that is the reason to give, whatever the proof ran into.
fn prove_while_alive(
    subject: &mut Subject,
    mut prove: impl FnMut(&Subject) -> Result<Presence, PresenceError>,
) -> Result<Presence, RunError> {
    let mut proved = prove(subject);
    for _ in 1..PROOFS_MAX {
        subject.ensure_stays("ended before it was measured")?;
        match proved {
            Err(PresenceError::NothingServes) => proved = prove(subject),
            other => return Ok(other?),
        }
    }
    Ok(proved?)
}

/// A directory that vanishes with its session.
#[derive(Debug)]
struct DataDirectory {
    path: PathBuf,
}

impl DataDirectory {
    fn create(path: PathBuf) -> Result<Self, RunError> {
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Self { path }),
            Err(error) => Err(RunError::Prepare { path, error }),
        }
    }
}

impl Drop for DataDirectory {
    fn drop(&mut self) {
        // Files that cannot be removed now go with the whole directory at the end.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A candidate's name as a file name: `mimalloc with pools` becomes `mimalloc-with-pools`.
pub(crate) fn file_name(name: &str) -> String {
    name.split(|letter: char| !letter.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

#[cfg(test)]
#[path = "tests/started_candidate.rs"]
mod tests;
