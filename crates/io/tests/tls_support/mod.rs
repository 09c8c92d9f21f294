//! A server's certificate, made anew, and clients that trust it.
#![allow(dead_code, reason = "each test program uses a part")]

use millpond_io::tls::{CertificateFiles, TlsOptions, TlsServer};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use std::fs;
use std::sync::Arc;

/// The name in the certificate.
pub(crate) const NAME: &str = "mill.test";

/// The response to a plaintext peer.
pub(crate) const PLAINTEXT_RESPONSE: &[u8] = b"this port speaks TLS\n";

/// Handshakes take no longer, and have no more bytes.
pub(crate) const HANDSHAKE_TIMEOUT_NS: u64 = 10_000_000_000;
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// Certificates in a directory that goes with it.
pub(crate) struct Authority {
    directory: tempfile::TempDir,
    pub(crate) server: TlsServer,
    der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (files, der) = make_pair(&directory, "server", &[NAME]);
        let options = TlsOptions {
            certificates: vec![files],
            client_authorities: None,
            protocols: vec![b"http/1.1".to_vec()],
            plaintext_response: PLAINTEXT_RESPONSE,
            handshake_timeout_ns: HANDSHAKE_TIMEOUT_NS,
            handshake_bytes_max: HANDSHAKE_BYTES_MAX,
        };
        let (server, warnings) = TlsServer::load(options).unwrap();
        assert_eq!(warnings, []);
        Self {
            directory,
            server,
            der,
        }
    }

    /// Puts another certificate into the server's files; clients made from here on trust it.
    pub(crate) fn renew(&mut self) {
        self.der = make_pair(&self.directory, "server", &[NAME]).1;
    }

    /// Where the server's certificate is.
    pub(crate) fn certificate_path(&self) -> std::path::PathBuf {
        self.directory.path().join("server.crt")
    }

    /// A client's configuration that trusts this certificate alone.
    pub(crate) fn client_config(
        &self,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

/// A client that has said nothing yet.
pub(crate) fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from(NAME).unwrap();
    ClientConnection::new(Arc::clone(config), name).unwrap()
}

fn make_pair(
    directory: &tempfile::TempDir,
    file: &str,
    names: &[&str],
) -> (CertificateFiles, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    // Signatures of always the same length, so that a simulation with a seed stays the same.
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = CertificateParams::new(names).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let files = CertificateFiles {
        certificate: directory.path().join(format!("{file}.crt")),
        key: directory.path().join(format!("{file}.key")),
    };
    fs::write(&files.certificate, certificate.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    (files, certificate.der().clone())
}
