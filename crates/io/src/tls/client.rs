//! TLS towards servers: trusted certificates, protocols, sessions to resume.
//!
//! Shared by all shards. Sessions are kept by rustls under a lock that is taken at handshakes alone.
//! [`client_of_nodes`] is for a library that makes its connections itself, to many servers of one owner.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    UnbufferedClientConnection, WantsClientCert, verify_server_cert_signed_by_trust_anchor,
    verify_server_name,
};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme, StreamOwned,
};

use super::certificates::{CertificateFiles, TlsError, load_identity};

/// Where systems keep the certificates of the authorities that they trust.
const SYSTEM_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Which certificates to trust.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Trust {
    /// The authorities that the system trusts.
    System,
    /// The authorities in this PEM file, and no others.
    File(PathBuf),
    /// All: the connection is encrypted, but the peer is not verified.
    Anybody,
}

/// Settings of a TLS client.
#[derive(Clone, Debug)]
pub struct TlsClientOptions {
    /// The name or address that the server's certificate has to be for; a name is sent (SNI).
    pub host: String,
    /// Which certificates to trust.
    pub trust: Trust,
    /// The certificate for servers that request one.
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
    /// The same, where something in plaintext comes before the handshake: the head of the PROXY
    /// protocol. A connection is reported as connected without TLS then, and its handshake begins with
    /// [`crate::Driver::send_below_tls`], by which time its client is known.
    #[must_use]
    pub fn behind_head(mut self) -> Self {
        self.is_behind_head = true;
        self
    }

    /// Reads the authorities.
    pub fn load(options: TlsClientOptions) -> Result<Self, TlsError> {
        let provider = Arc::new(default_provider());
        let check = (options.trust == Trust::Anybody).then_some(Check::Nothing);
        let builder = trusting(&options.trust, check, &provider)?;
        let mut config = identified(builder, options.identity.as_ref(), &provider)?;
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

/// The names for which a server of several may have its certificate, beside its address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeNames {
    /// One of these; invalid names are skipped.
    Listed(Vec<String>),
    /// Any: the authorities sign for these servers alone.
    Any,
}

/// The rustls configuration of a client of many servers, for a library that makes the connections itself and knows only
/// addresses: each server needs a certificate for its address or for one of `names`.
///
/// # Errors
/// A file that cannot be used.
pub fn client_of_nodes(
    trust: &Trust,
    identity: Option<&CertificateFiles>,
    names: &NodeNames,
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let names = match names {
        NodeNames::Any => None,
        NodeNames::Listed(names) => {
            let names = names.iter().cloned();
            Some(
                names
                    .filter_map(|name| ServerName::try_from(name).ok())
                    .collect(),
            )
        }
    };
    let check = match trust {
        Trust::Anybody => Check::Nothing,
        Trust::File(_) | Trust::System => Check::Names(names),
    };
    let builder = trusting(trust, Some(check), &provider)?;
    Ok(Arc::new(identified(builder, identity, &provider)?))
}

/// The checks of a certificate that differ from rustls' own. That the server has its key is always checked.
#[derive(Debug)]
enum Check {
    /// The authority, and that it is for the server's address or one of these names; `None`: for any.
    Names(Option<Vec<ServerName<'static>>>),
    /// None: any server is accepted.
    Nothing,
}

fn trusting(
    trust: &Trust,
    check: Option<Check>,
    provider: &Arc<CryptoProvider>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| set_up_error(&error))?;
    let roots = match trust {
        Trust::Anybody => RootCertStore::empty(),
        Trust::File(path) => authorities(path)?,
        Trust::System => system_authorities()?,
    };
    let Some(check) = check else {
        return Ok(builder.with_root_certificates(roots));
    };
    let verifier = Arc::new(Verifier {
        provider: Arc::clone(provider),
        roots,
        check,
    });
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(verifier))
}

fn identified(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    identity: Option<&CertificateFiles>,
    provider: &CryptoProvider,
) -> Result<ClientConfig, TlsError> {
    let Some(files) = identity else {
        return Ok(builder.with_no_client_auth());
    };
    let (chain, key) = load_identity(files, provider)?;
    builder
        .with_client_auth_cert(chain, key)
        .map_err(|error| set_up_error(&error))
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

/// Accepts certificates by [`Check`], and requires the server to have its key.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    roots: RootCertStore,
    check: Check,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        address: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Check::Names(names) = &self.check else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = ParsedCertificate::try_from(certificate)?;
        verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        if let Some(names) = names {
            let is_for = |name: &ServerName<'_>| verify_server_name(&certificate, name).is_ok();
            if !names.iter().any(is_for) {
                verify_server_name(&certificate, address)?;
            }
        }
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

// TLS over one blocking socket: for commands that ask one request after another and wait for each response. Records and
// buffers are rustls's own here: nothing of it is on a shard.

/// A connection whose handshake is over. The socket's timeouts bound its waits.
pub struct BlockingTls(StreamOwned<ClientConnection, TcpStream>);

impl TlsClient {
    /// Starts TLS on a blocking socket; does the handshake.
    ///
    /// # Errors
    /// The socket's; or [`io::ErrorKind::InvalidData`], where the peer's certificate is not trusted or it does not use
    /// TLS.
    pub fn over(&self, mut socket: TcpStream) -> io::Result<BlockingTls> {
        let connection = ClientConnection::new(self.config(), self.name());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(BlockingTls(StreamOwned::new(connection, socket)))
    }
}

impl Read for BlockingTls {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for BlockingTls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl fmt::Debug for BlockingTls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("BlockingTls");
        fields.field("socket", &self.0.sock).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "tests/client.rs"]
mod tests;
