//! One exchange under way: what is to be written, and how far its answer is.

use super::exchange::{
    ExchangeFailure, ExchangeReport, FailureCause, OutgoingRequest, Phase, Timeouts,
};
use super::shard_client::{ExchangeWriteError, outgoing_of};
use crate::body::BodyDecoder;
use crate::encode::{encode_chunk, encode_last_chunk, fields_bytes};
use crate::head_text::Field;
use crate::kept_input::KeptInput;
use crate::method::Method;
use crate::streaming::{FRAMING_BYTES, STREAM_OUTPUT_BYTES, room_bytes};
use millpond_io::connection_pool::{PoolKey, WaiterId};
use millpond_io::{Errno, SocketId, TimerId};
use millpond_mempool::{BlockPool, Buffer, Pooled};

/// Less room than this is none: it is not worth a part of a body.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// How far the connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// It was not asked for.
    New,
    /// The pool has promised one.
    Waiting(WaiterId),
    /// It is leased.
    Open(SocketId),
}

/// What an exchange has of others, to be given back when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    pub(super) stage: Stage,
    pub(super) timer: Option<TimerId>,
    pub(super) is_receive_paused: bool,
}

/// How the rest of the request is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outgoing {
    Length {
        remaining_bytes: u64,
    },
    Chunked,
    /// The other protocol.
    Raw,
    Finished,
}

/// How far the answer is.
#[derive(Clone, Debug)]
pub(super) enum Incoming {
    /// The head, or an informational one, is to come.
    Head,
    Body(BodyDecoder),
    /// The other protocol.
    Raw,
    /// The upstream has sent its FIN; what is written still goes to it.
    RawFinished,
    /// Complete: its end is to be told.
    Complete,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) key: PoolKey,
    pub(super) user: u64,
    pub(super) method: Method,
    pub(super) stage: Stage,
    /// To be sent when the tick ends, or when the driver has room.
    pub(super) output: Buffer,
    /// What found no place in the output's block.
    pub(super) overflow: Buffer,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    /// Of a head that has not come whole.
    pub(super) partial: Buffer,
    /// Of a body whose reader wanted nothing more.
    pub(super) kept: Option<Pooled<KeptInput>>,
    pub(super) trailer: Buffer,
    pub(super) timeouts: Timeouts,
    pub(super) report: ExchangeReport,
    pub(super) timer: Option<TimerId>,
    pub(super) began_ns: u64,
    /// When there was a connection.
    pub(super) connected_ns: u64,
    /// When the phase it is in began, or last went on.
    pub(super) since_ns: u64,
    pub(super) awaits_continue: bool,
    pub(super) may_upgrade: bool,
    pub(super) is_alone: bool,
    /// To be sent on a connection of its own, before anything else.
    pub(super) preface: Buffer,
    pub(super) is_noted: bool,
    /// The driver keeps bytes for which the kernel had no room.
    pub(super) is_blocked: bool,
    /// Who writes was told that there is no room.
    pub(super) wants_room: bool,
    /// Who reads wants nothing now.
    pub(super) is_paused: bool,
    /// The driver was told so.
    pub(super) is_receive_paused: bool,
    /// The upstream sends no more; what it sent is not read to its end.
    pub(super) is_peer_finished: bool,
    /// The connection broke while what had been received waited for who reads.
    pub(super) broken: Option<Errno>,
    pub(super) has_answer_begun: bool,
    /// A FIN has told the upstream that the other protocol's bytes to it have ended.
    pub(super) is_fin_sent: bool,
    pub(super) keeps_alive: bool,
}

impl Exchange {
    pub(super) fn new(key: PoolKey, request: OutgoingRequest) -> Self {
        Self {
            key,
            user: request.user,
            method: request.method,
            stage: Stage::New,
            output: request.head,
            overflow: Buffer::new(),
            outgoing: outgoing_of(request.body),
            incoming: Incoming::Head,
            partial: Buffer::new(),
            kept: None,
            trailer: Buffer::new(),
            timeouts: request.timeouts,
            report: ExchangeReport::default(),
            timer: None,
            began_ns: 0,
            connected_ns: 0,
            since_ns: 0,
            awaits_continue: request.awaits_continue,
            may_upgrade: request.may_upgrade,
            is_alone: request.is_alone || !request.preface.is_empty(),
            preface: request.preface,
            // Whoever begins it notes it.
            is_noted: true,
            is_blocked: false,
            wants_room: false,
            is_paused: false,
            is_receive_paused: false,
            is_peer_finished: false,
            broken: None,
            has_answer_begun: false,
            is_fin_sent: false,
            keeps_alive: false,
        }
    }

    pub(super) fn write(
        &mut self,
        part: &[u8],
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        let given_bytes = part.len();
        let output = self.place_for(given_bytes);
        match self.outgoing {
            Outgoing::Length { remaining_bytes } => {
                let Some(left_bytes) = remaining_bytes.checked_sub(given_bytes as u64) else {
                    return Err(ExchangeWriteError::PastLength {
                        given_bytes,
                        left_bytes: remaining_bytes,
                    });
                };
                self.place(output).extend_from_slice(blocks, part)?;
                self.outgoing = match left_bytes {
                    0 => Outgoing::Finished,
                    remaining_bytes => Outgoing::Length { remaining_bytes },
                };
            }
            Outgoing::Chunked => encode_chunk(self.place(output), blocks, part)?,
            Outgoing::Raw => self.place(output).extend_from_slice(blocks, part)?,
            Outgoing::Finished if part.is_empty() => {}
            Outgoing::Finished => {
                return Err(ExchangeWriteError::PastLength {
                    given_bytes,
                    left_bytes: 0,
                });
            }
        }
        Ok(())
    }

    /// Which buffer so many bytes go into: the first, unless they would burst its pooled block.
    fn place_for(&self, bytes: usize) -> bool {
        let is_full = self.output.len() + bytes + FRAMING_BYTES > STREAM_OUTPUT_BYTES;
        !self.overflow.is_empty() || is_full && !self.output.is_empty()
    }

    fn place(&mut self, is_overflow: bool) -> &mut Buffer {
        match is_overflow {
            true => &mut self.overflow,
            false => &mut self.output,
        }
    }

    pub(super) fn finish<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>> + Clone,
        blocks: &BlockPool,
    ) -> Result<(), ExchangeWriteError> {
        match self.outgoing {
            Outgoing::Length { remaining_bytes } => {
                let left_bytes = remaining_bytes;
                return Err(ExchangeWriteError::Missing { left_bytes });
            }
            Outgoing::Chunked => {
                let output = self.place_for(fields_bytes(trailers.clone()));
                encode_last_chunk(self.place(output), blocks, trailers)?;
            }
            Outgoing::Raw | Outgoing::Finished => {}
        }
        self.outgoing = Outgoing::Finished;
        Ok(())
    }

    /// How much may be written now; who is told "nothing" is told of room later.
    pub(super) fn room_bytes(&mut self) -> usize {
        let has_overflow = !self.overflow.is_empty();
        let free_bytes = room_bytes(&self.output);
        if self.is_blocked || has_overflow || free_bytes < ROOM_BYTES_MIN {
            self.wants_room = true;
            return 0;
        }
        free_bytes
    }

    /// Nobody waits to be told of room or of what was kept, and the driver receives or does not as it
    /// should.
    pub(super) fn is_calm(&self) -> bool {
        self.kept.is_none()
            && !self.wants_room
            && self.is_paused == self.is_receive_paused
            && !self.is_tunnel_over()
    }

    /// Both sides of the other protocol have finished.
    pub(super) fn is_tunnel_over(&self) -> bool {
        self.is_fin_sent && matches!(self.incoming, Incoming::RawFinished)
    }

    /// All that goes to the upstream of another protocol has left: it is told by a FIN.
    pub(super) fn owes_fin(&self) -> bool {
        matches!(self.incoming, Incoming::Raw | Incoming::RawFinished)
            && self.is_request_complete()
            && !self.is_fin_sent
    }

    pub(super) fn holdings(&self) -> Holdings {
        Holdings {
            stage: self.stage,
            timer: self.timer,
            is_receive_paused: self.is_receive_paused,
        }
    }

    /// All of the request is with the kernel.
    pub(super) fn is_request_complete(&self) -> bool {
        self.outgoing == Outgoing::Finished
            && self.output.is_empty()
            && self.overflow.is_empty()
            && !self.is_blocked
    }

    /// What is under way, and how long it may take from `since_ns` on.
    fn phase(&self) -> (Phase, u64) {
        let timeouts = &self.timeouts;
        if self.is_blocked {
            return (Phase::Write, timeouts.write_ns);
        }
        match self.incoming {
            Incoming::Head if self.is_request_complete() || self.awaits_continue => {
                (Phase::FirstByte, timeouts.first_byte_ns)
            }
            // The rest of the request is to come from who makes it.
            Incoming::Head => (Phase::Write, u64::MAX),
            Incoming::Raw | Incoming::RawFinished => (Phase::Tunnel, timeouts.tunnel_idle_ns),
            Incoming::Body(_) | Incoming::Complete if self.is_paused => {
                (Phase::BetweenBytes, u64::MAX)
            }
            Incoming::Body(_) | Incoming::Complete => {
                (Phase::BetweenBytes, timeouts.between_bytes_ns)
            }
        }
    }

    /// When an exchange with a connection ends if nothing happens, and in which phase.
    pub(super) fn deadline(&self) -> (u64, Phase) {
        let (phase, allowed_ns) = self.phase();
        let phase_ns = self.since_ns.saturating_add(allowed_ns);
        let total_ns = match self.incoming {
            // What is tunnelled has no end of ours.
            Incoming::Raw | Incoming::RawFinished => u64::MAX,
            _ => self.began_ns.saturating_add(self.timeouts.total_ns),
        };
        match total_ns < phase_ns {
            true => (total_ns, Phase::Total),
            false => (phase_ns, phase),
        }
    }

    /// A failure now.
    pub(super) fn failure(&self, cause: FailureCause) -> ExchangeFailure {
        let phase = match (&cause, self.stage) {
            (FailureCause::Connection(error), _) => error.phase().into(),
            (_, Stage::New | Stage::Waiting(_)) => Phase::Queue,
            (FailureCause::TimedOut, _) => self.deadline().1,
            _ => self.phase().0,
        };
        ExchangeFailure {
            cause,
            phase,
            is_reused: self.report.is_reused,
            may_have_arrived: self.report.request_bytes > 0,
            has_answer_begun: self.has_answer_begun,
        }
    }

    /// What it has taken until now.
    pub(super) fn report_at(&self, now_ns: u64) -> ExchangeReport {
        ExchangeReport {
            is_request_complete: self.is_request_complete(),
            total_ns: now_ns.saturating_sub(self.began_ns),
            ..self.report
        }
    }
}
