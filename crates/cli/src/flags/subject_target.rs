//! What `compare` and `profile` start: our entity server, or the user's behind a URL or a port; and this
//! program itself, which starts it.

use super::target_requests::TargetRequestFlags;
use crate::output::Failure;
use millpond_lab::target::{PORT_PLACE, has_port_place};
use millpond_lab::{Launcher, Target};
use std::ffi::OsString;
use std::path::PathBuf;

/// What was said of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubjectTarget<'a> {
    /// `compared` or `profiled`: what becomes of it.
    pub(super) verb: &'a str,
    /// Where it answers, and what it is asked.
    pub(super) requests: &'a TargetRequestFlags,
    /// Where it listens, if it does not speak HTTP.
    pub(super) port: Option<u16>,
    /// Whether a program of the user's loads it.
    pub(super) has_load_command: bool,
    /// The words after `--`.
    pub(super) command: &'a [OsString],
    /// Whether pools were asked for, which only our own has.
    pub(super) has_pools: bool,
}

impl SubjectTarget<'_> {
    /// The target, or what contradicts itself.
    pub(super) fn target(&self) -> Result<Target, Failure> {
        let is_of_the_user =
            self.requests.has_url() || self.port.is_some() || !self.command.is_empty();
        if let Some(flag) = self.requests.first_given() {
            if self.has_load_command {
                return Err(Failure::usage(format!(
                    "{flag} is about our own load, and --load-cmd takes its place: leave out one of both"
                )));
            }
            if !is_of_the_user {
                return Err(Failure::usage(format!(
                    "{flag} is about a server of yours: give --url, and its command after --"
                )));
            }
        }
        let urls = match self.port {
            Some(port) => vec![format!("http://127.0.0.1:{port}/")],
            None => self.urls_with_a_port()?,
        };
        let has_url = !urls.is_empty() || self.requests.has_url();
        match (has_url, self.command.is_empty()) {
            (false, true) if cfg!(not(feature = "entity")) => Err(Failure::usage(format!(
                "the server that is {} by default is not in this build (--features entity has it): \
                 name a server of yours, as in `--url http://127.0.0.1:8081/ -- nginx ...`",
                self.verb
            ))),
            (false, true) => Ok(Target::Entity { extra: Vec::new() }),
            (false, false) => Err(Failure::usage(
                "a server of yours needs --url, the address at which it answers; one that does not \
                 speak HTTP needs --port and --load-cmd",
            )),
            (true, true) => Err(Failure::usage(
                "--url needs the server's command (CMD) after --",
            )),
            (true, false) => self.of_the_user(&urls),
        }
    }

    /// The URLs with a free port for `{port}`, the same in all; where only the command has that, the root at such a
    /// port.
    fn urls_with_a_port(&self) -> Result<Vec<String>, Failure> {
        let is_placed = self.command.iter().any(|word| has_port_place(word));
        let mut urls = self.requests.url.clone();
        if urls.is_empty() && is_placed && !self.requests.has_url() {
            urls.push("http://127.0.0.1:{port}/".to_owned());
        }
        if !urls.iter().any(|url| url.contains(PORT_PLACE)) {
            return Ok(urls);
        }
        if !is_placed {
            return Err(Failure::usage(
                "--url has {port}, and the server's command has not: put it where the command takes its port",
            ));
        }
        let port = millpond_lab::port::choose().map_err(Failure::failed)?;
        let port = port.to_string();
        let placed = urls.iter().map(|url| url.replace(PORT_PLACE, &port));
        Ok(placed.collect())
    }

    fn of_the_user(&self, urls: &[String]) -> Result<Target, Failure> {
        if self.has_pools {
            return Err(Failure::usage(
                "--pools is about our own server: leave it out",
            ));
        }
        Ok(Target::Command {
            words: self.command.to_vec(),
            requests: Box::new(self.requests.requests(urls)?),
        })
    }
}

/// This program as what starts servers.
pub(super) fn launcher() -> Result<Launcher, Failure> {
    Launcher::current()
        .map_err(|error| Failure::failed(format!("this program cannot find its own file: {error}")))
}

/// This program's file.
pub(super) fn own_program() -> Result<PathBuf, Failure> {
    Ok(launcher()?.program)
}
