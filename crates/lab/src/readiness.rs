//! How it is detected that a starting target serves: an HTTP response, an open port, or a line of its log. `subject`
//! asks until it serves, or the time limit is reached.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use millpond_io::Address;
use regex::Regex;

use crate::endpoint::connects;
use crate::probe::{NotReady, Probe};

/// The question for a starting target. The log is where its output goes.
pub trait ReadyCheck: fmt::Display {
    /// `Ok` if it serves.
    fn ask(&self, log: &Path) -> Result<(), NotReady>;
}

impl ReadyCheck for Probe {
    fn ask(&self, _: &Path) -> Result<(), NotReady> {
        Self::ask(self)
    }
}

/// The user's choice.
#[derive(Clone, Debug, Default)]
pub enum Ready {
    /// One GET; of another path than the one that is measured, if there is one.
    #[default]
    Http,
    /// The same of a path of its own.
    HttpPath(String),
    /// A connection.
    Port,
    /// A line of the log.
    Log(Regex),
}

impl Ready {
    /// Reads `http`, `http:/path`, `port` or `log:REGEX`; `Err` is a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "http" => Ok(Self::Http),
            None if text == "port" => Ok(Self::Port),
            Some(("http", path)) if path.starts_with('/') => Ok(Self::HttpPath(path.to_owned())),
            Some(("log", pattern)) if !pattern.is_empty() => Regex::new(&format!("(?m){pattern}"))
                .map(Self::Log)
                .map_err(|error| format!("the pattern {pattern:?} is none: {error}")),
            _ => Err(format!(
                "{text:?} is none of http, http:/path, port, log:REGEX"
            )),
        }
    }

    /// The question for a target that is measured by `probe`.
    #[must_use]
    pub fn check(&self, probe: Probe) -> Box<dyn ReadyCheck> {
        match self {
            Self::Http => Box::new(probe),
            Self::HttpPath(path) => Box::new(Probe {
                path: path.clone(),
                ..probe
            }),
            Self::Port => Box::new(Port(probe.addresses)),
            Self::Log(pattern) => Box::new(LogLine(pattern.clone())),
        }
    }
}

struct Port(Arc<[Address]>);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.0.iter().map(Address::to_string).collect();
        f.write_str(&addresses.join(" or "))
    }
}

impl ReadyCheck for Port {
    fn ask(&self, _: &Path) -> Result<(), NotReady> {
        let mut refused = String::new();
        for address in &*self.0 {
            match connects(address) {
                Ok(()) => return Ok(()),
                Err(error) => refused = error.to_string(),
            }
        }
        Err(NotReady::NotYet(refused))
    }
}

struct LogLine(Regex);

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its log, where /{}/ was looked for",
            self.0.as_str().trim_start_matches("(?m)")
        )
    }
}

impl ReadyCheck for LogLine {
    fn ask(&self, log: &Path) -> Result<(), NotReady> {
        let written = fs::read(log).unwrap_or_default();
        if self.0.is_match(&String::from_utf8_lossy(&written)) {
            return Ok(());
        }
        Err(NotReady::NotYet("no line of its log matches".to_owned()))
    }
}

#[cfg(test)]
#[path = "tests/readiness.rs"]
mod tests;
