//! Why a run did not start or could not go on.
//!
//! A request that fails is not an error here: it is counted by phase in the record.
use millpond_io::connection_pool::HandshakeError;
use millpond_io::{Address, Errno, IoError};
use millpond_mempool::PoolError;
use std::path::PathBuf;
use std::sync::Arc;

/// A run that has nothing to report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting contradicts itself; nothing was connected.
    #[error("{name}: {problem}")]
    Setting {
        /// Which setting.
        name: &'static str,
        /// What is wrong and what would be right.
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
        /// What it said.
        message: String,
    },
}

fn in_words(addresses: &[Address]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" or ")
}

/// What of a command line would let the handshake succeed.
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
    /// Nobody answered.
    #[error("no answer within {} ms", timeout_ns / 1_000_000)]
    TimedOut {
        /// How long was waited.
        timeout_ns: u64,
    },
}
