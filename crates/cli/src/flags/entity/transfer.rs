//! `entity export` and `entity import`: of directories and of servers, as lines of JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use millpond_entity::export::{Exported, Skipped, export};
use millpond_entity::import::{Imported, import};
use millpond_io::tls::{TlsClient, TlsClientOptions, Trust};

use super::http_client::Server;
use super::remote;
use crate::flags::url::Url;
use crate::output::{self, Exit, Failure, JsonFile};

/// So many things that are skipped are told one by one.
const TOLD_MAX: u64 = 100;

/// A directory, or a server.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Directory(PathBuf),
    Server(Url),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains("://") {
            return Ok(Self::Directory(PathBuf::from(text)));
        }
        let url = Url::parse(text)?;
        match url.path.contains('?') {
            true => Err("the URL of a server has no query".to_owned()),
            false => Ok(Self::Server(url)),
        }
    }
}

#[derive(Args, Debug)]
pub(super) struct Export {
    /// The data directory, the backup, or the URL of a server (http:// or https://, HOST:PORT)
    #[arg(value_name = "DIR|URL")]
    from: Place,
    /// Write to FILE instead of stdout
    #[arg(long, value_name = "FILE", value_parser = JsonFile::parse)]
    output: Option<JsonFile>,
    /// Send the token in FILE, one of the server's --read-tokens or --write-tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// https: trust only the authorities in this PEM file, not the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct Import {
    /// The data directory, which is made if need be, or the URL of a server (http:// or https://, HOST:PORT)
    #[arg(value_name = "DIR|URL")]
    into: Place,
    /// What `export` wrote; without it, stdin
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send the token in FILE, one of the server's --write-tokens
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// https: trust only the authorities in this PEM file, not the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Export {
    /// Where the engine may abort.
    pub(super) fn directory(&self) -> Option<&Path> {
        directory(&self.from)
    }

    pub(super) fn run(&self) -> Result<Exit, Failure> {
        let authorization = authorization(self.token_file.as_deref(), &self.from)?;
        let tls = tls(self.ca.as_deref(), &self.from)?;
        let mut out: Box<dyn Write> = match &self.output {
            Some(file) => Box::new(file.create()?),
            None => Box::new(io::stdout().lock()),
        };
        let done = match &self.from {
            Place::Directory(data) => {
                super::existing(data)?;
                export(data, &mut out, &mut Told::default().teller()).map_err(Failure::failed)?
            }
            Place::Server(url) => {
                let mut out = BufWriter::new(out);
                let server = Server {
                    url,
                    tls: tls.as_ref(),
                    authorization: authorization.as_deref(),
                };
                let done = remote::export(server, &mut out);
                done.and_then(|done| {
                    out.flush()
                        .map(|()| done)
                        .map_err(|error| error.to_string())
                })
                .map_err(Failure::failed)?
            }
        };
        let Exported {
            entities,
            bytes,
            ended,
            skipped,
        } = done;
        output::note(format_args!(
            "{entities} entities of {bytes} bytes are exported; {ended} have ended"
        ));
        match skipped {
            0 => Ok(Exit::Success),
            _ => Err(Failure::failed(format_args!(
                "the export is not whole: data is lost, or cannot be read (skipped: {skipped})"
            ))),
        }
    }
}

/// What is skipped, in lines on stderr.
#[derive(Default)]
struct Told(u64);

impl Told {
    fn teller(mut self) -> impl FnMut(&Skipped<'_>) {
        move |skipped| {
            self.0 += 1;
            match self.0 {
                ..=TOLD_MAX => output::warn(format_args!("skipped: {skipped}")),
                count if count == TOLD_MAX + 1 => output::warn("skipped: more, which are counted"),
                _ => {}
            }
        }
    }
}

impl Import {
    /// Where the engine may abort.
    pub(super) fn directory(&self) -> Option<&Path> {
        directory(&self.into)
    }

    pub(super) fn run(&self) -> Result<Exit, Failure> {
        let authorization = authorization(self.token_file.as_deref(), &self.into)?;
        let tls = tls(self.ca.as_deref(), &self.into)?;
        let mut input = self.input()?;
        let Imported {
            entities,
            ended,
            skipped,
        } = match &self.into {
            Place::Directory(data) => import(data, &mut input).map_err(Failure::failed)?,
            Place::Server(url) => {
                let server = Server {
                    url,
                    tls: tls.as_ref(),
                    authorization: authorization.as_deref(),
                };
                remote::import(server, &mut input).map_err(Failure::failed)?
            }
        };
        output::print(format_args!(
            "{entities} entities are imported; {ended} have ended\n"
        ))?;
        if skipped > 0 {
            output::warn(format_args!(
                "the export itself was not whole (skipped: {skipped})"
            ));
        }
        Ok(Exit::Success)
    }

    fn input(&self) -> Result<Box<dyn BufRead>, Failure> {
        match &self.file {
            None => Ok(Box::new(io::stdin().lock())),
            Some(path) => match File::open(path) {
                Ok(file) => Ok(Box::new(BufReader::with_capacity(64 << 10, file))),
                Err(error) => Err(Failure::usage(format_args!(
                    "{} cannot be read: {error}",
                    path.display()
                ))),
            },
        }
    }
}

fn directory(place: &Place) -> Option<&Path> {
    match place {
        Place::Directory(path) => Some(path),
        Place::Server(_) => None,
    }
}

/// TLS towards a server whose URL asks for it.
fn tls(ca: Option<&Path>, place: &Place) -> Result<Option<TlsClient>, Failure> {
    let url = match place {
        Place::Server(url) if url.is_tls => url,
        _ if ca.is_some() => return Err(Failure::usage("--ca is for https:// URLs")),
        _ => return Ok(None),
    };
    let options = TlsClientOptions {
        identity: None,
        host: url.host().to_owned(),
        trust: ca.map_or(Trust::System, |file| Trust::File(file.to_owned())),
        protocols: vec![b"http/1.1".to_vec()],
        // Of a driver's handshakes: these are bounded by the socket's timeouts.
        handshake_timeout_ns: u64::MAX,
        handshake_bytes_max: usize::MAX,
    };
    TlsClient::load(options).map(Some).map_err(Failure::failed)
}

/// The value of the Authorization field. The first token of the file; a file of the server's will do.
fn authorization(file: Option<&Path>, place: &Place) -> Result<Option<String>, Failure> {
    let url = match (place, file) {
        (Place::Server(url), _) => url,
        (Place::Directory(_), None) => return Ok(None),
        (Place::Directory(_), Some(_)) => {
            return Err(Failure::usage(
                "--token-file is for a URL: directories take none",
            ));
        }
    };
    let Some(file) = file else {
        return Ok(url.authorization.clone());
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::InvalidData => "it is no text".to_owned(),
            _ => error.to_string(),
        };
        Failure::usage(format_args!("{} cannot be read: {reason}", file.display()))
    })?;
    let mut lines = text.lines().map(str::trim);
    match lines.find(|line| !line.is_empty() && !line.starts_with('#')) {
        Some(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Some(format!("Bearer {token}")))
        }
        _ => Err(Failure::usage(format_args!(
            "{} holds no token",
            file.display()
        ))),
    }
}
