//! Why a run did not start or could not continue.
//!
//! A request that fails is not an error here: it is counted by phase in the record.

use std::path::PathBuf;
use std::sync::Arc;

use millpond_http::{BodyError, ClientError, ParseError};
use millpond_io::connection_pool::HandshakeError;
use millpond_io::{Address, Errno, IoError};
use millpond_measure::record::{LoadErrors, LoadFailure, LoadFailureExample, LoadFailureKind};
use millpond_mempool::PoolError;

/// A run that has nothing to report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting contradicts itself; nothing was connected.
    #[error("{name}: {problem}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// The mistake and the remedy.
        problem: String,
    },
    /// No connection came up; no request was sent.
    #[error(
        "cannot connect to {}: {cause}; check that the server is running and the address is right",
        in_words(addresses)
    )]
    Unreachable {
        /// Those of the target; each was tried.
        addresses: Arc<[Address]>,
        /// The last failure seen.
        cause: ConnectFailure,
    },
    /// More connections than this process may open files; none was opened.
    #[error(
        "{connections} connections need {needed} open files, and this process may open {open_max}: ask for at most \
         {room} connections, or raise the limit (`ulimit -n {needed}` as root, or LimitNOFILE={needed} in a systemd unit)"
    )]
    FewDescriptors {
        /// Connections asked for.
        connections: u64,
        /// Connections that there are descriptors for.
        room: u64,
        /// Files that may be open.
        open_max: u64,
        /// Files that would be.
        needed: u64,
    },
    /// More connections than there are local ports towards one target; none was opened.
    #[error(
        "{connections} connections to one address need as many local ports, and {sources} source address(es) have \
         {ports} ports each (net.ipv4.ip_local_port_range): give --source at least {sources_needed} addresses"
    )]
    FewPorts {
        /// Connections asked for.
        connections: u64,
        /// Ports of one source address.
        ports: u64,
        /// Source addresses there are.
        sources: u128,
        /// Source addresses that would do.
        sources_needed: u64,
    },
    /// The operating system refused something the generator cannot do without.
    #[error(transparent)]
    Io(#[from] IoError),
    /// No memory for the generator itself.
    #[error("the load generator: {0}")]
    Pool(#[from] PoolError),
    /// A script could not be loaded, or its first request is none.
    #[error("the script {}: {problem}", file.display())]
    Script {
        /// Which.
        file: PathBuf,
        /// Where and what.
        problem: String,
    },
    /// A thread could not be started.
    #[error("cannot start a load thread: {0}; use fewer threads")]
    Thread(#[from] std::io::Error),
    /// A load thread panicked, which is a bug of ours.
    #[error(
        "a load thread failed: {message}; this is a bug in the load generator, please report it"
    )]
    Bug {
        /// Its message.
        message: String,
    },
}

fn in_words(addresses: &[Address]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" or ")
}

/// The part of a command line that would let the handshake succeed.
const fn flags_against(failure: HandshakeError) -> &'static str {
    match failure {
        HandshakeError::CertificateName => " (--sni, or --insecure)",
        HandshakeError::CertificateAuthority => " (--ca, or --insecure)",
        HandshakeError::CertificateExpired | HandshakeError::Certificate => " (or --insecure)",
        _ => "",
    }
}

/// Why a connection did not come up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ConnectFailure {
    /// The kernel said no.
    #[error("{0}")]
    Refused(Errno),
    /// The connection stood and TLS did not come about.
    #[error("the TLS handshake failed: {0}{flags}", flags = flags_against(*.0))]
    Handshake(HandshakeError),
    /// No server responded.
    #[error("no response within {} ms", timeout_ns / 1_000_000)]
    TimedOut {
        /// How long was waited.
        timeout_ns: u64,
    },
}

// Why requests failed, by kind, with the first of each kind as an example. Nothing here is on the path of a successful
// request.

/// Bytes of a response that an example keeps.
const EXAMPLE_BYTES_MAX: usize = 64;
const KINDS: usize = LoadFailureKind::ALL.len();

/// The causes of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureCauses {
    /// Of connections that were not opened: how many failed in the handshake.
    pub(crate) tls: u64,
    /// Of requests that failed while a response was awaited: those whose response is no HTTP.
    framing: u64,
    /// Of the same: those whose response is too large.
    limit: u64,
    /// At most one of each kind.
    first: [Option<LoadFailureExample>; KINDS],
}

impl FailureCauses {
    /// Keeps the first failure of each kind, at `at_ns` of the clock.
    #[cold]
    pub(crate) fn note(
        &mut self,
        kind: LoadFailureKind,
        at_ns: u64,
        connection: usize,
        what: impl FnOnce() -> String,
        bytes: &[u8],
    ) {
        let first = &mut self.first[kind.index()];
        if first.is_none() {
            let shown = &bytes[..bytes.len().min(EXAMPLE_BYTES_MAX)];
            *first = Some(LoadFailureExample {
                at_ns,
                connection: connection as u64,
                what: what(),
                bytes: shown.escape_ascii().to_string(),
            });
        }
    }

    /// So many requests failed because of a response of this kind; others are read errors.
    pub(crate) fn count(&mut self, kind: LoadFailureKind, requests: u64) {
        match kind {
            LoadFailureKind::Framing => self.framing += requests,
            LoadFailureKind::Limit => self.limit += requests,
            _ => {}
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.tls += other.tls;
        self.framing += other.framing;
        self.limit += other.limit;
        for (mine, theirs) in self.first.iter_mut().zip(&other.first) {
            let is_earlier = match (&*mine, theirs) {
                (Some(mine), Some(theirs)) => theirs.at_ns < mine.at_ns,
                (None, Some(_)) => true,
                _ => false,
            };
            if is_earlier {
                mine.clone_from(theirs);
            }
        }
    }

    /// Each kind that occurred; examples count from `start_ns`.
    pub(crate) fn list(&self, errors: &LoadErrors, start_ns: u64) -> Vec<LoadFailure> {
        let tls = self.tls.min(errors.connect);
        let (framing, limit) = (self.framing, self.limit);
        let counts = [
            errors.connect - tls,
            tls,
            errors.write,
            errors.read.saturating_sub(framing + limit),
            framing,
            limit,
            errors.timeout,
            errors.status,
            errors.validation,
        ];
        let kinds = LoadFailureKind::ALL.into_iter().zip(counts);
        kinds
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| LoadFailure {
                kind,
                count,
                first: self.first[kind.index()].clone().map(|first| {
                    let at_ns = first.at_ns.saturating_sub(start_ns);
                    LoadFailureExample { at_ns, ..first }
                }),
            })
            .collect()
    }
}

/// The kind of failure of a response that the parser refuses.
pub(crate) fn kind_of(error: &ClientError) -> LoadFailureKind {
    match error {
        ClientError::ClosedEarly { .. } => LoadFailureKind::Read,
        ClientError::Head(
            ParseError::HeadTooLong { .. }
            | ParseError::TooManyFields { .. }
            | ParseError::TrailerTooLong { .. }
            | ParseError::BodyTooLong { .. },
        )
        | ClientError::Body(
            BodyError::TooLong { .. }
            | BodyError::ChunkExtensionTooLong { .. }
            | BodyError::TooManyTrailers { .. }
            | BodyError::TrailerTooLong { .. },
        )
        | ClientError::Pool(_) => LoadFailureKind::Limit,
        _ => LoadFailureKind::Framing,
    }
}

/// Why a response is not taken, with the flag where one decides it.
pub(crate) fn sentence_of(error: &ClientError) -> String {
    match error {
        ClientError::Head(ParseError::HeadTooLong { limit_bytes }) => {
            format!("head over {limit_bytes} bytes, the limit of --max-response-header")
        }
        ClientError::Head(ParseError::TooManyFields { limit }) => {
            format!("header section with more than {limit} fields")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "tests/failure_causes.rs"]
mod failure_causes_tests;
