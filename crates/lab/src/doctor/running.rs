//! A process that runs already: which allocator serves it, with which settings, and how much memory that holds.
//!
//! For operators that have deployed an allocator and ask whether it is really in use. Everything is read: the process
//! is never stopped, nothing is written or loaded into it, and nothing of it is called. So statistics that an allocator
//! makes only on a call inside the process are not here; the page has the command for them, and its effect on the
//! process.

mod arenas;
mod memory;
mod serving;
mod settings;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use millpond_measure::process::{ProcessError, ProcessSample, layout};
use millpond_measure::units::{format_bytes, format_duration_ns};
use serde::Serialize;

use super::{Finding, Section};
use crate::allocator::{GLIBC, MEMPOOL, major_and_minor};
use crate::identity;
use crate::presence;
use crate::process_tree;
pub use arenas::{Arena, GlibcHeap, MappedBlocks, Parameters};
pub use memory::{Limit, Memory};
use serving::Looked;
pub use serving::{Inside, Origin, Served, Serving};
use settings::Environment;
pub use settings::Setting;

/// `PF_KTHREAD` of a process's flags.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Why a process cannot be described.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RunningError {
    /// No process has that id.
    #[error("there is no process {pid} here{hint}")]
    None {
        /// The id.
        pid: i32,
        /// Where it may be.
        hint: String,
    },
    /// It has ended.
    #[error(
        "process {pid} ({name}) has ended already: it is a zombie, which its parent {parent} has not collected"
    )]
    Zombie {
        /// The id.
        pid: i32,
        /// Its name.
        name: String,
        /// The parent that has to collect it.
        parent: i32,
    },
    /// It has no memory of its own.
    #[error(
        "process {pid} ({name}) is a thread of the kernel: it has no memory of its own, and no malloc"
    )]
    Kernel {
        /// The id.
        pid: i32,
        /// Its name.
        name: String,
    },
    /// It is part of a process.
    #[error(
        "{pid} is a thread of process {process}; ask for that: millpond doctor --pid {process}"
    )]
    Thread {
        /// The id.
        pid: i32,
        /// The process of the thread.
        process: i32,
    },
    /// It ended, or became another program.
    #[error(
        "process {pid} ended, or started another program, while it was looked at; look again if it is still there"
    )]
    Ended {
        /// The id.
        pid: i32,
    },
}

/// A process, and what was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Running {
    /// Its id.
    pub pid: i32,
    /// Its name, as the kernel has it.
    pub name: String,
    /// Its program; `None` without permission.
    pub program: Option<PathBuf>,
    /// The user it runs as.
    pub user: String,
    /// How long it has been running.
    pub running_ns: Option<u64>,
    /// The owner of the malloc in use; `None` without permission.
    pub allocator: Option<Serving>,
    /// Settings of allocators in it.
    pub settings: Vec<Setting>,
    /// As the kernel shows it.
    pub memory: Memory,
    /// The heap by the accounts of the C library, where that serves and they could be read.
    pub glibc_heap: Option<GlibcHeap>,
    /// Everything, as lines of the page.
    #[serde(skip)]
    pub findings: Vec<Finding>,
}

/// What every user may see of a process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Status {
    name: String,
    parent: i32,
    process: i32,
    user_id: u32,
    is_zombie: bool,
    is_kernels: bool,
    thp_enabled: Option<bool>,
    start_ticks: u64,
}

impl Status {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/status")).ok()?;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(
            &String::from_utf8_lossy(&text),
            &String::from_utf8_lossy(&stat),
        )
    }

    fn parse(text: &str, stat: &str) -> Option<Self> {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
        };
        let first = |name: &str| value(name)?.split_ascii_whitespace().next();
        // The name in parentheses may hold anything: fields are counted from behind it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            name: value("Name")?.to_owned(),
            parent: first("PPid")?.parse().ok()?,
            process: first("Tgid")?.parse().ok()?,
            user_id: first("Uid")?.parse().ok()?,
            is_zombie: matches!(first("State")?, "Z" | "X"),
            is_kernels: field(9)? & KERNEL_THREAD != 0,
            thp_enabled: value("THP_enabled").map(|value| value != "0"),
            start_ticks: field(22)?,
        })
    }
}

/// Examines process `pid`.
///
/// # Errors
/// [`RunningError`], if there is nothing to examine. Unreadable parts are no error: a finding reports them.
pub fn examine_process(pid: i32) -> Result<Running, RunningError> {
    let status = Status::read(pid).ok_or_else(|| none(pid))?;
    let name = status.name.clone();
    if status.process != pid {
        let process = status.process;
        return Err(RunningError::Thread { pid, process });
    }
    if status.is_kernels {
        return Err(RunningError::Kernel { pid, name });
    }
    if status.is_zombie {
        let parent = status.parent;
        return Err(RunningError::Zombie { pid, name, parent });
    }
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let ended = || RunningError::Ended { pid };
    let found = found(pid, &status, program.clone());
    // One that has ended meanwhile, or is another program, was read in part.
    let is_same = Status::read(pid).is_some_and(|now| now.start_ticks == status.start_ticks)
        && process_tree::is_running(pid)
        && fs::read_link(format!("/proc/{pid}/exe")).ok() == program;
    found.filter(|_| is_same).ok_or_else(ended)
}

/// `None` if it has ended.
fn found(pid: i32, status: &Status, program: Option<PathBuf>) -> Option<Running> {
    let id = u32::try_from(pid).ok()?;
    let sample = match ProcessSample::read(id) {
        Ok(sample) => sample,
        Err(ProcessError::Gone { .. }) => return None,
        Err(_) => ProcessSample::default(),
    };
    let mappings = layout(id);
    let memory = Memory::of(pid, sample, mappings.as_deref().unwrap_or_default());
    let environment = presence::of_process(pid)
        .map(Environment::of)
        .map_err(|error| error.to_string());
    let given = environment.as_ref().ok();
    let preload = given.and_then(|one| match one.get("LD_PRELOAD") {
        None if one.is_present => None,
        preload => Some(preload.unwrap_or_default()),
    });
    let looked = serving::look(pid, preload);
    let mut running = Running {
        pid,
        name: status.name.clone(),
        program,
        user: identity::name_of(status.user_id),
        running_ns: running_ns(status.start_ticks),
        allocator: None,
        settings: Vec::new(),
        glibc_heap: None,
        findings: Vec::new(),
        memory,
    };
    match looked {
        Ok(looked) => running.add(&looked, environment.as_ref()),
        Err(reason) => running.findings.push(unreadable(&running.user, &reason)),
    }
    let findings = memory::findings(&running.memory, status);
    running.findings.extend(findings);
    Some(running)
}

impl Running {
    fn add(&mut self, looked: &Looked, environment: Result<&Environment, &String>) {
        let variable = |name| environment.ok().and_then(|one| one.get(name));
        self.findings = serving::findings(looked, variable("PYTHONMALLOC"));
        if let Ok(environment) = environment {
            self.settings = settings::read(self.pid, environment, looked);
        }
        let served = &looked.serving.served;
        let heap = glibc(self.pid, looked);
        if let Some(Ok(heap)) = &heap {
            self.glibc_heap = Some(heap.clone());
        }
        let found = settings::findings(
            &self.settings,
            environment,
            self.glibc_heap.as_ref(),
            served,
        );
        self.findings.extend(found);
        self.findings.extend(heap.map(|heap| match heap {
            Ok(heap) => heap_line(&heap),
            Err(reason) => heap_unknown(&reason),
        }));
        self.findings.extend(asking(self.pid, looked));
        self.allocator = Some(looked.serving.clone());
    }

    /// The C library's part, where it is known.
    fn heap_part(&self) -> String {
        self.glibc_heap.as_ref().map_or_else(String::new, |heap| {
            let bytes = format_bytes(heap.system_bytes() as f64);
            format!("; glibc's malloc has {bytes} from the system")
        })
    }

    /// Which process, which allocator, how much memory: the first lines.
    #[must_use]
    pub fn headline(&self) -> String {
        let program = self
            .program
            .as_ref()
            .map(|program| program.display().to_string());
        let program = program.unwrap_or_else(|| self.name.clone());
        let since = self
            .running_ns
            .map(|ns| format!(", running for {}", format_duration_ns(ns as f64)));
        let memory = self.memory.sample.memory.rss_bytes;
        let memory = match memory {
            0 => String::new(),
            bytes => format!(
                " {} resident{}.",
                format_bytes(bytes as f64),
                self.heap_part()
            ),
        };
        let allocator = match &self.allocator {
            None => "Its allocator could not be determined.".to_owned(),
            Some(serving) => {
                let fault = serving.fault().map(|fault| format!(" {fault}."));
                format!(
                    "{}.{}",
                    capitalised(&serving.title()),
                    fault.unwrap_or_default()
                )
            }
        };
        let is_named_so = program
            .rsplit('/')
            .next()
            .is_some_and(|file| file.starts_with(&self.name));
        let name = if is_named_so {
            String::new()
        } else {
            format!(" ({})", self.name)
        };
        format!(
            "Process {}{name}: {program}, of user {}{}.\n{allocator}{memory}",
            self.pid,
            self.user,
            since.unwrap_or_default(),
        )
    }
}

/// Names of allocators keep their spelling.
fn capitalised(text: &str) -> String {
    match text.strip_prefix("no malloc") {
        Some(rest) => format!("No malloc{rest}"),
        None => text.to_owned(),
    }
}

/// The C library's heap, where it serves anything.
fn glibc(pid: i32, looked: &Looked) -> Option<Result<GlibcHeap, String>> {
    let mut served = looked.serving.served.iter();
    let one = served.find(|one| one.name == GLIBC)?;
    let file = one.library.as_ref().unwrap_or(&looked.process.program);
    let version = one.version.as_deref().and_then(major_and_minor);
    let id = u32::try_from(pid).ok()?;
    Some(arenas::read(
        &file.to_string_lossy(),
        version,
        || layout(id).map_err(|error| error.to_string()),
        |at, len| looked.image.bytes(at, len),
    ))
}

fn heap_line(heap: &GlibcHeap) -> Finding {
    let size = |bytes: u64| format_bytes(bytes as f64);
    let arenas = match &heap.arenas[..] {
        [_] => "1 arena".to_owned(),
        all => format!("{} arenas", all.len()),
    };
    let in_arenas: u64 = heap.arenas.iter().map(|arena| arena.system_bytes).sum();
    let largest = heap.arenas.iter().map(|arena| arena.system_bytes).max();
    let mut found = format!("{} from the system in {arenas}", size(in_arenas));
    if let (Some(largest), true) = (largest, heap.arenas.len() > 1) {
        found += &format!(" (the largest {})", size(largest));
    }
    match heap.mapped {
        Some(mapped) if mapped.count == 0 => {
            found += ", and no large blocks that are mapped one by one";
        }
        Some(mapped) => {
            found += &format!(
                ", and {} in large blocks that are mapped one by one ({})",
                size(mapped.bytes),
                mapped.count
            );
        }
        None => {
            found += "; blocks that are mapped one by one are not in it: their count was not found";
        }
    }
    found += &format!(
        "; {} of the arenas is free at their ends; what is free between blocks is not seen",
        size(heap.free_at_end_bytes())
    );
    Finding::ok(Section::Heap, "glibc", found)
}

fn heap_unknown(reason: &str) -> Finding {
    let found =
        format!("its arenas are not told, since they could not be read beyond doubt: {reason}");
    Finding::ok(Section::Heap, "glibc", found)
}

/// Commands that ask each allocator inside the process, and where the output goes.
fn asking(pid: i32, looked: &Looked) -> Vec<Finding> {
    let serving = &looked.serving;
    let served = serving.served.iter().map(|one| one.name.as_str());
    let inside = serving.inside.iter().map(|one| one.name.as_str());
    let all = served.chain(inside);
    all.filter_map(|name| {
        let (call, variable) = match name {
            GLIBC => (Some("malloc_stats()".to_owned()), None),
            "jemalloc" => {
                let prefix = jemalloc_prefix(looked);
                let variable = format!("{}MALLOC_CONF=stats_print:true", prefix.to_uppercase());
                (Some(format!("{prefix}malloc_stats_print(0, 0, 0)")), Some(variable))
            }
            "mimalloc" => (Some("mi_stats_print(0)".to_owned()), Some("MIMALLOC_SHOW_STATS=1".to_owned())),
            "tcmalloc" => (Some("malloc_stats()".to_owned()), Some("MALLOCSTATS=1".to_owned())),
            MEMPOOL => (None, Some("MEMPOOL_STATS=1".to_owned())),
            _ => return None,
        };
        let by_debugger = call.map(|call| {
            format!(
                "gdb -p {pid} -batch -ex 'call (void){call}'   (writes them to its stderr; stops it for a moment, and for \
                 good if a thread is inside malloc just then: try it on a replica)"
            )
        });
        let at_exit = variable.map(|variable| format!("{variable} at its start: it writes them at its end"));
        let ways: Vec<String> = by_debugger.into_iter().chain(at_exit).collect();
        let found = match name {
            GLIBC => "what is free between blocks only a call inside the process tells",
            _ => "its statistics only a call inside the process tells",
        };
        let line = Finding::ok(Section::Heap, "statistics", format!("{name}: {found}"));
        Some(line.remedy(ways.join("; or ")))
    })
    .collect()
}

/// The prefix of the functions of a jemalloc in the program.
fn jemalloc_prefix(looked: &Looked) -> &'static str {
    let elf = looked.process.file.elf.as_ref();
    let prefixes = ["_rjem_", "je_"].into_iter();
    let mut inside = prefixes.filter(|prefix| {
        elf.is_some_and(|elf| elf.contains(&format!("{prefix}malloc_stats_print")))
    });
    inside.next().unwrap_or_default()
}

fn unreadable(user: &str, reason: &str) -> Finding {
    let found = format!(
        "cannot be determined: the process is user {user}'s, and may not be looked into ({reason})"
    );
    let remedy = "as root: sudo millpond doctor --pid PID (in a container: with CAP_SYS_PTRACE)";
    Finding::missing(Section::Allocator, "malloc", found).remedy(remedy)
}

fn running_ns(start_ticks: u64) -> Option<u64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime_s: f64 = uptime.split(' ').next()?.parse().ok()?;
    let started_s = start_ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64;
    Some(((uptime_s - started_s).max(0.0) * 1e9) as u64)
}

fn none(pid: i32) -> RunningError {
    let is_hidden = rustix::process::Pid::from_raw(pid)
        .is_some_and(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::PERM));
    let hint = if is_hidden {
        ": it is another user's, and /proc does not show those (hidepid); as root: sudo millpond doctor --pid PID".to_owned()
    } else if let Some(outer) = elsewhere(pid) {
        format!("; in a container process {outer} has the id {pid}: millpond doctor --pid {outer}")
    } else {
        "; it has ended, or the id is one of a container, where ids are others: there is an own one for each process \
         (NSpid in /proc/*/status)"
            .to_owned()
    };
    RunningError::None { pid, hint }
}

/// The only process here that has this id in a namespace of its own.
fn elsewhere(pid: i32) -> Option<i32> {
    let entries = fs::read_dir(Path::new("/proc")).ok()?;
    let ids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found = ids.filter(|outer| {
        let text: io::Result<String> = fs::read_to_string(format!("/proc/{outer}/status"));
        let text = text.unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let ids: Vec<&str> = line.unwrap_or_default().split_ascii_whitespace().collect();
        ids.len() > 1 && ids.last().is_some_and(|last| last.parse() == Ok(pid))
    });
    let one = found.next()?;
    found.next().is_none().then_some(one)
}
