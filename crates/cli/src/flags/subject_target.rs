//! What `compare` and `profile` start: our entity server, or the user's behind a URL or a port; and this
//! program itself, which starts it.

use super::url::Url;
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
    /// Where it answers.
    pub(super) url: Option<&'a str>,
    /// Where it listens, if it does not speak HTTP.
    pub(super) port: Option<u16>,
    /// The words after `--`.
    pub(super) command: &'a [OsString],
    /// Whether pools were asked for, which only our own has.
    pub(super) has_pools: bool,
}

impl SubjectTarget<'_> {
    /// The target, or what contradicts itself.
    pub(super) fn target(&self) -> Result<Target, Failure> {
        let url = match self.port {
            Some(port) => Some(format!("http://127.0.0.1:{port}/")),
            None => self.url_with_a_port()?,
        };
        match (url.as_deref(), self.command.is_empty()) {
            (None, true) if cfg!(not(feature = "entity")) => Err(Failure::usage(format!(
                "the server that is {} by default is not in this build (--features entity has it): \
                 name a server of yours, as in `--url http://127.0.0.1:8081/ -- nginx ...`",
                self.verb
            ))),
            (None, true) => Ok(Target::Entity { extra: Vec::new() }),
            (None, false) => Err(Failure::usage(
                "a server of yours needs --url, the address at which it answers; one that does not \
                 speak HTTP needs --port and --load-cmd",
            )),
            (Some(_), true) => Err(Failure::usage("--url needs the server's command after --")),
            (Some(url), false) => self.of_the_user(url),
        }
    }

    /// The URL with a free port for `{port}`; where only the command has that, the root at such a port.
    fn url_with_a_port(&self) -> Result<Option<String>, Failure> {
        let is_placed = self.command.iter().any(|word| has_port_place(word));
        let url = match self.url {
            Some(url) if !url.contains(PORT_PLACE) => return Ok(Some(url.to_owned())),
            None if !is_placed => return Ok(None),
            Some(_) if !is_placed => {
                return Err(Failure::usage(
                    "--url has {port}, and the server's command has not: put it where the command takes its port",
                ));
            }
            Some(url) => url,
            None => "http://127.0.0.1:{port}/",
        };
        let port = millpond_lab::port::choose().map_err(Failure::failed)?;
        Ok(Some(url.replace(PORT_PLACE, &port.to_string())))
    }

    fn of_the_user(&self, url: &str) -> Result<Target, Failure> {
        Url::parse(url).map_err(Failure::usage)?;
        if self.has_pools {
            return Err(Failure::usage(
                "--pools is about our own server: leave it out",
            ));
        }
        let url = millpond_lab::Url::parse(url).map_err(Failure::failed)?;
        Ok(Target::Command {
            words: self.command.to_vec(),
            url,
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
