//! The child side: what `millpond launch` does between the lab and a target.
//!
//! On the path: `subject` starts `millpond launch supervise`, which starts `millpond launch exec`,
//! which becomes the target:
//!
//! ```text
//! lab --stdin/stdout--> supervise --stdin--> exec  ==exec==>  target  -> its workers
//! ```
//!
//! The supervisor owns every process the target ever forks (it is their subreaper), so that none
//! outlives a run: it stops them all on the lab's word, and also when the lab is gone, which it sees
//! as the end of its stdin. The second stage waits for one byte, so that counters can be attached to
//! its process id before the target's first instruction, and only there is `LD_PRELOAD` set: neither
//! the lab nor the supervisor ever run under the allocator that is measured.
//!
//! A stage by itself is `millpond launch probe`: a program of a moment that is started under an allocator and its
//! settings, and says what malloc does there.
//!
//! Absent on purpose: fork, unsafe code, and any measurement.

mod exec;
mod supervise;
mod probe;
mod stop_signal;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::identity::Identity;
pub(crate) use probe::{Place, read_answer};
pub use stop_signal::StopSignal;

/// The stage that asks malloc, see `probe`.
pub(crate) const PROBE_STAGE: &str = "probe";

/// What to run and how: the arguments of both stages.
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
    /// Whom it runs as; `None`: as the lab.
    pub user: Option<Identity>,
    /// Whether the target runs at the highest priority of ordinary tasks; not an error where that is forbidden.
    pub is_raised: bool,
    /// Whether the kernel may give it huge pages it did not ask for; `None`: as the machine has it.
    pub huge_pages: Option<bool>,
    /// The files to write a process id to, to put it into its control groups.
    pub cgroups: Vec<PathBuf>,
    /// What asks the target to end.
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
        return probe::run(words);
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
        b"exec" => exec::run(&spec),
        _ => {
            eprintln!("millpond launch: no stage named; this command is for the lab's own use");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no word of a command line is lost or reinterpreted on its way to the second stage.
    #[test]
    fn spec_survives_its_command_line() {
        let spec = LaunchSpec {
            preload: vec!["/a/first.so".into(), "/b/second one.so".into()],
            cpus: vec![0, 3],
            unset: vec!["MALLOC_CONF".into(), "LD_PRELOAD".into()],
            environment: vec![
                ("A".into(), "1=2".into()),
                ("EMPTY".into(), OsString::new()),
                ("BYTES".into(), OsString::from_vec(vec![0xff, b'=', 0x80])),
            ],
            directory: Some("/some where".into()),
            user: Some(Identity {
                uid: 33,
                gid: 34,
                groups: vec![34, 110],
            }),
            is_raised: true,
            huge_pages: Some(false),
            cgroups: vec![
                "/sys/fs/cgroup/x/cgroup.procs".into(),
                "/sys/fs/cgroup/memory/x/cgroup.procs".into(),
            ],
            stop_signal: StopSignal::Quit,
            log: "/tmp/a log".into(),
            output: Some("/tmp/out".into()),
            command: vec![
                "nginx".into(),
                "--".into(),
                "-g".into(),
                "--cpu".into(),
                "".into(),
            ],
        };
        assert_eq!(LaunchSpec::parse(spec.to_arguments()), Ok(spec));
    }

    /// Goal: wrong words are named.
    #[test]
    fn wrong_words_are_refused() {
        let parse = |words: &[&str]| LaunchSpec::parse(words.iter().map(OsString::from));
        assert!(parse(&["--nonsense", "1", "--", "x"]).is_err_and(|e| e.contains("--nonsense")));
        assert!(parse(&["--cpu", "one", "--", "x"]).is_err());
        assert!(parse(&["--env", "NAME", "--", "x"]).is_err());
        assert!(parse(&["--log"]).is_err());
        assert!(parse(&["--log", "l", "--"]).is_err());
    }
}
