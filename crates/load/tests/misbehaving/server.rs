//! A server whose connections all do one thing, over TCP or TLS.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A right response. ab speaks HTTP/1.0 and keeps a connection only if the response permits it.
pub(crate) const OK: &str =
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok";

/// The behaviour of a connection once it is accepted, and with TLS once its handshake has ended.
pub(crate) type Conduct = fn(&mut Talk);

/// How connections begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Start {
    /// With the given text.
    Clear,
    /// With its text, to a client that speaks TLS.
    ClearToTls,
    /// With a handshake and a right certificate, for `localhost`.
    Tls,
    /// With a certificate for another name.
    OtherName,
    /// With one that is no longer valid.
    Expired,
    /// With one that is not valid yet.
    NotYet,
    /// With one of an unknown authority.
    Unknown,
    /// With a handshake that asks for a certificate of the client's.
    ClientCertificate,
}

/// One connection.
pub(crate) struct Talk {
    stream: Stream,
    tcp: TcpStream,
    /// Counts the connections, from 0.
    pub(crate) number: usize,
    /// Received bytes that belong to no request yet.
    pending: Vec<u8>,
}

enum Stream {
    Clear(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Talk {
    /// Waits for a request without a body. False: the client has closed.
    pub(crate) fn request(&mut self) -> bool {
        let mut part = [0; 4_096];
        loop {
            if let Some(end) = self.pending.windows(4).position(|at| at == b"\r\n\r\n") {
                self.pending.drain(..end + 4);
                return true;
            }
            let read = match &mut self.stream {
                Stream::Clear(stream) => stream.read(&mut part),
                Stream::Tls(stream) => stream.read(&mut part),
            };
            match read {
                Ok(count) if count > 0 => self.pending.extend_from_slice(&part[..count]),
                _ => return false,
            }
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        // A client that has closed is the subject of some of the modes.
        let _ = match &mut self.stream {
            Stream::Clear(stream) => stream.write_all(text.as_bytes()),
            Stream::Tls(stream) => stream
                .write_all(text.as_bytes())
                .and_then(|()| stream.flush()),
        };
    }

    /// Byte by byte, each in a packet of its own.
    pub(crate) fn dribble(&mut self, text: &str) {
        for byte in text.chars() {
            self.send(&byte.to_string());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Says nothing more until the client closes.
    pub(crate) fn until_gone(&mut self) {
        while self.request() {}
    }

    /// A right response to each request.
    pub(crate) fn serve(&mut self) {
        self.answer_all(OK);
    }

    pub(crate) fn answer_all(&mut self, text: &str) {
        while self.request() {
            self.send(text);
        }
    }

    /// Waits for a request and leaves it unread, so that the kernel sends a reset at the close.
    pub(crate) fn leave_unread(&mut self) {
        let _ = self.tcp.peek(&mut [0; 1]);
    }

    /// Makes the close that follows a reset, whatever has arrived.
    pub(crate) fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&self.tcp, Some(Duration::ZERO)).unwrap();
    }

    /// Takes no more bytes, and continues sending.
    pub(crate) fn stop_reading(&mut self) {
        let _ = self.tcp.shutdown(Shutdown::Read);
    }

    /// Says in TLS that it closes.
    pub(crate) fn announce_close(&mut self) {
        if let Stream::Tls(stream) = &mut self.stream {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    }
}

pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(20));
}

/// Certificates and the server's part of TLS.
#[derive(Clone)]
pub(crate) struct Certificates {
    directory: Arc<tempfile::TempDir>,
    config: Arc<ServerConfig>,
}

impl Certificates {
    pub(crate) fn new(start: Start) -> Self {
        let name = match start {
            Start::OtherName => "elsewhere.test",
            _ => "localhost",
        };
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        match start {
            Start::Expired => params.not_after = rcgen::date_time_ymd(2001, 1, 1),
            Start::NotYet => params.not_before = rcgen::date_time_ymd(4001, 1, 1),
            _ => {}
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let trusted = match start {
            Start::Unknown => {
                let other = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
                other
                    .self_signed(&KeyPair::generate().unwrap())
                    .unwrap()
                    .pem()
            }
            _ => certificate.pem(),
        };
        std::fs::write(directory.path().join("ca"), trusted).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match start {
            Start::ClientCertificate => {
                let mut roots = RootCertStore::empty();
                roots.add(certificate.der().clone()).unwrap();
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
            _ => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = builder
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Self {
            directory,
            config: Arc::new(config),
        }
    }

    /// The file of the authority that clients trust.
    pub(crate) fn authority(&self) -> PathBuf {
        Path::new(self.directory.path()).join("ca")
    }

    fn handshake(&self, tcp: TcpStream) -> Option<Stream> {
        let mut connection = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        let mut tcp = tcp;
        while connection.is_handshaking() {
            if connection.complete_io(&mut tcp).is_err() {
                // The alert that says why.
                let _ = connection.write_tls(&mut tcp);
                return None;
            }
        }
        Some(Stream::Tls(Box::new(StreamOwned::new(connection, tcp))))
    }
}

/// A running server; it stops to accept when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) certificates: Option<Certificates>,
    connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(start: Start, conduct: Conduct) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let certificates =
            (!matches!(start, Start::Clear | Start::ClearToTls)).then(|| Certificates::new(start));
        let connections = Arc::new(AtomicUsize::new(0));
        let stopped = Arc::new(AtomicBool::new(false));
        let shared = (
            Arc::clone(&connections),
            Arc::clone(&stopped),
            certificates.clone(),
        );
        std::thread::spawn(move || {
            let (connections, stopped, certificates) = shared;
            for tcp in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(tcp) = tcp else { return };
                let number = connections.fetch_add(1, Ordering::SeqCst);
                let certificates = certificates.clone();
                std::thread::spawn(move || talk(tcp, number, certificates.as_ref(), conduct));
            }
        });
        Self {
            address,
            certificates,
            connections,
            stopped,
        }
    }

    /// Connections that were accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn talk(tcp: TcpStream, number: usize, certificates: Option<&Certificates>, conduct: Conduct) {
    let _ = tcp.set_nodelay(true);
    let clear = Stream::Clear(tcp.try_clone().unwrap());
    let stream = match certificates {
        None => Some(clear),
        Some(certificates) => certificates.handshake(tcp.try_clone().unwrap()),
    };
    if let Some(stream) = stream {
        conduct(&mut Talk {
            stream,
            tcp,
            number,
            pending: Vec::new(),
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
    }
}
