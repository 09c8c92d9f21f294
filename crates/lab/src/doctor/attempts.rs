//! What no file tells: it has to be tried.

use crate::allocator::{CatalogueEntry, catalogue};
use crate::awake::Awake;
use crate::cgroup::CgroupRoot;
use crate::config;
use crate::embedded::PrivateDirectory;
use millpond_io::{DriverChoice, DriverFeatures, IoError, may_raise_priority};
use millpond_measure::counters::{CountFrom, CounterKind, CounterSet};
use std::io::Error;
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// What became of each attempt.
#[derive(Clone, Debug)]
pub struct Attempts {
    /// Setting a ring up as a shard does it.
    pub(super) uring: Result<DriverFeatures, IoError>,
    /// Making an epoll instance; a sentence if not.
    pub(super) epoll: Result<(), String>,
    /// A connection of this process with itself.
    pub(super) loopback: Result<(), String>,
    /// Counting this process.
    pub(super) counters: Counters,
    /// Valgrind is here, which counts where the processor does not.
    pub(super) has_valgrind: bool,
    /// Counters are not forbidden to this user.
    pub(super) is_root: bool,
    /// Making a directory for shared objects.
    pub(super) temporary: Result<(), String>,
    /// Making a control group for a target.
    pub(super) control_group: Result<String, String>,
    /// Keeping idle CPUs awake.
    pub(super) awake: Result<(), String>,
    /// The highest priority of ordinary tasks is permitted.
    pub(super) may_raise_priority: bool,
    /// Looking for allocators.
    pub(super) allocators: Vec<CatalogueEntry>,
}

/// What can be counted.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) instructions: bool,
    pub(super) kernel_instructions: bool,
    /// Sentences for people.
    pub(super) lines: Vec<String>,
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
    pub(super) fn well() -> Self {
        let features = millpond_io::DriverFeature::ALL;
        let here = |name| CatalogueEntry {
            name,
            version: Some("1".to_owned()),
            place: Some("/lib/x.so".to_owned()),
            remedy: None,
            settings: "",
            variable: "",
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
