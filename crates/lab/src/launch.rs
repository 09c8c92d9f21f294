//! The child side: what `millpond launch` does between the lab and a target.
//!
//! `subject` starts `millpond launch supervise`, which starts `millpond launch exec`, which becomes
//! the target:
//!
//! ```text
//! lab --stdin/stdout--> supervise --stdin--> exec  ==exec==>  target  -> its workers
//! ```
//!
//! The supervisor owns every process the target ever forks (it is their subreaper), so none outlives a run: it stops
//! them all on the lab's command, and also when its stdin ends because the lab is gone. The second stage waits for one
//! byte, so that counters can be attached to its process id before the target's first instruction, and only there is
//! `LD_PRELOAD` set: neither the lab nor the supervisor ever run under the allocator that is measured.
//!
//! A stage by itself is `millpond launch probe`: a program of a moment that is started under an allocator and its
//! settings, and says what malloc does there.

mod supervise;

use std::env::set_current_dir;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::{fmt, fs, io};

use millpond_io::raise_session_priority;
use rustix::process::{Gid, Signal, Uid, set_parent_process_death_signal, setsid};
use rustix::thread::{
    CpuSet, disable_transparent_huge_pages, sched_setaffinity, set_thread_gid, set_thread_groups,
    set_thread_uid,
};

use crate::identity::Identity;

/// The stage that asks malloc, see `probe`.
pub(crate) const PROBE_STAGE: &str = "probe";

/// The program to run and its settings: the arguments of both stages.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LaunchSpec {
    /// Shared objects for the target's `LD_PRELOAD`, first one first. Empty: the variable is unset.
    pub preload: Vec<PathBuf>,
    /// The only CPUs the target may run on; empty means all.
    pub cpus: Vec<usize>,
    /// Variables of the lab's environment that the target does not get.
    pub unset: Vec<OsString>,
    /// Variables added to the target's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where the target starts; `None`: where the lab runs.
    pub directory: Option<PathBuf>,
    /// The user it runs as; `None`: as the lab.
    pub user: Option<Identity>,
    /// Whether the target runs at the highest priority of ordinary tasks; not an error where that is forbidden.
    pub is_raised: bool,
    /// Whether the kernel may give it huge pages it did not ask for; `None`: as the machine has it.
    pub huge_pages: Option<bool>,
    /// The files to write a process id to, to put it into its control groups.
    pub cgroups: Vec<PathBuf>,
    /// The signal that asks the target to end.
    pub stop_signal: StopSignal,
    /// The file that the target's stdout and stderr are appended to.
    pub log: PathBuf,
    /// A file for stdout alone.
    pub output: Option<PathBuf>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl LaunchSpec {
    /// The command line words that `parse` turns back into this value.
    #[must_use]
    pub fn to_arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = Vec::new();
        for object in &self.preload {
            words.extend(["--preload".into(), object.into()]);
        }
        for procs in &self.cgroups {
            words.extend(["--cgroup".into(), procs.into()]);
        }
        for cpu in &self.cpus {
            words.extend(["--cpu".into(), cpu.to_string().into()]);
        }
        for name in &self.unset {
            words.extend(["--unset".into(), name.clone()]);
        }
        for (name, value) in &self.environment {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            words.extend(["--env".into(), pair]);
        }
        let paths = [("--directory", &self.directory), ("--output", &self.output)];
        for (flag, path) in paths {
            if let Some(path) = path {
                words.extend([flag.into(), path.into()]);
            }
        }
        if let Some(user) = &self.user {
            words.extend(["--user".into(), user.to_word().into()]);
        }
        if let Some(may_have) = self.huge_pages {
            let word = if may_have { "on" } else { "off" };
            words.extend(["--thp".into(), word.into()]);
        }
        if self.is_raised {
            words.extend(["--priority".into(), "highest".into()]);
        }
        words.extend(["--stop-signal".into(), self.stop_signal.name().into()]);
        words.extend(["--log".into(), self.log.clone().into(), "--".into()]);
        words.extend(self.command.iter().cloned());
        words
    }

    /// Reads the words of `to_arguments`; `Err` is a sentence about the first wrong one.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut spec = Self::default();
        let mut words = words.into_iter();
        while let Some(flag) = words.next() {
            if flag == "--" {
                spec.command.extend(words);
                break;
            }
            let value = words
                .next()
                .ok_or_else(|| format!("{} needs a value", flag.display()))?;
            match flag.as_bytes() {
                b"--preload" => spec.preload.push(value.into()),
                b"--log" => spec.log = value.into(),
                b"--directory" => spec.directory = Some(value.into()),
                b"--cgroup" => spec.cgroups.push(value.into()),
                b"--output" => spec.output = Some(value.into()),
                b"--user" => {
                    let user = value.to_str().and_then(Identity::from_word);
                    spec.user = Some(user.ok_or("--user needs UID:GID:GROUPS")?);
                }
                b"--priority" if value == "highest" => spec.is_raised = true,
                b"--thp" => spec.huge_pages = Some(value == "on"),
                b"--stop-signal" => {
                    let signal = value.to_str().and_then(StopSignal::named);
                    spec.stop_signal = signal.ok_or("--stop-signal needs a name")?;
                }
                b"--cpu" => {
                    let cpu = value.to_str().and_then(|text| text.parse().ok());
                    spec.cpus.push(cpu.ok_or("--cpu needs a number")?);
                }
                b"--unset" => spec.unset.push(value),
                b"--env" => spec.environment.push(split_pair(&value)?),
                _ => return Err(format!("unknown flag {}", flag.display())),
            }
        }
        if spec.command.is_empty() {
            return Err("no command after --".to_owned());
        }
        Ok(spec)
    }
}

fn split_pair(pair: &OsStr) -> Result<(OsString, OsString), String> {
    let bytes = pair.as_bytes();
    let equals = bytes
        .iter()
        .position(|&byte| byte == b'=')
        .ok_or("--env needs NAME=VALUE")?;
    Ok((
        OsString::from_vec(bytes[..equals].to_vec()),
        OsString::from_vec(bytes[equals + 1..].to_vec()),
    ))
}

/// The hidden `launch` subcommand: `arguments` are the words after `launch`.
#[must_use]
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut words = arguments.into_iter();
    let stage = words.next().unwrap_or_default();
    if stage == PROBE_STAGE {
        return probe_run(words);
    }
    let spec = match LaunchSpec::parse(words) {
        Ok(spec) => spec,
        Err(sentence) => {
            eprintln!("millpond launch: {sentence}; this command is for the lab's own use");
            return ExitCode::from(2);
        }
    };
    match stage.as_bytes() {
        b"supervise" => supervise::run(&spec),
        b"exec" => run(&spec),
        _ => {
            eprintln!("millpond launch: no stage named; this command is for the lab's own use");
            ExitCode::from(2)
        }
    }
}

// The second stage: prepares itself, waits for the word, becomes the target.

/// Exit status when the target could not be started, as a shell has it.
const CANNOT_RUN: u8 = 127;

fn run(spec: &LaunchSpec) -> ExitCode {
    let parent = parent_id();
    // A group of its own, which the supervisor signals, and no terminal. It fails only for a process that leads a group already.
    let _ = setsid();
    let mut log = match OpenOptions::new().create(true).append(true).open(&spec.log) {
        Ok(log) => log,
        Err(error) => {
            eprintln!(
                "millpond launch: cannot write the log {}: {error}",
                spec.log.display()
            );
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let error = match become_target(spec, parent, &log) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(error) => error,
    };
    let program = spec
        .command
        .first()
        .map(|word| word.display().to_string())
        .unwrap_or_default();
    // The lab reads last messages from the log; if even that fails there is nowhere to report.
    let _ = writeln!(log, "millpond launch: cannot run {program}: {error}");
    ExitCode::from(CANNOT_RUN)
}

/// Groups first: a user without privileges cannot change them. This process has one thread.
fn become_user(user: &Identity) -> io::Result<()> {
    let groups: Vec<Gid> = user.groups.iter().map(|&id| Gid::from_raw(id)).collect();
    set_thread_groups(&groups)
        .and_then(|()| set_thread_gid(Gid::from_raw(user.gid)))
        .and_then(|()| set_thread_uid(Uid::from_raw(user.uid)))
        .map_err(|error| {
            let why = format!("it cannot run as user {}: {error}; only root may", user.uid);
            io::Error::new(io::ErrorKind::PermissionDenied, why)
        })
}

/// Returns `Ok` only without a command to run: the supervisor ended before sending one.
fn become_target(spec: &LaunchSpec, parent: u32, log: &File) -> io::Result<()> {
    for procs in &spec.cgroups {
        fs::write(procs, std::process::id().to_string())?;
    }
    let output = match &spec.output {
        Some(path) => File::create(path)?,
        None => log.try_clone()?,
    };
    if let Some(directory) = &spec.directory {
        set_current_dir(directory)?;
    }
    if let Some(may_have) = spec.huge_pages {
        disable_transparent_huge_pages(!may_have)?;
    }
    if spec.is_raised {
        // Before the user changes, which may not.
        let _ = raise_session_priority();
    }
    if let Some(user) = &spec.user {
        become_user(user)?;
    }
    // Only now: the kernel forgets it when the user changes. The supervisor can only die first if it
    // is killed with SIGKILL; then the target goes too.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if parent_id() != parent {
        return Ok(());
    }
    if !spec.cpus.is_empty() {
        let mut set = CpuSet::new();
        for &cpu in &spec.cpus {
            set.set(cpu);
        }
        sched_setaffinity(None, &set)?;
    }
    if io::stdin().read(&mut [0_u8])? == 0 {
        return Ok(());
    }
    let mut words = spec.command.iter();
    let Some(program) = words.next() else {
        return Ok(());
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(log.try_clone()?);
    for name in &spec.unset {
        command.env_remove(name);
    }
    command.envs(spec.environment.iter().map(|(name, value)| (name, value)));
    // Whatever the lab's user preloads into the lab reaches a target only by the list: every candidate gets
    // exactly its own allocator.
    command.env_remove("LD_PRELOAD");
    if !spec.preload.is_empty() {
        let objects: Vec<_> = spec
            .preload
            .iter()
            .map(|object| object.as_os_str())
            .collect();
        command.env("LD_PRELOAD", objects.join(std::ffi::OsStr::new(":")));
    }
    Err(command.exec())
}

// The behaviour of malloc in a program that is started under an allocator and its settings.
//
// `millpond launch probe BYTES...` allocates a block of each size and says where it lies: in the heap that grows
// at the end of the program's data, or in a mapping. `allocator::settings_effect` starts it, to learn whether a setting
// that was taken changes anything; what the allocator itself writes to stderr is of use there too.

/// More than the heap of a small program has left.
const FILLED_BYTES: usize = 1 << 20;
/// Bound on small blocks.
const BLOCKS_MAX: usize = 1024;

/// Where a block lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum BlockOrigin {
    /// In the heap at the end of the program's data.
    Heap,
    /// In a mapping: of its own or of an arena.
    Mapping,
    /// There was no memory for it, or malloc here is not the C library's or a preloaded one.
    Unknown,
}

impl BlockOrigin {
    const ALL: [Self; 3] = [Self::Heap, Self::Mapping, Self::Unknown];
}

impl fmt::Display for BlockOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Heap => "heap",
            Self::Mapping => "mapping",
            Self::Unknown => "unknown",
        })
    }
}

/// The words are sizes in bytes; one line is written for each.
fn probe_run(words: impl Iterator<Item = OsString>) -> ExitCode {
    for word in words {
        let Some(bytes) = word.to_str().and_then(|text| text.parse().ok()) else {
            eprintln!("millpond launch probe: {} is no size", word.display());
            return ExitCode::from(2);
        };
        println!("{bytes} {}", place_of_block(bytes));
    }
    ExitCode::SUCCESS
}

/// Where the last of a few blocks lies: the first ones fill what the heap had left, which malloc uses up
/// whatever its settings are.
fn place_of_block(bytes: usize) -> BlockOrigin {
    let count = (FILLED_BYTES / bytes.max(1)).clamp(1, BLOCKS_MAX);
    // Never written to, so they cost address space alone.
    let mut blocks: Vec<Vec<u8>> = Vec::with_capacity(count);
    for _ in 0..count {
        let mut block = Vec::new();
        if block.try_reserve_exact(bytes).is_err() {
            return BlockOrigin::Unknown;
        }
        blocks.push(block);
    }
    let Some(address) = black_box(&blocks)
        .last()
        .map(|block| block.as_ptr().addr() as u64)
    else {
        return BlockOrigin::Unknown;
    };
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    // A program that is linked statically has no other malloc than its own.
    if !maps.contains("/libc.so.6") && !maps.contains("/libc-2.") {
        return BlockOrigin::Unknown;
    }
    let is_heap = maps
        .lines()
        .filter(|line| line.ends_with("[heap]"))
        .filter_map(range)
        .any(|(start, end)| (start..end).contains(&address));
    match is_heap {
        true => BlockOrigin::Heap,
        false => BlockOrigin::Mapping,
    }
}

/// `55d0c000-55d0e000 rw-p ...`
fn range(line: &str) -> Option<(u64, u64)> {
    let (start, rest) = line.split_once('-')?;
    let end = rest.split(' ').next()?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some((number(start)?, number(end)?))
}

/// Where the block of `bytes` was, in what the probe wrote.
pub(crate) fn read_answer(said: &str, bytes: u64) -> Option<BlockOrigin> {
    let bytes = bytes.to_string();
    said.lines().find_map(|line| {
        let (size, place) = line.split_once(' ')?;
        let place = BlockOrigin::ALL
            .into_iter()
            .find(|one| one.to_string() == place)?;
        (size == bytes).then_some(place)
    })
}

// The signal that asks a target to end: SIGTERM for most, SIGQUIT for those that finish their work first (nginx).

/// A signal by name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
}

impl StopSignal {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Term,
        Self::Int,
        Self::Quit,
        Self::Hup,
        Self::Usr1,
        Self::Usr2,
    ];

    /// `TERM` or `SIGTERM`, in either case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_uppercase();
        let short = name.strip_prefix("SIG").unwrap_or(&name);
        Self::ALL.into_iter().find(|signal| signal.name() == short)
    }

    /// Without SIG.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Int => "INT",
            Self::Quit => "QUIT",
            Self::Hup => "HUP",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
        }
    }

    const fn signal(self) -> Signal {
        match self {
            Self::Term => Signal::TERM,
            Self::Int => Signal::INT,
            Self::Quit => Signal::QUIT,
            Self::Hup => Signal::HUP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
        }
    }
}

#[cfg(test)]
#[path = "tests/launch.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/launch_probe.rs"]
mod probe_tests;

#[cfg(test)]
#[path = "tests/stop_signal.rs"]
mod stop_signal_tests;
