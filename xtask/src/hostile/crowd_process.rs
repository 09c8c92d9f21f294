//! The process with the hostile clients, from the side of its parent; see `crowd` for the other.

use super::attack::Attack;
use super::subject::Subject;
use crate::bench::command::lasting;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process with the hostile clients; dropping it ends it.
pub(super) struct CrowdProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl CrowdProcess {
    pub(super) fn start(
        attack: &Attack,
        subject: &Subject,
        cpu: usize,
        count: usize,
    ) -> Result<Self, String> {
        let myself = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
        let mut command: Command = lasting(cpu);
        command.args(["nice", "-n", "10"]).arg(myself);
        command.args(["hostile-crowd", attack.name]);
        command.args([subject.address.to_string(), count.to_string()]);
        let cannot = |what: &str| format!("the crowd has no {what}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or_else(|| cannot("stdout"))?;
        Ok(Self {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        })
    }

    pub(super) fn wait_ready(&mut self) -> Result<(), String> {
        let mut line = String::new();
        match self.stdout.read_line(&mut line) {
            Ok(_) if line == "ready\n" => Ok(()),
            other => Err(format!("the crowd is not ready: {other:?} {line}")),
        }
    }

    pub(super) fn finish(&mut self) -> Result<Value, String> {
        drop(self.stdin.take());
        let mut text = String::new();
        let read = self.stdout.read_to_string(&mut text);
        read.map_err(|error| format!("the crowd's tally: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("the crowd's tally {text}: {error}"))
    }
}

impl Drop for CrowdProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
