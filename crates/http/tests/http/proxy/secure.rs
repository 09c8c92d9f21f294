//! TLS for the peers of these tests, by rustls: the proxy's peer is not our own layer.

use crate::support::PATIENCE;
use millpond_http::{Limits, TLS_HANDSHAKE_BYTES_MAX, load_tls};
use millpond_io::tls::{CertificateFiles, TlsClient, TlsClientOptions, TlsServer, Trust};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock};

const NAME: &str = "mill.test";

/// Bytes both ways, sealed or in plaintext.
pub(crate) trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A certificate that is its own authority, and its files.
pub(super) struct Authority {
    files: CertificateFiles,
    der: CertificateDer<'static>,
    key: Vec<u8>,
    _directory: tempfile::TempDir,
}

/// That of all peers of these tests.
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| authority(|_| {}));

/// A new one, for the name of all peers.
pub(super) fn authority(change: impl FnOnce(&mut CertificateParams)) -> Authority {
    let directory = tempfile::tempdir().unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    change(&mut params);
    let certificate = params.self_signed(&key).unwrap();
    let files = CertificateFiles {
        certificate: directory.path().join("peer.crt"),
        key: directory.path().join("peer.key"),
    };
    fs::write(&files.certificate, certificate.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    Authority {
        files,
        der: certificate.der().clone(),
        key: key.serialize_der(),
        _directory: directory,
    }
}

/// TLS configuration of the proxy for its clients, whatever its time limits after the handshake.
pub(super) fn for_clients() -> TlsServer {
    let files = vec![AUTHORITY.files.clone()];
    load_tls(files, None, &Limits::default(), TLS_HANDSHAKE_BYTES_MAX)
        .unwrap()
        .0
}

/// TLS configuration of the proxy for an upstream.
pub(super) fn for_upstreams() -> TlsClient {
    for_upstreams_of(NAME, &AUTHORITY)
}

/// The same of upstreams of this name whose certificates this authority has signed.
pub(super) fn for_upstreams_of(name: &str, authority: &Authority) -> TlsClient {
    let options = TlsClientOptions {
        host: name.to_owned(),
        trust: Trust::File(authority.files.certificate.clone()),
        identity: None,
        protocols: vec![b"http/1.1".to_vec()],
        handshake_timeout_ns: PATIENCE.as_nanos() as u64,
        handshake_bytes_max: TLS_HANDSHAKE_BYTES_MAX,
    };
    TlsClient::load(options).unwrap()
}

/// An upstream's end of a connection that was accepted.
pub(super) fn accept(stream: TcpStream) -> Box<dyn Stream> {
    static CONFIG: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| server_config(&AUTHORITY));
    accept_with(Arc::clone(&CONFIG), stream)
}

pub(super) fn accept_with(config: Arc<ServerConfig>, stream: TcpStream) -> Box<dyn Stream> {
    let connection = ServerConnection::new(config).unwrap();
    Box::new(Announcing(StreamOwned::new(connection, stream)))
}

/// The same of an upstream that ends its connections silently.
pub(super) fn accept_without_close_notify(stream: TcpStream) -> Box<dyn Stream> {
    let connection = ServerConnection::new(server_config(&AUTHORITY)).unwrap();
    Box::new(StreamOwned::new(connection, stream))
}

/// Says `close_notify` when it is dropped.
struct Announcing(StreamOwned<ServerConnection, TcpStream>);

impl Read for Announcing {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Announcing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Announcing {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        // The proxy may have gone.
        let _ = self.0.flush();
    }
}

/// That of an upstream with this certificate.
pub(super) fn server_config(authority: &Authority) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(authority.key.clone()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![authority.der.clone()], key);
    Arc::new(config.unwrap())
}

/// A client's connection to the proxy.
pub(super) fn connect(address: SocketAddr, is_tls: bool) -> Box<dyn Stream> {
    match is_tls {
        true => connect_behind(address, b""),
        false => Box::new(stream_to(address)),
    }
}

fn stream_to(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The same over TLS, behind something in plaintext.
pub(super) fn connect_behind(address: SocketAddr, head: &[u8]) -> Box<dyn Stream> {
    static CONFIG: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let mut roots = RootCertStore::empty();
        roots.add(AUTHORITY.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Arc::new(config)
    });
    let mut stream = stream_to(address);
    stream.write_all(head).unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let connection = ClientConnection::new(Arc::clone(&CONFIG), name).unwrap();
    Box::new(StreamOwned::new(connection, stream))
}
