//! How a server of the user's is started, asked whether it serves, and stopped.

use crate::flags::accuracy::parse_switch;
use crate::flags::{parse_bytes, parse_duration_ns};
use crate::output::Failure;
use clap::{ArgAction, Args};
use millpond_lab::identity::Identity;
use millpond_lab::launch::StopSignal;
use millpond_lab::readiness::Ready;
use millpond_lab::{IdleCpus, Inherited, SubjectOptions};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

// No doc comment: clap would show it as what the command does.
#[derive(Args, Debug)]
#[command(next_help_heading = "Your server")]
pub(in crate::flags) struct SubjectFlags {
    /// How to tell that it serves: http, http:/PATH, port, or log:REGEX for a line of its output [default:
    /// http with --url, port with --port]
    #[arg(long, value_name = "HOW", value_parser = Ready::parse, requires = "command")]
    pub(in crate::flags) ready: Option<Ready>,
    /// Longest it may take until then
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, requires = "command")]
    pub(in crate::flags) ready_within: Option<u64>,
    /// A variable for its environment; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_pair, requires = "command")]
    environment: Vec<(OsString, OsString)>,
    /// Keep the shell's variables that change allocators (MALLOC_*, GLIBC_TUNABLES, MIMALLOC_*, TCMALLOC_*,
    /// LD_PRELOAD and the like) for every candidate [default: no candidate gets them]
    #[arg(long)]
    keep_env: bool,
    /// The directory it starts in
    #[arg(long, value_name = "DIR", requires = "command")]
    workdir: Option<PathBuf>,
    /// The user it runs as; needs root
    #[arg(long, value_name = "USER", value_parser = Identity::find, requires = "command")]
    user: Option<Identity>,
    /// Its CPUs, as in 0,2-3 [default: all but the last quarter]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    server_cpus: Option<Cpus>,
    /// The load's CPUs [default: the last quarter, at least one]
    #[arg(long, value_name = "CPUS", value_parser = parse_cpus)]
    load_cpus: Option<Cpus>,
    /// Whether server and load are bound to their CPUs: on or off. Allocators and runtimes size themselves by the CPUs
    /// they may use, and a bound server may use few
    #[arg(long, value_name = "on|off", value_parser = parse_switch, action = ArgAction::Set, default_value = "on",
        conflicts_with_all = ["server_cpus", "load_cpus"])]
    pin: bool,
    /// What CPUs do that have nothing to do: awake, asleep as the system has it, or auto: awake in a
    /// virtual machine, where the host takes those that sleep; needs root
    #[arg(long, value_name = "STATE", value_parser = parse_idle_cpus, default_value = "auto")]
    idle_cpus: IdleCpus,
    /// What asks it to end: TERM, INT, QUIT, HUP, USR1 or USR2
    #[arg(long, value_name = "SIGNAL", value_parser = parse_signal, default_value = "TERM")]
    stop_signal: StopSignal,
    /// How long it has until it is killed
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s")]
    stop_within: u64,
    /// Most memory that all its processes may hold together, page cache included, as a container's limit: beyond it the
    /// kernel kills one of them, and the candidate is told of as killed. Needs a control group that counts memory (root)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    memory_limit: Option<u64>,
    /// Huge pages that the kernel gives without being asked, where the machine's mode says so: off for every candidate,
    /// or on again if the shell has them off [default: as the machine has it]
    #[arg(long, value_name = "on|off", value_parser = parse_switch)]
    thp: Option<bool>,
    /// A shell command that has to succeed, and to print the same under every allocator, before
    /// anything is timed
    #[arg(long, value_name = "CMD", requires = "command")]
    check_cmd: Option<String>,
}

/// A list as one value, for clap takes several for several flags.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Cpus(Vec<usize>);

impl SubjectFlags {
    /// `is_http`: the server answers at a URL.
    pub(in crate::flags) fn options(&self, is_http: bool) -> Result<SubjectOptions, Failure> {
        let ready = match &self.ready {
            Some(Ready::Http | Ready::HttpPath(_)) if !is_http => {
                return Err(Failure::usage(
                    "--ready http needs --url; with --port write port or log:REGEX",
                ));
            }
            Some(ready) => ready.clone(),
            None if is_http => Ready::Http,
            None => Ready::Port,
        };
        Ok(SubjectOptions {
            environment: self.environment.clone(),
            inherited: Inherited::of_this_process(self.keep_env),
            directory: self.workdir.clone(),
            user: self.user.clone(),
            ready,
            server_cpus: self.server_cpus.clone().map(|cpus| cpus.0),
            load_cpus: self.load_cpus.clone().map(|cpus| cpus.0),
            is_pinned: self.pin,
            idle_cpus: self.idle_cpus,
            stop_signal: self.stop_signal,
            stop_grace: Duration::from_nanos(self.stop_within),
            memory_limit_bytes: self.memory_limit,
            huge_pages: self.thp,
            check: self.check_cmd.clone(),
        })
    }
}

fn parse_pair(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn parse_signal(text: &str) -> Result<StopSignal, String> {
    StopSignal::named(text).ok_or_else(|| "write TERM, INT, QUIT, HUP, USR1 or USR2".to_owned())
}

fn parse_idle_cpus(text: &str) -> Result<IdleCpus, String> {
    match text {
        "auto" => Ok(IdleCpus::Auto),
        "awake" => Ok(IdleCpus::Awake),
        "asleep" => Ok(IdleCpus::Asleep),
        _ => Err("write auto, awake or asleep".to_owned()),
    }
}

/// `0,2-3`.
fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let wrong = || "write CPUs as in 0,2-3".to_owned();
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.trim().parse().map_err(|_| wrong())?;
        let last: usize = last.trim().parse().map_err(|_| wrong())?;
        // More than any machine has.
        if last < first || last > 65_535 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(Cpus(cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_pairs() {
        assert_eq!(parse_cpus("2-3,0,3"), Ok(Cpus(vec![0, 2, 3])));
        for text in ["", "3-1", "x", "1,", "0-99999999"] {
            assert!(parse_cpus(text).is_err(), "{text}");
        }
        assert_eq!(parse_pair("A=b=c"), Ok(("A".into(), "b=c".into())));
        assert!(parse_pair("=x").is_err() && parse_pair("x").is_err());
        assert!(parse_signal("KILL").is_err());
        assert_eq!(parse_idle_cpus("awake"), Ok(IdleCpus::Awake));
        assert!(parse_idle_cpus("tired").is_err());
    }
}
