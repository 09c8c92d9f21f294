//! The second stage: prepares itself, waits for the word, becomes the target.

use std::env::set_current_dir;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Command, ExitCode, Stdio};

use millpond_io::raise_session_priority;
use rustix::process::{Gid, Uid};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{
    CpuSet, disable_transparent_huge_pages, sched_setaffinity, set_thread_gid, set_thread_groups,
    set_thread_uid,
};

use super::LaunchSpec;
use crate::identity::Identity;

/// Exit status when the target could not be started, as a shell has it.
const CANNOT_RUN: u8 = 127;

pub(super) fn run(spec: &LaunchSpec) -> ExitCode {
    let parent = parent_id();
    // A group of its own, which the supervisor signals, and no terminal. It fails only for who leads a group already.
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
    // The log is where the lab looks for last words; if even that fails nobody can be told.
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

/// Returns `Ok` only when told nothing to do: the supervisor went away before the word came.
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
        // Before the user changes, who may not.
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
