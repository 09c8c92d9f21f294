//! The two sides that a connection can take, and what is the same for both.

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{HandshakeKind, ProtocolVersion};

/// One connection's records, by which side we are.
#[expect(
    clippy::large_enum_variant,
    reason = "a server has thousands, and takes them without a heap call of its own"
)]
pub(super) enum Records {
    Server(UnbufferedServerConnection),
    Client(Box<UnbufferedClientConnection>),
}

/// What rustls keeps with a connection of one side.
pub(super) trait Side {
    type Data;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn has_to_write(&self) -> bool;
}

impl Side for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_write(&self) -> bool {
        self.wants_write()
    }
}

impl Side for UnbufferedClientConnection {
    type Data = rustls::client::ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        incoming: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn has_to_write(&self) -> bool {
        self.wants_write()
    }
}

impl Records {
    pub(super) fn is_handshaking(&self) -> bool {
        match self {
            Self::Server(records) => records.is_handshaking(),
            Self::Client(records) => records.is_handshaking(),
        }
    }

    pub(super) fn protocol_version(&self) -> Option<ProtocolVersion> {
        match self {
            Self::Server(records) => records.protocol_version(),
            Self::Client(records) => records.protocol_version(),
        }
    }

    pub(super) fn handshake_kind(&self) -> Option<HandshakeKind> {
        match self {
            Self::Server(records) => records.handshake_kind(),
            Self::Client(records) => records.handshake_kind(),
        }
    }
}
