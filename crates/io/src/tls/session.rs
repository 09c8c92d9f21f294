//! One connection's records: ciphertext in, plaintext and records out.
//!
//! The caller sends what is outgoing.

use super::TlsFailure;
use crate::driver::SocketId;
use crate::timer_wheel::TimerId;
use millpond_mempool::{BlockPool, Buffer, PoolError};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{HandshakeKind, ProtocolVersion};

/// The most plaintext of one record (RFC 8446, 5.1).
pub(super) const RECORD_PLAINTEXT_MAX: usize = 1 << 14;

/// Maximum bytes a record adds to its plaintext: header, explicit nonce, tag, content type.
const RECORD_OVERHEAD_MAX: usize = 32;

/// Room for an alert, or for a key update that goes first.
const SMALL_RECORD_BYTES: usize = 64;

/// One connection of the layer. Only `records` differs between a peer with TLS and one without.
pub(super) struct Session {
    pub(super) socket: SocketId,
    /// `None`: plaintext.
    records: Option<Records>,
    /// Received and not consumed: unprocessed bytes, or the beginning of a record.
    pub(super) incoming: Buffer,
    /// How much of `incoming` rustls has been shown, and must be shown again: there is nothing whole
    /// in it. Invariant: at most `incoming.len()`.
    seen_bytes: usize,
    /// Plaintext for an owner that paused meanwhile.
    pub(super) held: Buffer,
    /// Plaintext given before the handshake was over.
    pub(super) waiting: Buffer,
    /// Ends a handshake that takes too long.
    pub(super) deadline: Option<TimerId>,
    /// Received while the handshake ran.
    pub(super) handshake_bytes: usize,
    /// A server hears nothing before [`crate::Driver::send_below_tls`].
    pub(super) awaits_head: bool,
    /// The connection was reported to the owner before its handshake.
    pub(super) was_told_connected: bool,
    /// The owner wants no bytes.
    pub(super) is_paused: bool,
    /// In the queue, to be processed.
    pub(super) is_queued: bool,
    /// The driver below keeps bytes that the kernel did not take.
    pub(super) is_blocked: bool,
    /// It was reported to the owner, or waits behind its plaintext.
    pub(super) has_told_blocked: bool,
    /// The peer's FIN came.
    pub(super) has_fin: bool,
    /// Our `close_notify` was sent: nothing may follow it.
    pub(super) is_close_notify_sent: bool,
    /// The peer's `close_notify` came: later bytes are not its own.
    pub(super) has_close_notify: bool,
    /// The end of the bytes was reported to the owner.
    pub(super) has_told_finish: bool,
    /// When the connection under it stood and the handshake began; a client's.
    pub(super) began_ns: u64,
    /// When something was last sent, or what had been blocked was out.
    pub(super) sent_ns: u64,
}

/// State of a connection after its bytes were processed.
#[derive(Debug)]
pub(super) enum ReadStatus {
    /// Without more bytes nothing happens.
    Waiting,
    /// The room for plaintext is full, and there may be more.
    Full,
    /// The peer announced that it sends no more.
    Finished,
    /// It cannot go on; an alert with the reason may be outgoing.
    Broken(TlsFailure),
}

/// Plaintext cannot become records.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SealError {
    /// No memory.
    Memory,
    /// The keys are used up, or the connection is in no state to send.
    Refused,
}

impl From<PoolError> for SealError {
    fn from(_: PoolError) -> Self {
        Self::Memory
    }
}

/// Result of one call of rustls.
enum Progress {
    Again,
    Done,
    Finished,
    Broken(TlsFailure),
}

/// The bytes to write.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Seal(&'a [u8]),
    Goodbye,
}

impl Wish<'_> {
    fn act<Data>(
        self,
        traffic: &mut WriteTraffic<'_, Data>,
        room: &mut [u8],
    ) -> Result<usize, EncryptError> {
        match self {
            Self::Seal(plaintext) => traffic.encrypt(plaintext, room),
            Self::Goodbye => traffic.queue_close_notify(room),
        }
    }
}

impl Session {
    pub(super) fn new(socket: SocketId, records: Option<Records>) -> Self {
        Self {
            socket,
            records,
            incoming: Buffer::new(),
            seen_bytes: 0,
            held: Buffer::new(),
            waiting: Buffer::new(),
            deadline: None,
            handshake_bytes: 0,
            awaits_head: false,
            was_told_connected: false,
            is_paused: false,
            is_queued: false,
            is_blocked: false,
            has_told_blocked: false,
            has_fin: false,
            is_close_notify_sent: false,
            has_close_notify: false,
            has_told_finish: false,
            began_ns: 0,
            sent_ns: 0,
        }
    }

    pub(super) fn is_clear(&self) -> bool {
        self.records.is_none()
    }

    /// Whether the peer is a server.
    pub(super) fn is_client(&self) -> bool {
        matches!(self.records, Some(Records::Client(_)))
    }

    pub(super) fn is_handshaking(&self) -> bool {
        let records = self.records.as_ref();
        records.is_some_and(Records::is_handshaking)
    }

    pub(super) fn records(&self) -> Option<&Records> {
        self.records.as_ref()
    }

    /// Whether there are unprocessed bytes.
    pub(super) fn has_news(&self) -> bool {
        self.incoming.len() > self.seen_bytes
    }

    /// The first byte the peer ever sent, while none was processed.
    pub(super) fn first_byte(&self) -> Option<u8> {
        let is_first = self.handshake_bytes == self.incoming.len() && self.seen_bytes == 0;
        is_first.then(|| self.incoming.first().copied()).flatten()
    }

    /// Decrypts received bytes into `room`, which has space for a record at least, and writes the protocol's own
    /// messages to `outgoing`.
    pub(super) fn take_in(
        &mut self,
        room: &mut Buffer,
        outgoing: &mut Buffer,
        pool: &BlockPool,
    ) -> ReadStatus {
        let Self {
            records,
            incoming,
            seen_bytes,
            ..
        } = self;
        let mut pump = Pump {
            incoming,
            seen_bytes,
            pool,
        };
        match records {
            None => ReadStatus::Waiting,
            Some(Records::Server(records)) => pump.take_in(records, room, outgoing),
            Some(Records::Client(records)) => pump.take_in(&mut **records, room, outgoing),
        }
    }

    /// Appends the records of `plaintext` to `outgoing`.
    pub(super) fn seal(
        &mut self,
        plaintext: &[u8],
        outgoing: &mut Buffer,
        pool: &BlockPool,
    ) -> Result<(), SealError> {
        let record_count = plaintext.len().div_ceil(RECORD_PLAINTEXT_MAX);
        let bytes = plaintext.len() + record_count * RECORD_OVERHEAD_MAX;
        self.write(bytes, outgoing, pool, Wish::Seal(plaintext))
    }

    /// Appends a `close_notify` to `outgoing`.
    pub(super) fn say_goodbye(
        &mut self,
        outgoing: &mut Buffer,
        pool: &BlockPool,
    ) -> Result<(), SealError> {
        self.write(SMALL_RECORD_BYTES, outgoing, pool, Wish::Goodbye)
    }

    fn write(
        &mut self,
        bytes: usize,
        outgoing: &mut Buffer,
        pool: &BlockPool,
        wish: Wish<'_>,
    ) -> Result<(), SealError> {
        let Self {
            records,
            incoming,
            seen_bytes,
            ..
        } = self;
        let mut pump = Pump {
            incoming,
            seen_bytes,
            pool,
        };
        match records {
            None => Err(SealError::Refused),
            Some(Records::Server(records)) => {
                pump.write(records, bytes, outgoing, |traffic, room| {
                    wish.act(traffic, room)
                })
            }
            Some(Records::Client(records)) => {
                pump.write(&mut **records, bytes, outgoing, |traffic, room| {
                    wish.act(traffic, room)
                })
            }
        }
    }
}

/// One call's view of a session, for either side.
struct Pump<'a> {
    incoming: &'a mut Buffer,
    seen_bytes: &'a mut usize,
    pool: &'a BlockPool,
}

impl Pump<'_> {
    fn take_in<S: Side>(
        &mut self,
        records: &mut S,
        room: &mut Buffer,
        outgoing: &mut Buffer,
    ) -> ReadStatus {
        let mut failure = None;
        loop {
            match failure {
                // Nothing more is read; the alert, if there is one, is still to be encoded.
                Some(failure) if !records.has_to_write() => return ReadStatus::Broken(failure),
                None if room.spare_bytes() < RECORD_PLAINTEXT_MAX => return ReadStatus::Full,
                _ => {}
            }
            let UnbufferedStatus { discard, state } = records.process(self.incoming.as_mut_slice());
            *self.seen_bytes = 0;
            let turn = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    // One record, of which nothing is left in `incoming`.
                    while let Some(Ok(record)) = traffic.next_record() {
                        room.append_within_capacity(record.payload);
                    }
                    Progress::Again
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    match encode(&mut data, outgoing, self.pool) {
                        Ok(()) => Progress::Again,
                        Err(_) => Progress::Broken(TlsFailure::Memory),
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    Progress::Again
                }
                Ok(ConnectionState::PeerClosed) => Progress::Finished,
                // None is accepted, so none is there; the other states need more bytes.
                Ok(ConnectionState::ReadEarlyData(_)) => Progress::Broken(TlsFailure::Internal),
                Ok(_) => Progress::Done,
                Err(error) => Progress::Broken(TlsFailure::from_error(&error)),
            };
            self.incoming.consume_front(discard);
            match (turn, failure) {
                (Progress::Again, _) => {}
                (_, Some(failure)) => return ReadStatus::Broken(failure),
                (Progress::Broken(found), None) => failure = Some(found),
                (Progress::Finished, None) => {
                    self.incoming.release();
                    return ReadStatus::Finished;
                }
                (Progress::Done, None) => {
                    *self.seen_bytes = self.incoming.len();
                    if self.incoming.is_empty() {
                        self.incoming.release();
                    }
                    return ReadStatus::Waiting;
                }
            }
        }
    }

    /// Lets `act` write into about `bytes` of room behind what is outgoing.
    fn write<S: Side>(
        &mut self,
        records: &mut S,
        mut bytes: usize,
        outgoing: &mut Buffer,
        act: impl Fn(&mut WriteTraffic<'_, S::Data>, &mut [u8]) -> Result<usize, EncryptError>,
    ) -> Result<(), SealError> {
        loop {
            // Only what rustls has seen: a new record in here could be anything.
            let seen = &mut self.incoming.as_mut_slice()[..*self.seen_bytes];
            let UnbufferedStatus { discard, state } = records.process(seen);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    let start = outgoing.len();
                    extend_with_zeros(outgoing, bytes, self.pool)?;
                    match act(&mut traffic, &mut outgoing[start..]) {
                        Ok(count) => {
                            outgoing.truncate(start + count);
                            return Ok(());
                        }
                        Err(EncryptError::InsufficientSize(size)) if size.required_size > bytes => {
                            outgoing.truncate(start);
                            bytes = size.required_size;
                        }
                        Err(_) => return Err(SealError::Refused),
                    }
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, outgoing, self.pool)?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::PeerClosed) => {}
                _ => return Err(SealError::Refused),
            }
            self.incoming.consume_front(discard);
            *self.seen_bytes -= discard;
        }
    }
}

/// Appends the protocol's own messages.
fn encode<Data>(
    data: &mut EncodeTlsData<'_, Data>,
    outgoing: &mut Buffer,
    pool: &BlockPool,
) -> Result<(), PoolError> {
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else {
        return Ok(());
    };
    let start = outgoing.len();
    extend_with_zeros(outgoing, size.required_size, pool)?;
    // There is room for exactly this.
    let _ = data.encode(&mut outgoing[start..]);
    Ok(())
}

/// Room that rustls can write to: it takes initialised bytes.
fn extend_with_zeros(
    buffer: &mut Buffer,
    mut count: usize,
    pool: &BlockPool,
) -> Result<(), PoolError> {
    static ZEROS: [u8; 4096] = [0; 4096];
    buffer.reserve(pool, count)?;
    while count > 0 {
        let part = &ZEROS[..count.min(ZEROS.len())];
        buffer.append_within_capacity(part);
        count -= part.len();
    }
    Ok(())
}

// The two sides that a connection can take, and what is the same for both.

/// One connection's records, by which side we are.
#[expect(
    clippy::large_enum_variant,
    reason = "a server has thousands, and takes them without a heap call of its own"
)]
pub(super) enum Records {
    Server(UnbufferedServerConnection),
    Client(Box<UnbufferedClientConnection>),
}

/// rustls' state of one side of a connection.
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
