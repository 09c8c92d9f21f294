//! The channel of a peer of the server: a connection of the network, with or without TLS.

use millpond_http::{Limits, TLS_HANDSHAKE_BYTES_MAX, load_tls};
use millpond_io::Errno;
use millpond_io::driver::sim::{Network, PeerRead, SimPeer};
use millpond_io::tls::{CertificateFiles, TlsClient, TlsClientOptions, TlsServer, Trust};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, Connection, RootCertStore};
use rustls::{ServerConfig, ServerConnection};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, LazyLock};

const NAME: &str = "mill.test";

/// The most a client encrypts before it is sent.
const PIECE_BYTES: usize = 4_000;

/// A certificate for all servers of this program, and its directory.
struct Authority {
    files: CertificateFiles,
    der: CertificateDer<'static>,
    key: Vec<u8>,
    _directory: tempfile::TempDir,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let directory = tempfile::tempdir().unwrap();
    // Signatures of always the same length, so that a seed stays a seed.
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let files = CertificateFiles {
        certificate: directory.path().join("server.crt"),
        key: directory.path().join("server.key"),
    };
    fs::write(&files.certificate, certificate.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    Authority {
        files,
        der: certificate.der().clone(),
        key: key.serialize_der(),
        _directory: directory,
    }
});

/// TLS for a server with these limits.
pub(crate) fn tls_server(limits: &Limits) -> TlsServer {
    let files = vec![AUTHORITY.files.clone()];
    load_tls(files, None, limits, TLS_HANDSHAKE_BYTES_MAX)
        .unwrap()
        .0
}

/// TLS for clients of this program's upstreams.
pub(crate) fn tls_client(limits: &Limits) -> TlsClient {
    let options = TlsClientOptions {
        host: NAME.to_owned(),
        trust: Trust::File(AUTHORITY.files.certificate.clone()),
        identity: None,
        protocols: Vec::new(),
        handshake_timeout_ns: limits.head_timeout_ns,
        handshake_bytes_max: TLS_HANDSHAKE_BYTES_MAX,
    };
    TlsClient::load(options).unwrap()
}

/// How clients talk to the server of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Speech {
    Clear,
    Tls12,
    Tls13,
}

pub(crate) struct Line {
    pub(crate) peer: SimPeer,
    tls: Option<Connection>,
    /// Opened and not read.
    opened: Vec<u8>,
    /// How the bytes ended.
    end: Option<Result<(), Errno>>,
    goodbye: Goodbye,
}

/// How far the end of what a client says has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Goodbye {
    NotYet,
    /// It is said once the handshake is over.
    Due,
    /// The FIN follows when it has left.
    Said,
    Sent,
}

impl Line {
    pub(crate) fn new(network: &Network, speech: Speech) -> Self {
        let version = match speech {
            Speech::Clear => None,
            Speech::Tls12 => Some(&TLS12),
            Speech::Tls13 => Some(&TLS13),
        };
        let tls = version.map(|version| {
            let mut roots = RootCertStore::empty();
            roots.add(AUTHORITY.der.clone()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let name = ServerName::try_from(NAME).unwrap();
            ClientConnection::new(Arc::new(config), name)
                .unwrap()
                .into()
        });
        let mut line = Self::over(network.connect().unwrap(), tls);
        line.flush();
        line
    }

    /// An upstream's end of a connection that it accepted.
    pub(crate) fn accepted(peer: SimPeer, is_tls: bool) -> Self {
        let tls = is_tls.then(|| {
            let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(AUTHORITY.key.clone()));
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![AUTHORITY.der.clone()], key);
            ServerConnection::new(Arc::new(config.unwrap()))
                .unwrap()
                .into()
        });
        Self::over(peer, tls)
    }

    fn over(peer: SimPeer, tls: Option<Connection>) -> Self {
        Self {
            peer,
            tls,
            opened: Vec::new(),
            end: None,
            goodbye: Goodbye::NotYet,
        }
    }

    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The server ended it before anything could be said.
    pub(crate) fn was_never_open(&self) -> bool {
        let tls = self.tls.as_ref();
        self.end.is_some() && tls.is_some_and(|tls| tls.is_handshaking())
    }

    /// Bytes the server has received, if they are what was said.
    pub(crate) fn received(&self) -> Option<u64> {
        self.tls.is_none().then(|| self.peer.received())
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        if self.tls.is_none() {
            return self.peer.write(bytes);
        }
        self.take_in(PIECE_BYTES);
        let is_sent = self.flush();
        match &mut self.tls {
            // Before its handshake is over a client would keep what it is given, and say goodbye first.
            Some(tls) if is_sent && !tls.is_handshaking() && !matches!(self.end, Some(Err(_))) => {
                let count = tls
                    .writer()
                    .write(&bytes[..bytes.len().min(PIECE_BYTES)])
                    .unwrap();
                self.flush();
                Ok(count)
            }
            _ => Ok(0),
        }
    }

    pub(crate) fn read(&mut self, into: &mut Vec<u8>, count_max: usize) -> PeerRead {
        if self.tls.is_none() {
            return self.peer.read(into, count_max);
        }
        self.take_in(count_max);
        self.flush();
        let count = self.opened.len().min(count_max);
        if count > 0 {
            into.extend(self.opened.drain(..count));
            return PeerRead::Bytes(count);
        }
        match self.end {
            None => PeerRead::Nothing,
            Some(Ok(())) => PeerRead::Finished,
            Some(Err(error)) => PeerRead::Failed(error),
        }
    }

    pub(crate) fn finish(&mut self) {
        match &mut self.tls {
            None => self.peer.finish(),
            Some(_) => {
                self.goodbye = Goodbye::Due;
                self.flush();
            }
        }
    }

    /// Opens some of what came. Only a goodbye is a good end.
    fn take_in(&mut self, count_max: usize) {
        let Some(tls) = &mut self.tls else {
            return;
        };
        if self.end.is_some() {
            return;
        }
        let mut bytes = Vec::new();
        let read = self.peer.read(&mut bytes, count_max.clamp(1, PIECE_BYTES));
        let mut rest = &bytes[..];
        while !rest.is_empty() && self.end.is_none() {
            tls.read_tls(&mut rest).unwrap();
            if tls.process_new_packets().is_err() {
                self.end = Some(Err(Errno::PROTO));
            }
            match tls.reader().read_to_end(&mut self.opened) {
                Ok(_) => self.end = Some(Ok(())),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        match read {
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
            PeerRead::Finished => self.end = self.end.or(Some(Err(Errno::CONNABORTED))),
            PeerRead::Failed(error) => self.end = self.end.or(Some(Err(error))),
        }
    }

    /// Sends what is encrypted; true when nothing is left.
    fn flush(&mut self) -> bool {
        let Some(tls) = &mut self.tls else {
            return true;
        };
        loop {
            while tls.wants_write() {
                if tls.write_tls(&mut Wire(&mut self.peer)).is_err() {
                    return false;
                }
            }
            match self.goodbye {
                Goodbye::Due if !tls.is_handshaking() || self.end.is_some() => {
                    tls.send_close_notify();
                    self.goodbye = Goodbye::Said;
                }
                Goodbye::Said => {
                    self.peer.finish();
                    self.goodbye = Goodbye::Sent;
                    return true;
                }
                _ => return true,
            }
        }
    }
}

/// A connection as something that is written to.
struct Wire<'a>(&'a mut SimPeer);

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self.0.write(bytes)? {
            0 => Err(ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
