//! TLS towards servers: whom to trust, what to ask for, sessions to resume.
//!
//! Shared by all shards. Sessions are kept by rustls under a lock that is taken at handshakes alone.

use super::certificates::{CertificateFiles, TlsError, load_identity};
use rustls::client::UnbufferedClientConnection;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Whom to trust.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trust {
    /// The authorities that the system trusts.
    System,
    /// The authorities in this PEM file, and no others.
    File(PathBuf),
    /// Everybody: the connection is private, but nobody knows with whom.
    Anybody,
}

/// How a client speaks TLS.
#[derive(Clone, Debug)]
pub struct TlsClientOptions {
    /// The name or address that the server's certificate has to be for; a name is sent (SNI).
    pub host: String,
    /// Whom to trust.
    pub trust: Trust,
    /// The certificate shown to servers that ask for one.
    pub identity: Option<CertificateFiles>,
    /// The protocols spoken inside, for ALPN.
    pub protocols: Vec<Vec<u8>>,
    /// From the connection to the end of its handshake.
    pub handshake_timeout_ns: u64,
    /// Bytes the server may send before the handshake is over.
    pub handshake_bytes_max: usize,
}

/// The TLS of one client, for all its shards. Clones are handles of the same.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    pub(super) handshake_timeout_ns: u64,
    pub(super) handshake_bytes_max: usize,
    /// See [`TlsClient::behind_head`].
    pub(super) is_behind_head: bool,
}

impl TlsClient {
    /// The same, where something in clear text comes before the handshake: the head of the PROXY
    /// protocol. A connection is reported as connected without TLS then, and its handshake begins with
    /// [`crate::Driver::send_below_tls`], by which time is known for whom it is.
    #[must_use]
    pub fn behind_head(mut self) -> Self {
        self.is_behind_head = true;
        self
    }

    /// Reads the authorities.
    pub fn load(options: TlsClientOptions) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| set_up_error(&error))?;
        let builder = match &options.trust {
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Trusting {
                    provider: Arc::clone(&provider),
                })),
            Trust::File(path) => builder.with_root_certificates(authorities(path)?),
            Trust::System => builder.with_root_certificates(system_authorities()?),
        };
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let (chain, key) = load_identity(files, &provider)?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| set_up_error(&error))?
            }
        };
        config.alpn_protocols = options.protocols;
        let host = options.host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::SetUp {
            reason: format!("{host:?} is no name that a certificate could be for"),
        })?;
        Ok(Self {
            config: Arc::new(config),
            name,
            handshake_timeout_ns: options.handshake_timeout_ns,
            handshake_bytes_max: options.handshake_bytes_max,
            is_behind_head: false,
        })
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    pub(super) fn name(&self) -> ServerName<'static> {
        self.name.clone()
    }

    /// For one connection.
    pub(super) fn connection(&self) -> Result<UnbufferedClientConnection, Error> {
        UnbufferedClientConnection::new(Arc::clone(&self.config), self.name.clone())
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("TlsClient");
        fields.field("name", &self.name).finish_non_exhaustive()
    }
}

fn set_up_error(error: &Error) -> TlsError {
    TlsError::SetUp {
        reason: error.to_string(),
    }
}

fn system_authorities() -> Result<RootCertStore, TlsError> {
    let there = SYSTEM_AUTHORITIES
        .iter()
        .map(Path::new)
        .find(|path| path.exists());
    let path = there.ok_or_else(|| TlsError::SetUp {
        reason: "this system has no list of trusted authorities: name a file with them".to_owned(),
    })?;
    authorities(path)
}

/// The certificates of authorities in a PEM file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let text = std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        source,
    })?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = certificates.map_err(|error| TlsError::NotPem {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    let mut store = RootCertStore::empty();
    // Lists of systems hold certificates that some reader cannot read; one that can is enough.
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(TlsError::NoCertificate {
            path: path.to_owned(),
        });
    }
    Ok(store)
}

/// Takes any certificate, but wants the server to have its key.
#[derive(Debug)]
struct Trusting {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
