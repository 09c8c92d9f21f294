//! The limits of this machine, for users that wonder why something is slow, missing or refused.
//!
//! Apart from the path of a comparison: `millpond doctor` calls [`examine`] and prints what it gets. The kernel's files
//! are read below a root that tests plant; what has to be tried (a ring, a counter, a socket) is tried once by
//! [`Attempts::make`] and handed in.
//!
//! Each finding that is not well names the command that a person with the right to do so may give.

mod machine;
mod serving;
mod deploying;
mod running;

use std::io::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use millpond_io::{DriverChoice, DriverFeatures, IoError, may_raise_priority};
use millpond_measure::counters::{CountFrom, CounterKind, CounterSet};
use serde::Serialize;

use crate::allocator::{CatalogueEntry, catalogue};
use crate::cgroup::CgroupRoot;
use crate::config;
use crate::embedded::PrivateDirectory;
use crate::isolation::Awake;

pub use deploying::{Facts, examine_program, findings as examine_deployment};
pub use machine::{Limit, Machine};
pub use running::{
    Arena, GlibcHeap, Inside, Limit as MemoryLimit, MappedBlocks, Memory, Origin, Parameters,
    Running, RunningError, Served, Serving, Setting, examine_process,
};
pub use serving::OTHER_FILES;

/// How well one thing stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// As it should be.
    Ok,
    /// Everything works, but less well, or with less to be seen.
    Weak,
    /// Something of Millpond does not work at all.
    Missing,
}

/// The topic of a finding.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Section {
    /// The needs of `serve` and `proxy`.
    Serving,
    /// Influences on the numbers of `load`, `bench` and `compare`.
    Measuring,
    /// Additional needs of `compare` and `profile`.
    Comparing,
    /// Effects of the machine on the allocator that is to run on it.
    Deploying,
    /// Of a process that runs: whose malloc is called.
    Allocator,
    /// With which settings.
    Settings,
    /// Its memory as the kernel shows it.
    Memory,
    /// Its heap by the allocator's own accounts.
    Heap,
}

impl Section {
    /// In the order of the page.
    pub const ALL: [Self; 8] = [
        Self::Serving,
        Self::Measuring,
        Self::Comparing,
        Self::Deploying,
        Self::Allocator,
        Self::Settings,
        Self::Memory,
        Self::Heap,
    ];

    /// As a heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Serving => "Serving",
            Self::Measuring => "Measuring",
            Self::Comparing => "Comparing and profiling",
            Self::Deploying => "Running the winner",
            Self::Allocator => "Allocator",
            Self::Settings => "Settings",
            Self::Memory => "Memory, as the kernel shows it",
            Self::Heap => "Heap, by the allocator's own accounts",
        }
    }
}

/// One checked thing.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Finding {
    /// Its topic.
    pub section: Section,
    /// What was checked, e.g. `open files`.
    pub name: &'static str,
    /// How it stands.
    pub state: FindingState,
    /// The facts, and what follows from them.
    pub found: String,
    /// The remedy, if something is wrong and can be changed.
    pub remedy: Option<String>,
}

impl Finding {
    fn ok(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            section,
            name,
            state: FindingState::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn weak(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: FindingState::Weak,
            ..Self::ok(section, name, found)
        }
    }

    fn missing(section: Section, name: &'static str, found: impl Into<String>) -> Self {
        Self {
            state: FindingState::Missing,
            ..Self::ok(section, name, found)
        }
    }

    fn remedy(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Checks everything, in the order of the page. What the kernel does not show here (in a container, say) is left out,
/// unless its absence is a finding.
#[must_use]
pub fn examine(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    [
        serving::findings(machine, attempts),
        machine::findings(machine, attempts),
        findings(machine, attempts),
        deploying::findings(&Facts::of(machine), None),
    ]
    .concat()
}

// Additional needs of `compare` and `profile`.

/// Both are always there: the C library's, and ours inside this program.
const ALWAYS_HERE: [&str; 2] = ["glibc", "mempool"];

fn findings(machine: &Machine, attempts: &Attempts) -> Vec<Finding> {
    vec![
        allocators(attempts),
        shared_objects(machine, attempts),
        control_group(attempts),
        perf(machine),
        package_versions(machine),
    ]
}

fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::ok(Section::Comparing, name, found)
}

fn weak(name: &'static str, found: impl Into<String>) -> Finding {
    Finding::weak(Section::Comparing, name, found)
}

fn allocators(attempts: &Attempts) -> Finding {
    const NAME: &str = "allocators";
    let (here, absent): (Vec<_>, Vec<_>) = attempts
        .allocators
        .iter()
        .partition(|entry| entry.place.is_some());
    let names = |entries: &[&crate::allocator::CatalogueEntry]| {
        let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
        names.join(", ")
    };
    let mut found = names(&here);
    if !absent.is_empty() {
        found = format!("{found}; not here: {}", names(&absent));
    }
    match here.iter().any(|entry| !ALWAYS_HERE.contains(&entry.name)) {
        true => ok(NAME, found),
        false => weak(NAME, found).remedy(
            "apt install libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0; `millpond allocators` says how \
             to get each",
        ),
    }
}

/// Where they are written, and from where targets load them.
fn shared_objects(machine: &Machine, attempts: &Attempts) -> Finding {
    const NAME: &str = "temporary files";
    const REMEDY: &str = "TMPDIR=/var/tmp, or any directory that may be written and executed from";
    let place = machine.temporary.display();
    if let Err(error) = &attempts.temporary {
        let found = format!("{place} takes no shared objects for preloading: {error}");
        return Finding::missing(Section::Comparing, NAME, found).remedy(REMEDY);
    }
    let options = machine
        .mount_options(&machine.temporary)
        .unwrap_or_default();
    match options.split(',').any(|option| option == "noexec") {
        true => {
            let found = format!(
                "{place} is mounted noexec: nothing can be preloaded from it, so heap calls are not \
                 counted and mempool is no candidate"
            );
            Finding::missing(Section::Comparing, NAME, found).remedy(REMEDY)
        }
        false => ok(NAME, format!("{place} takes shared objects for preloading")),
    }
}

fn control_group(attempts: &Attempts) -> Finding {
    const NAME: &str = "control groups";
    match &attempts.control_group {
        Ok(found) => ok(NAME, found.clone()),
        Err(reason) => weak(
            NAME,
            format!(
                "{reason}: peak memory and CPU time are added up over the processes that are seen"
            ),
        )
        .remedy("run as root, or by systemd-run --user --scope -p Delegate=yes millpond compare"),
    }
}

fn perf(machine: &Machine) -> Finding {
    match machine.has_program("perf") {
        true => ok("perf", "is here, for CPU flame graphs"),
        false => weak(
            "perf",
            "not here: no CPU flame graphs; allocation flame graphs need none",
        )
        .remedy("apt install linux-perf"),
    }
}

fn package_versions(machine: &Machine) -> Finding {
    match machine.has_program("dpkg-query") {
        true => ok(
            "dpkg-query",
            "is here, for the exact versions of allocators",
        ),
        false => weak(
            "dpkg-query",
            "not here: the version of an allocator is what its file's name says",
        )
        .remedy("nothing has to be done; it comes with Debian and its relatives"),
    }
}

// What no file says: it has to be tried.

/// The outcome of each attempt.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// Setting a ring up as a shard does it.
    uring: Result<DriverFeatures, IoError>,
    /// Making an epoll instance; a sentence if not.
    epoll: Result<(), String>,
    /// A connection of this process with itself.
    loopback: Result<(), String>,
    /// Counting this process.
    counters: Counters,
    /// Valgrind is here, which counts where the processor does not.
    has_valgrind: bool,
    /// Counters are not forbidden to this user.
    is_root: bool,
    /// Making a directory for shared objects.
    temporary: Result<(), String>,
    /// Making a control group for a target.
    control_group: Result<String, String>,
    /// Keeping idle CPUs awake.
    awake: Result<(), String>,
    /// The highest priority of ordinary tasks is permitted.
    may_raise_priority: bool,
    /// Searching for allocators.
    allocators: Vec<CatalogueEntry>,
}

/// The countable events.
#[derive(Clone, Debug)]
struct Counters {
    instructions: bool,
    kernel_instructions: bool,
    /// Sentences for people.
    lines: Vec<String>,
}

impl Attempts {
    /// Tries all of it; takes a fraction of a second and leaves nothing behind.
    #[must_use]
    pub fn make() -> Self {
        Self {
            uring: DriverChoice::Uring.choose().map(|chosen| chosen.features),
            epoll: rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC)
                .map(drop)
                .map_err(|error| Error::from(error).to_string()),
            loopback: connect_to_itself().map_err(|error| error.to_string()),
            counters: Counters::find(),
            has_valgrind: config::valgrind().is_some(),
            is_root: rustix::process::geteuid().is_root(),
            temporary: PrivateDirectory::create()
                .map(drop)
                .map_err(|error| error.to_string()),
            control_group: CgroupRoot::find().map(|root| root.describe()),
            awake: Awake::ask().map(drop).map_err(|error| error.to_string()),
            may_raise_priority: may_raise_priority(),
            allocators: catalogue(),
        }
    }
}

fn connect_to_itself() -> Result<(), Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    TcpStream::connect(listener.local_addr()?)?;
    Ok(())
}

impl Counters {
    fn find() -> Self {
        let set = CounterSet::attach(std::process::id(), CountFrom::Now);
        Self {
            instructions: set.has_instructions(),
            kernel_instructions: set.counts(CounterKind::KernelInstructions),
            lines: set.lines(),
        }
    }
}

#[cfg(test)]
impl Attempts {
    /// All of it went well.
    fn well() -> Self {
        let features = millpond_io::DriverFeature::ALL;
        let here = |name| CatalogueEntry {
            name,
            version: Some("1".to_owned()),
            place: Some("/lib/x.so".to_owned()),
            remedy: None,
            settings: "",
            variable: String::new(),
        };
        Self {
            uring: Ok(features
                .into_iter()
                .fold(DriverFeatures::default(), DriverFeatures::with)),
            epoll: Ok(()),
            may_raise_priority: true,
            loopback: Ok(()),
            counters: Counters {
                instructions: true,
                kernel_instructions: true,
                lines: vec!["all is counted".to_owned()],
            },
            has_valgrind: true,
            is_root: true,
            temporary: Ok(()),
            control_group: Ok("a group".to_owned()),
            awake: Ok(()),
            allocators: ["glibc", "mempool", "jemalloc", "tcmalloc"]
                .map(here)
                .into(),
        }
    }
}

#[cfg(test)]
#[path = "tests/doctor.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/comparing.rs"]
mod comparing_tests;
