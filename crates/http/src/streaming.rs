//! Exchanges in parts: the state a connection keeps between two calls of its service.
//!
//! `server::stream` decodes the body's next part off the received bytes and hands it to the
//! service, which writes into the connection's output through [`crate::Response`].
//!
//! ```text
//! body in:   Reading --last part--> AtEnd --> Read     answered before: Unread, up to 64 KiB
//! body out:  Whole | Length | Chunked <-> Chunk | UntilClose --finish--> Finished    (HEAD: Bodyless)
//! ```
//!
//! Bounded by design: at most what two receives brought waits to be read, and a block of 32 KiB to
//! be sent; another may be with the driver.

use crate::body::BodyDecoder;
use crate::client::PART_BYTES_MAX;
use crate::encode::CHUNK_FRAMING_BYTES_MAX;
use crate::service::Interest;
use crate::status::StatusCode;
use millpond_mempool::{Buffer, POOLED_BYTES_MAX};

/// Output of an exchange in parts between two sends: the largest block that is pooled.
pub(crate) const STREAM_OUTPUT_BYTES: usize = POOLED_BYTES_MAX;

/// Put aside in an output: the framing of a chunk, and of the last one.
pub(crate) const FRAMING_BYTES: usize = 2 * CHUNK_FRAMING_BYTES_MAX;

/// How much more an output takes before it outgrows its block.
pub(crate) fn room_bytes(output: &Buffer) -> usize {
    STREAM_OUTPUT_BYTES.saturating_sub(output.len() + FRAMING_BYTES)
}

/// Whether the longest part of an upstream's response fits the output's block.
pub(crate) fn has_room_for_part(output: &Buffer) -> bool {
    room_bytes(output) >= PART_BYTES_MAX
}

/// How much of an ignored body is read to keep the connection; one with more to come is closed.
pub(crate) const UNREAD_BYTES_MAX: u64 = 64 * 1024;

/// Where the end of a response's body is, and how far it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outgoing {
    /// Nothing was written in parts.
    Whole,
    Length {
        remaining_bytes: u64,
    },
    Chunked,
    /// Within a chunk whose length was announced.
    Chunk {
        remaining_bytes: u64,
    },
    UntilClose,
    /// Another protocol's bytes, both ways.
    Tunnel,
    /// The same, after the last byte to the client, which gets a FIN; its own bytes still come.
    TunnelFinished,
    /// The head is all: HEAD, 204, 304.
    Bodyless,
    Finished,
}

impl Outgoing {
    /// The head was written and the body is not complete.
    pub(crate) fn is_open(self) -> bool {
        match self {
            Self::Length { remaining_bytes } => remaining_bytes > 0,
            Self::Chunked
            | Self::Chunk { .. }
            | Self::UntilClose
            | Self::Tunnel
            | Self::TunnelFinished => true,
            Self::Whole | Self::Bodyless | Self::Finished => false,
        }
    }
}

/// The request's body.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// There is none, or its end was handed over.
    Read,
    /// All parts were handed over, its end was not.
    AtEnd,
    /// More may come.
    Reading(BodyDecoder),
    /// The response is out, the rest is ignored; up to this many bytes.
    Unread {
        decoder: BodyDecoder,
        left_bytes: u64,
    },
}

/// State of an exchange in parts.
#[derive(Debug)]
pub(crate) struct Streaming {
    pub(crate) wants: Interest,
    pub(crate) incoming: Incoming,
    pub(crate) outgoing: Outgoing,
    pub(crate) sent: Option<StatusCode>,
    /// Input since reading went on, framing included, for the rate.
    pub(crate) received_bytes: u64,
    /// The client waits for 100 Continue, which it gets when the service reads before there is a response; no byte of
    /// the body has come.
    pub(crate) wants_continue: bool,
    /// `Completions::resume` was called.
    pub(crate) is_resumed: bool,
    /// The connection has changed to another protocol.
    pub(crate) is_tunnel_open: bool,
    /// A FIN to the client has ended the other protocol's bytes.
    pub(crate) is_fin_sent: bool,
    pub(crate) trailer: Buffer,
}

impl Streaming {
    pub(crate) fn new(incoming: Incoming) -> Self {
        Self {
            wants: Interest::default(),
            incoming,
            outgoing: Outgoing::Whole,
            sent: None,
            received_bytes: 0,
            wants_continue: false,
            is_resumed: false,
            is_tunnel_open: false,
            is_fin_sent: false,
            trailer: Buffer::new(),
        }
    }

    /// From here on the client's bytes belong to another protocol: all of them are parts, until its FIN.
    pub(crate) fn open_tunnel(&mut self) {
        if self.outgoing == Outgoing::Tunnel && !self.is_tunnel_open {
            self.is_tunnel_open = true;
            self.incoming = Incoming::Reading(BodyDecoder::until_close());
        }
    }

    /// The other protocol's bytes to the client have ended, and a FIN is due.
    pub(crate) fn owes_fin(&self) -> bool {
        self.outgoing == Outgoing::TunnelFinished && !self.is_fin_sent
    }

    /// A response now would leave so much of the body unread that the connection has to close.
    pub(crate) fn closes_if_answered(&self) -> bool {
        match &self.incoming {
            Incoming::Reading(decoder) => {
                let is_long = decoder
                    .remaining_bytes()
                    .is_some_and(|remaining_bytes| remaining_bytes > UNREAD_BYTES_MAX);
                // A client that did not get 100 may send the body or leave it out.
                self.wants_continue || is_long
            }
            Incoming::Read | Incoming::AtEnd | Incoming::Unread { .. } => false,
        }
    }
}
