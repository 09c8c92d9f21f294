//! How many sockets a driver holds, counted where their descriptors are.

use millpond_mempool::{Buffer, Handle, PoolError, Slab};

use super::DriverCounters;

/// Which side opened a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Opener {
    /// A peer: it came through the listener.
    Peer,
    /// This process.
    Us,
}

/// Every descriptor of a connection counts, from the accept or connect until the close: open,
/// sending, lingering, and closed by its owner but not yet by the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketCount {
    accepted: usize,
    connected: usize,
    peak: usize,
    /// Bound of `accepted`. `connected` has none here: the connecting side has a limit of its own (see
    /// `connection_pool`), which a flood of accepted sockets must not use up.
    accepted_max: usize,
}

impl Default for SocketCount {
    fn default() -> Self {
        Self {
            accepted: 0,
            connected: 0,
            peak: 0,
            accepted_max: usize::MAX,
        }
    }
}

impl SocketCount {
    pub(super) fn set_accepted_max(&mut self, count: usize) {
        self.accepted_max = count;
    }

    pub(super) fn opened(&mut self, opener: Opener) {
        match opener {
            Opener::Peer => self.accepted += 1,
            Opener::Us => self.connected += 1,
        }
        self.peak = self.peak.max(self.held());
    }

    pub(super) fn closed(&mut self, opener: Opener) {
        match opener {
            Opener::Peer => self.accepted -= 1,
            Opener::Us => self.connected -= 1,
        }
    }

    /// Whether no further connection may be accepted.
    pub(super) fn is_full(&self) -> bool {
        self.accepted >= self.accepted_max
    }

    fn held(&self) -> usize {
        self.accepted + self.connected
    }

    /// `counters` with these numbers in it.
    pub(super) fn shown_in(&self, counters: DriverCounters) -> DriverCounters {
        DriverCounters {
            sockets_held: self.held() as u64,
            sockets_peak: self.peak as u64,
            ..counters
        }
    }
}

// Decides whether a shard spins before it sleeps: if enabled, for a limited time, and only while that pays.
//
// Waking a thread that sleeps costs more than a short request, most of all in a virtual machine, where the hypervisor
// has to resume an idle CPU. A shard with few busy connections saves that by polling memory for a while. The price is a
// CPU that does nothing else meanwhile, so it is off by default, and an unproductive spin delays the next one: by one
// sleep, by two, by four, up to [`SKIPS_MAX`]. A spin that pays, or a sleep that ended within the time that a spin
// would have taken, brings the next one back at once. A shard with long waits spins at one wait in 65.

/// Sleeps between two spins of a shard for which spinning does not pay.
const SKIPS_MAX: u32 = 64;

/// How often a spin polls for events between two reads of the clock.
pub(super) const LOOKS_PER_CLOCK: u32 = 8;

/// When to spin, from what the last spins gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BusyPoll {
    /// How long a spin may last; 0: never spin.
    limit_ns: u64,
    /// Sleeps until the next spin.
    skips_left: u32,
    /// How many it will be after the next unproductive spin.
    skips_next: u32,
}

/// How a spin ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SpinEnd {
    /// Something came.
    Found,
    /// At the moment for which the wait was planned: neither a reason to spin nor one against it. A load generator that
    /// waits for its next request to be due would otherwise not spin for that request's response.
    Deadline,
    /// Nothing came within the limit.
    Vain,
}

impl SpinEnd {
    pub(super) fn of(has_found: bool, is_time: bool) -> Self {
        match (has_found, is_time) {
            (true, _) => Self::Found,
            (false, true) => Self::Deadline,
            (false, false) => Self::Vain,
        }
    }
}

impl BusyPoll {
    pub(super) const fn new(limit_ns: u64) -> Self {
        Self {
            limit_ns,
            skips_left: 0,
            skips_next: 1,
        }
    }

    /// Whether it is enabled.
    #[inline]
    pub(super) const fn is_on(&self) -> bool {
        self.limit_ns > 0
    }

    /// Whether this wait begins with a spin; called once for each wait that may sleep.
    pub(super) fn is_due(&mut self) -> bool {
        if self.skips_left > 0 {
            self.skips_left -= 1;
            return false;
        }
        self.is_on()
    }

    /// Until when a spin that begins now may last.
    pub(super) fn end_ns(&self, start_ns: u64, deadline_ns: Option<u64>) -> u64 {
        let limit_ns = start_ns.saturating_add(self.limit_ns);
        deadline_ns.map_or(limit_ns, |deadline_ns| limit_ns.min(deadline_ns))
    }

    /// A spin is over, and how it ended.
    pub(super) fn spun(&mut self, end: SpinEnd) {
        match end {
            SpinEnd::Found => *self = Self::new(self.limit_ns),
            SpinEnd::Deadline => {}
            SpinEnd::Vain => {
                self.skips_left = self.skips_next;
                self.skips_next = (self.skips_next * 2).min(SKIPS_MAX);
            }
        }
    }

    /// A sleep without a spin before it brought events after so long.
    pub(super) fn slept(&mut self, slept_ns: u64) {
        if slept_ns <= self.limit_ns {
            *self = Self::new(self.limit_ns);
        }
    }
}

// Bytes that wait for the kernel, or for their owner: buffers of one socket in order.
//
// An idle socket owns none; the buffers of all sockets are linked through one slab per driver. A
// queue is a ring of which only the end is kept: sockets are many and rarely have one.

/// One waiting buffer.
#[derive(Debug)]
pub(super) struct QueuedBuffer {
    data: Buffer,
    /// The next younger one; of the youngest, the oldest.
    next: Handle<QueuedBuffer>,
}

/// The handle of no buffer: it finds nothing in the slab. An `Option` of it would be half as large
/// again.
const NOBODY: Handle<QueuedBuffer> = Handle::from_bits(u64::MAX);

/// Buffers of one socket, oldest first; they live in the driver's slab.
#[derive(Debug)]
pub(super) struct BufferQueue {
    last: Handle<QueuedBuffer>,
}

impl Default for BufferQueue {
    fn default() -> Self {
        Self { last: NOBODY }
    }
}

impl BufferQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.last == NOBODY
    }

    fn first(&self, slab: &Slab<QueuedBuffer>) -> Handle<QueuedBuffer> {
        slab.get(self.last).map_or(NOBODY, |last| last.next)
    }

    pub(super) fn push(
        &mut self,
        slab: &mut Slab<QueuedBuffer>,
        data: Buffer,
    ) -> Result<(), PoolError> {
        let next = self.first(slab);
        let added = slab.insert(QueuedBuffer { data, next })?;
        let mut before = std::mem::replace(&mut self.last, added);
        if before == NOBODY {
            before = added;
        }
        if let Some(before) = slab.get_mut(before) {
            before.next = added;
        }
        Ok(())
    }

    /// The oldest bytes.
    pub(super) fn front<'a>(&self, slab: &'a Slab<QueuedBuffer>) -> Option<&'a [u8]> {
        slab.get(self.first(slab))
            .map(|queued| queued.data.as_slice())
    }

    /// Forgets the first `count` bytes of [`Self::front`]; its buffer goes home when empty.
    pub(super) fn consume_front(&mut self, slab: &mut Slab<QueuedBuffer>, count: usize) {
        let Some(queued) = slab.get_mut(self.first(slab)) else {
            return;
        };
        queued.data.consume_front(count);
        if queued.data.is_empty() {
            self.pop(slab);
        }
    }

    /// Takes the oldest buffer out.
    pub(super) fn pop(&mut self, slab: &mut Slab<QueuedBuffer>) -> Option<Buffer> {
        let first = self.first(slab);
        let gone = slab.remove(first)?;
        if first == self.last {
            self.last = NOBODY;
        } else if let Some(last) = slab.get_mut(self.last) {
            last.next = gone.next;
        }
        Some(gone.data)
    }

    pub(super) fn clear(&mut self, slab: &mut Slab<QueuedBuffer>) {
        while self.pop(slab).is_some() {}
    }
}

#[cfg(test)]
#[path = "tests/socket_count.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/busy_poll.rs"]
mod busy_poll_tests;

#[cfg(test)]
#[path = "tests/buffer_queue.rs"]
mod buffer_queue_tests;
