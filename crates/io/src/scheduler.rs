//! Which work comes first in a tick, and how much of the rest is done in it; the same for every driver.
//!
//! A client that sends a request, gets its response, and sends the next one loses most by a flood of others that
//! connect, send slowly, hang up or pipeline: its next request would wait behind all of theirs. So its bytes are
//! *prompt*: handled when they come. All other work waits in queues, each in the order in which it came, and has a
//! budget in each tick:
//!
//! - One of each kind is done in every tick, whatever the others take: work at place `n` of its queue is done within
//!   `n` ticks.
//! - More are done while their estimated time fits into [`TICK_NS`], or into half the time that prompt work
//!   took in the tick before, if that is more: a flood of prompt clients leaves a third to the others.
//! - Where no prompt client has been seen for [`PROTECTED_NS`] the budget is [`UNPROTECTED_TICK_NS`].
//!
//! Against one queue without prompt clients and with the same budgets, a client beside `hostile`'s attacks has this
//! p99, relative to the same client alone (io_uring and epoll): reset storm 0.95 and 1.05, not 1.36 and 0.94; flood of
//! pipelined requests 1.00 and 1.06, not 2.40 and 1.21; half-closed connections 0.90 and 0.99, not 1.41 and 1.15.
//!
//! Times are estimates: a clock read after each piece of work would come too late, and would make runs differ. There is
//! no order among connections that this process opened: a load generator that handled short responses before long ones
//! would measure its own effect.

use crate::pools::IO_BUFFER_BYTES;
use std::collections::VecDeque;

/// The time per tick for work that may wait: about the extra delay of an established client. All other numbers follow
/// from this one.
pub const TICK_NS: u64 = 50_000;

/// The same while no established client is known.
const UNPROTECTED_TICK_NS: u64 = 8 * TICK_NS;

/// How long after its last message a prompt client is still waited for: it comes back.
const PROTECTED_NS: u64 = 2_000 * TICK_NS;

/// Cost of a prompt request, with its response.
const PROMPT_NS: u64 = TICK_NS / 10;

/// Cost of a timer that ends a connection: http's deadlines, those of closing sockets.
const TIMER_NS: u64 = TICK_NS / 2;

/// Timers that fire in one tick. Deadlines of many connections pass together.
pub(crate) const TIMERS_PER_TICK_MAX: usize = (TICK_NS / TIMER_NS) as usize;

/// More than this is not a message but a load.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Many clients send the head and the body of a request apart, and some the end of a chunked body
/// too. More pieces than this are dribbled.
const MESSAGE_PIECES_MAX: u16 = 4;

/// How often a socket that brought many requests at once has to send a request and wait before it is prompt: the end of
/// a flood's message is short too, and gets a response.
const TIMES_TO_FORGET: u16 = 9;

/// Recent behavior of a socket, in 16 bits: how many responses it needs to become prompt, and in how many pieces its
/// current message has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Usage(u16);

impl Usage {
    const ANSWER: u16 = 1 << 8;

    /// Of an accepted socket: prompt after its first response.
    pub(crate) const NEW: Self = Self(Self::ANSWER);

    /// Of a socket that we connected.
    pub(crate) const OURS: Self = Self(u16::MAX);

    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) {
        // The usual receive of a server.
        if self.0 < MESSAGE_PIECES_MAX && bytes <= MESSAGE_BYTES_MAX {
            self.0 += 1;
        } else {
            self.received_otherwise(bytes);
        }
    }

    #[inline(never)]
    fn received_otherwise(&mut self, bytes: usize) {
        if *self == Self::OURS {
            return;
        }
        self.0 = match bytes {
            // Not prompt until its response.
            0..=MESSAGE_BYTES_MAX => self.0.max(MESSAGE_PIECES_MAX),
            // The response to the load does not count.
            _ => self.0.max(2 * Self::ANSWER),
        };
    }

    /// Its last message was short, but not so what it asked for.
    pub(crate) fn demote_for_pipelining(&mut self) {
        if *self != Self::OURS {
            self.0 = TIMES_TO_FORGET * Self::ANSWER;
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self) {
        if self.0 < Self::ANSWER {
            self.0 = 0;
        } else {
            self.sent_otherwise();
        }
    }

    #[inline(never)]
    fn sent_otherwise(&mut self) {
        if *self != Self::OURS {
            self.0 = (self.0 / Self::ANSWER - 1) * Self::ANSWER;
        }
    }

    /// How much a socket of this kind receives where others receive `turn_bytes`: a whole buffer, if we connected it.
    /// Responses of upstreams are long more often than requests, each piece costs a call to send it on, and remote
    /// peers cannot open such sockets.
    #[inline]
    pub(crate) fn receive_bytes(self, turn_bytes: usize) -> usize {
        match self == Self::OURS {
            true => IO_BUFFER_BYTES,
            false => turn_bytes,
        }
    }

    #[inline]
    pub(crate) fn is_prompt(self) -> bool {
        // `OURS` is the largest number and wraps to the smallest.
        self.0.wrapping_add(1) <= MESSAGE_PIECES_MAX
    }

    /// Nothing is known of it but that it sends much.
    pub(crate) fn is_bulk(self) -> bool {
        self.0 >= 2 * Self::ANSWER && self != Self::OURS
    }

    /// The kind of its waiting work, if it is not prompt.
    pub(crate) fn work(self) -> Work {
        match self.is_bulk() {
            true => Work::Bulk,
            false => Work::Receive,
        }
    }
}

/// Kinds of work that may wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Work {
    /// A connection taken from the listener's queue: one in each tick is the reserved slot of new clients.
    Accept,
    /// Bytes of a socket that is not prompt.
    Receive,
    /// Bytes of one that floods.
    Bulk,
    /// A FIN or a failure, which the owner gets.
    End,
    /// A descriptor to be closed, with what the kernel has of its socket.
    Close,
}

impl Work {
    #[cfg(test)]
    const ALL: [Self; 5] = [
        Self::Accept,
        Self::Receive,
        Self::Bulk,
        Self::End,
        Self::Close,
    ];

    /// Cost of one, including the work at the end of the tick.
    const fn cost_ns(self) -> u64 {
        match self {
            Self::Receive => PROMPT_NS,
            Self::Accept | Self::End => TICK_NS / 5,
            Self::Bulk | Self::Close => TICK_NS / 2,
        }
    }
}

/// The budget of one tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scheduler {
    left_ns: u64,
    /// Bits of kinds that had none in this tick.
    reserved: u8,
    /// Prompt messages of this tick.
    prompt_count: u32,
    tick_ns: u64,
    /// When the last tick with a prompt message began; `None`: never.
    prompt_ns: Option<u64>,
    is_protecting: bool,
    protected_ns: Option<u64>,
}

impl Scheduler {
    /// Prompt clients are waited for so long, for tests that a slow machine must not disturb.
    pub(crate) fn protect_for(&mut self, protected_ns: u64) {
        self.protected_ns = Some(protected_ns);
    }

    #[inline]
    pub(crate) fn begin_tick(&mut self, now_ns: u64) {
        if self.prompt_count > 0 {
            self.prompt_ns = Some(self.tick_ns);
        }
        let protected_ns = self.protected_ns.unwrap_or(PROTECTED_NS);
        self.is_protecting = self
            .prompt_ns
            .is_some_and(|prompt_ns| now_ns.saturating_sub(prompt_ns) < protected_ns);
        self.left_ns = match self.is_protecting {
            true => TICK_NS.max(u64::from(self.prompt_count) * PROMPT_NS / 2),
            false => UNPROTECTED_TICK_NS,
        };
        self.prompt_count = 0;
        self.reserved = u8::MAX;
        self.tick_ns = now_ns;
    }

    /// Whether bytes of such a socket are handled when they come.
    #[inline]
    pub(crate) fn is_prompt(&mut self, usage: Usage) -> bool {
        let is_prompt = usage.is_prompt();
        self.prompt_count += u32::from(is_prompt && usage != Usage::OURS);
        is_prompt
    }

    /// Whether an established client is active, so that others have to wait.
    #[inline]
    pub(crate) fn is_protecting(self) -> bool {
        self.is_protecting
    }

    /// Whether one more piece of such work is admitted in this tick.
    pub(crate) fn admits(&mut self, work: Work) -> bool {
        let reserved = 1_u8 << work as u8;
        let is_admitted = self.reserved & reserved != 0 || self.left_ns >= work.cost_ns();
        if is_admitted {
            self.reserved &= !reserved;
            self.left_ns = self.left_ns.saturating_sub(work.cost_ns());
        }
        is_admitted
    }

    /// The same for the end of a socket: one that we connected waits for nothing.
    pub(crate) fn admits_end(&mut self, usage: Usage, work: Work) -> bool {
        usage == Usage::OURS || self.admits(work)
    }
}

/// Total bytes of all receives of a tick: a fraction of a millisecond's work.
pub(crate) const RECEIVES_BYTES: usize = 256 << 10;

/// The shortest receive. Most requests fit; shorter ones would cost more calls than they save time.
const RECEIVE_BYTES_MIN: usize = 4 << 10;

/// The longest receive of a socket that is not prompt, while clients are about that are. Whatever of it is
/// not served at once is copied.
pub(crate) const RECEIVE_BYTES_OF_OTHERS: usize = 16 << 10;

/// How much one socket may receive in a tick when so many have something: a whole buffer while they are
/// few, as large uploads like it.
#[inline]
pub(crate) fn receive_bytes(ready: usize) -> usize {
    if ready * IO_BUFFER_BYTES <= RECEIVES_BYTES {
        return IO_BUFFER_BYTES;
    }
    (RECEIVES_BYTES / ready).clamp(RECEIVE_BYTES_MIN, IO_BUFFER_BYTES)
}

/// Closes that wait at most; one more is done at once. A descriptor that waits is one that others lack.
pub(crate) const CLOSES_WAITING_MAX: usize = 256;

/// Sockets that only need to be closed and were not admitted yet, in the order in which they came.
pub(crate) struct CloseQueue<T>(VecDeque<T>);

impl<T> CloseQueue<T> {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(CLOSES_WAITING_MAX))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next close must be immediate.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= CLOSES_WAITING_MAX
    }

    pub(crate) fn push(&mut self, closing: T) {
        self.0.push_back(closing);
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop_front()
    }
}

#[cfg(test)]
#[path = "tests/scheduler.rs"]
mod tests;
