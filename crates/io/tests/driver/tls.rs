//! Any other world with TLS in between: the driver speaks it, and so do the peers, with a client
//! that is not ours. The behaviours see nothing of it.

use crate::tls_support::{Authority, client};
use crate::world::{Remote, World};
use millpond_io::tls::Tls;
use millpond_io::{Address, Peer};
use millpond_mempool::PoolMode;
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, SupportedProtocolVersion};
use std::cell::RefCell;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// The most a peer encrypts before it is sent.
const PIECE_BYTES: usize = 16 << 10;

/// Tickets a server sends after a handshake of TLS 1.3.
const TICKETS: u32 = 2;

pub(crate) struct Encrypted<W: World> {
    below: W,
    authority: Authority,
    client: Arc<ClientConfig>,
    /// Of all peers there are, to do what a peer does by itself.
    ends: RefCell<Vec<WeakEnd<W::Remote>>>,
}

type WeakEnd<R> = Weak<RefCell<End<R>>>;

/// A peer: the connection and what goes through it.
struct End<R> {
    transport: Option<R>,
    tls: ClientConnection,
    /// The end of the transport.
    failure: Option<Error>,
    has_fin: bool,
    /// Its own FIN is to follow what is encrypted.
    is_finishing: bool,
}

pub(crate) struct EncryptedRemote<R> {
    name: Peer,
    end: Rc<RefCell<End<R>>>,
}

impl<W: World> Encrypted<W> {
    pub(crate) fn new(below: W, version: &'static SupportedProtocolVersion) -> Self {
        let authority = Authority::new();
        let client = Arc::new(authority.client_config(&[version]));
        Self {
            below,
            authority,
            client,
            ends: RefCell::default(),
        }
    }
}

impl<W: World> World for Encrypted<W> {
    type Driver = Tls<W::Driver>;
    type Remote = EncryptedRemote<W::Remote>;

    fn driver(&self) -> Self::Driver {
        Tls::new(self.below.driver(), &self.authority.server, PoolMode::On)
    }

    fn now_ns(&self) -> u64 {
        self.below.now_ns()
    }

    fn connect(&self, to: &Address) -> Result<Self::Remote> {
        let transport = self.below.connect(to)?;
        let name = transport.name();
        let end = Rc::new(RefCell::new(End {
            transport: Some(transport),
            tls: client(&self.client),
            failure: None,
            has_fin: false,
            is_finishing: false,
        }));
        self.ends.borrow_mut().push(Rc::downgrade(&end));
        end.borrow_mut().flush();
        Ok(EncryptedRemote { name, end })
    }

    /// Goes on with handshakes, and with what was encrypted and not taken.
    fn pump(&self) -> bool {
        let mut ends = self.ends.borrow_mut();
        ends.retain(|end| end.strong_count() > 0);
        let mut is_under_way = false;
        for end in ends.iter().filter_map(Weak::upgrade) {
            let mut end = end.borrow_mut();
            while !end.is_settled() && end.receive() {}
            end.flush();
            is_under_way |= !end.is_settled();
        }
        is_under_way
    }
}

impl<R: Remote> End<R> {
    /// All earlier events are over: the handshake is done and the tickets have arrived; unread, they would turn a close
    /// into a reset.
    fn is_settled(&self) -> bool {
        let is_tls13 = self.tls.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let lacks_tickets = is_tls13 && self.tls.tls13_tickets_received() < TICKETS;
        let is_over = self.transport.is_none() || self.failure.is_some() || self.has_fin;
        is_over || !self.tls.is_handshaking() && !lacks_tickets
    }

    /// Sends what is encrypted, then the FIN; true when nothing is left.
    fn flush(&mut self) -> bool {
        if !self.flush_records() {
            return false;
        }
        if let Some(transport) = &self.transport
            && std::mem::take(&mut self.is_finishing)
        {
            transport.finish();
        }
        true
    }

    fn flush_records(&mut self) -> bool {
        while self.failure.is_none() && self.tls.wants_write() {
            let Some(transport) = &mut self.transport else {
                return true;
            };
            match self.tls.write_tls(transport) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => self.failure = Some(error),
            }
        }
        true
    }

    /// Takes one piece of ciphertext in, if there is any.
    fn receive(&mut self) -> bool {
        let Some(transport) = &mut self.transport else {
            return false;
        };
        if self.failure.is_some() || self.has_fin {
            return false;
        }
        match self.tls.read_tls(transport) {
            Ok(0) => self.has_fin = true,
            Ok(_) => {
                if let Err(error) = self.tls.process_new_packets() {
                    self.failure = Some(Error::other(error));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => self.failure = Some(error),
        }
        true
    }
}

fn copy_of(error: &Error) -> Error {
    Error::new(error.kind(), error.to_string())
}

impl<R: Remote> Read for EncryptedRemote<R> {
    /// The end is a goodbye: a FIN without it is `UnexpectedEof`.
    fn read(&mut self, room: &mut [u8]) -> Result<usize> {
        let mut end = self.end.borrow_mut();
        end.flush();
        loop {
            match end.tls.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if !end.receive() {
                return Err(match &end.failure {
                    Some(error) => copy_of(error),
                    None if end.has_fin => Error::from(ErrorKind::UnexpectedEof),
                    None => Error::from(ErrorKind::WouldBlock),
                });
            }
        }
    }
}

impl<R: Remote> Write for EncryptedRemote<R> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let mut end = self.end.borrow_mut();
        let is_sent = end.flush();
        if let Some(error) = &end.failure {
            return Err(copy_of(error));
        }
        if !is_sent {
            return Err(Error::from(ErrorKind::WouldBlock));
        }
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        let count = end.tls.writer().write(piece)?;
        end.flush();
        if count == 0 {
            return Err(Error::from(ErrorKind::WouldBlock));
        }
        Ok(count)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<R: Remote> Remote for EncryptedRemote<R> {
    fn name(&self) -> Peer {
        self.name
    }

    fn finish(&self) {
        let mut end = self.end.borrow_mut();
        end.tls.send_close_notify();
        end.is_finishing = true;
        end.flush();
    }

    fn reset(self) {
        let transport = self.end.borrow_mut().transport.take();
        if let Some(transport) = transport {
            transport.reset();
        }
    }
}
