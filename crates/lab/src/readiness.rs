//! How it is told that a starting target serves: an HTTP answer, an open port, or a line of its log.
//! `subject` asks until the answer is yes, or its patience ends.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use millpond_io::Address;
use regex::Regex;

use crate::endpoint::connects;
use crate::probe::{NotReady, Probe};

/// What is asked of a target that starts. The log is where its output goes.
pub trait ReadyCheck: fmt::Display {
    /// `Ok` if it serves.
    fn ask(&self, log: &Path) -> Result<(), NotReady>;
}

impl ReadyCheck for Probe {
    fn ask(&self, _: &Path) -> Result<(), NotReady> {
        Self::ask(self)
    }
}

/// What the user wants asked.
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
mod tests {
    use super::*;
    use std::net::{SocketAddr, TcpListener, TcpStream};

    fn probe(address: SocketAddr) -> Probe {
        Probe {
            addresses: [Address::Inet(address)].into(),
            host: "h".to_owned(),
            path: "/".to_owned(),
            tls: None,
        }
    }

    /// Goal: an open port is enough for `port`, and a matching line for `log`.
    #[test]
    fn ports_and_lines_tell() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let port = Ready::parse("port").unwrap().check(probe(address));
        assert_eq!(port.ask(&log), Ok(()));
        // The near end of a connection: nobody listens there, and nobody else gets the port.
        let kept = TcpStream::connect(address).unwrap();
        let refusing = probe(kept.local_addr().unwrap());
        let port = Ready::parse("port").unwrap().check(refusing);
        assert!(port.ask(&log).is_err());
        let line = Ready::parse("log:^Ready to accept")
            .unwrap()
            .check(probe(address));
        assert!(line.ask(&log).is_err());
        fs::write(&log, "starting\nnot Ready to accept\n").unwrap();
        assert!(line.ask(&log).is_err());
        fs::write(&log, "starting\nReady to accept connections\n").unwrap();
        assert_eq!(line.ask(&log), Ok(()));
        let path = Ready::parse("http:/health").unwrap().check(probe(address));
        assert!(path.to_string().ends_with("/health"));
    }

    #[test]
    fn wrong_words_are_named() {
        for text in ["", "https", "http:health", "port:1", "log:", "log:("] {
            assert!(Ready::parse(text).is_err(), "{text}");
        }
    }
}
