//! State shared by all shards of a server: certificates, ticket keys, and how to reload them.
//!
//! Shards check for new certificates when they accept: one atomic load, and a lock only when there are some. Tickets
//! are sealed with keys that one object of rustls keeps and replaces every six hours; it is read at handshakes under a
//! lock that only the replacement takes exclusively.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ProducesTickets, WebPkiClientVerifier};

use super::certificates::{CertificateFiles, CertificateWarning, Certificates, TlsError};
use super::client::authorities;

/// TLS settings of a server.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The first pair is for clients that name no host, or another one; the others for the names in
    /// their certificates.
    pub certificates: Vec<CertificateFiles>,
    /// Clients have to show a certificate that one of the authorities in this PEM file has signed. `None`: no
    /// certificate is requested.
    pub client_authorities: Option<PathBuf>,
    /// The protocols spoken inside, for ALPN. A peer that offers others only is refused; one that
    /// offers none is not.
    pub protocols: Vec<Vec<u8>>,
    /// The response to a client that begins with a capital letter, as HTTP in plaintext does.
    pub plaintext_response: &'static [u8],
    /// From accepting a connection to the end of its handshake.
    pub handshake_timeout_ns: u64,
    /// Bytes a peer may send before the handshake is over. It is checked after each receive.
    pub handshake_bytes_max: usize,
}

/// The TLS of one server, for all its shards. Clones are handles of the same.
#[derive(Clone)]
pub struct TlsServer {
    shared: Arc<ServerShared>,
}

struct ServerShared {
    options: TlsOptions,
    provider: Arc<CryptoProvider>,
    ticketer: Arc<dyn ProducesTickets>,
    /// Grows when `current` changes.
    generation: AtomicU64,
    current: Mutex<Arc<ServerConfig>>,
}

impl TlsServer {
    /// Reads the certificates; faults that do not prevent serving are returned as warnings.
    pub fn load(options: TlsOptions) -> Result<(Self, Vec<CertificateWarning>), TlsError> {
        let provider = Arc::new(default_provider());
        let ticketer = Ticketer::new().map_err(|error| server_set_up_error(&error))?;
        let (config, warnings) = configure(&options, &provider, &ticketer)?;
        let shared = ServerShared {
            options,
            provider,
            ticketer,
            generation: AtomicU64::new(0),
            current: Mutex::new(config),
        };
        let shared = Arc::new(shared);
        Ok((Self { shared }, warnings))
    }

    /// Reads the certificates again, for connections accepted from now on. When anything is wrong
    /// with one of them, all stay as they are. Tickets stay good.
    pub fn reload(&self) -> Result<Vec<CertificateWarning>, TlsError> {
        let shared = &*self.shared;
        let (config, warnings) = configure(&shared.options, &shared.provider, &shared.ticketer)?;
        *shared
            .current
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = config;
        shared.generation.fetch_add(1, Ordering::Release);
        Ok(warnings)
    }

    /// How many pairs of certificate and key there are.
    #[must_use]
    pub fn certificate_count(&self) -> usize {
        self.shared.options.certificates.len()
    }

    /// One shard's view.
    pub(super) fn source(&self) -> ServerSource {
        let shared = Arc::clone(&self.shared);
        // Before the configuration: at worst it is fetched twice.
        let generation = shared.generation.load(Ordering::Acquire);
        let config = shared.config();
        ServerSource {
            shared,
            generation,
            config,
        }
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("TlsServer");
        fields
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl ServerShared {
    fn config(&self) -> Arc<ServerConfig> {
        // A panic elsewhere leaves one whole configuration or the other.
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }
}

/// A shard's part of [`TlsServer`].
pub(super) struct ServerSource {
    shared: Arc<ServerShared>,
    generation: u64,
    config: Arc<ServerConfig>,
}

impl ServerSource {
    /// For a connection accepted now.
    pub(super) fn config(&mut self) -> Arc<ServerConfig> {
        let generation = self.shared.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.generation = generation;
            self.config = self.shared.config();
        }
        Arc::clone(&self.config)
    }

    pub(super) fn handshake_timeout_ns(&self) -> u64 {
        self.shared.options.handshake_timeout_ns
    }

    pub(super) fn handshake_bytes_max(&self) -> usize {
        self.shared.options.handshake_bytes_max
    }

    pub(super) fn plaintext_response(&self) -> &'static [u8] {
        self.shared.options.plaintext_response
    }
}

fn configure(
    options: &TlsOptions,
    provider: &Arc<CryptoProvider>,
    ticketer: &Arc<dyn ProducesTickets>,
) -> Result<(Arc<ServerConfig>, Vec<CertificateWarning>), TlsError> {
    let mut warnings = Vec::new();
    let certificates = Certificates::load(&options.certificates, provider, &mut warnings)?;
    let client_verifier = match &options.client_authorities {
        Some(path) => client_verifier(path, provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| server_set_up_error(&error))?
        .with_client_cert_verifier(client_verifier)
        .with_cert_resolver(Arc::new(certificates));
    config.alpn_protocols.clone_from(&options.protocols);
    match options.client_authorities {
        // A ticket would let its owner in for hours after the authority was taken out of the file.
        Some(_) => config.send_tls13_tickets = 0,
        None => config.ticketer = Arc::clone(ticketer),
    }
    // Tickets are enough; a store of sessions would be shared between shards.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok((Arc::new(config), warnings))
}

/// Wants a certificate of each client, signed by an authority in the file.
fn client_verifier(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(authorities(path)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    builder.build().map_err(|error| TlsError::SetUp {
        reason: error.to_string(),
    })
}

fn server_set_up_error(error: &rustls::Error) -> TlsError {
    TlsError::SetUp {
        reason: error.to_string(),
    }
}
