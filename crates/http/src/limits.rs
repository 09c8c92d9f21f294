//! Every cap on what a peer may send or how long it may take, each with its reason and its response.
//!
//! Limits bound size and time; grammar is fixed.

use std::num::NonZeroU64;
use std::ops::Deref;

const SECOND_NS: u64 = 1_000_000_000;

/// Fields a head can hold at all: the parser's table has this many places, so a server that takes
/// more must change the table, not only a flag. For clients see [`Limits::with_response_heads`].
pub const FIELDS_CAPACITY: usize = 128;

/// Offsets inside a head are 16 bits wide, which halves the parser's table.
pub const HEAD_BYTES_CAPACITY: usize = u16::MAX as usize;

/// The caps of one server or client, as plain values. They are not used directly: [`LimitValues::checked`] makes the
/// [`Limits`] that all types take. `Default` has the servers' values.
///
/// ```
/// use millpond_http::{LimitValues, LimitsError};
///
/// let limits = LimitValues { fields_max: 64, ..LimitValues::default() }.checked()?;
/// assert_eq!(limits.fields_max, 64);
/// let wide = LimitValues { head_bytes_max: 1 << 20, ..LimitValues::default() }.checked();
/// assert!(matches!(wide, Err(LimitsError::OutOfRange { name: "head_bytes_max", .. })));
/// # Ok::<(), LimitsError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitValues {
    /// Method, target and version. 8 KiB is what browsers and proxies agree on; beyond it: 414.
    pub request_line_bytes_max: usize,
    /// Whole head with its last empty line: bounds what one half-sent request pins; beyond it: 431.
    pub head_bytes_max: usize,
    /// Header fields: bounds the work per request whatever their size; beyond it: 431.
    pub fields_max: usize,
    /// Body after decoding; beyond it: 413, before the body is read where its length is announced.
    pub body_bytes_max: u64,
    /// Bodies that are gathered whole, of all shards together, until their responses are sent; one more is not read,
    /// unless it is alone, for up to 5 s, and then gets 503. Those of up to 64 KiB do not count: there are no more of
    /// them than connections.
    pub bodies_bytes_max: u64,
    /// Chunk extensions of one chunk: only attackers use them; beyond it: 400.
    pub chunk_extension_bytes_max: usize,
    /// Trailer section of a chunked body; beyond it: 431.
    pub trailer_bytes_max: usize,
    /// Requests served per connection and tick: a deep pipeline must not starve the others. The rest waits for the next
    /// tick; nothing is refused.
    pub pipelined_per_tick_max: usize,
    /// Unsent response bytes of one connection at which it stops being read (back-pressure).
    pub output_bytes_max: usize,
    /// From the first byte of a head to its end, in total and not per read, so that a byte now
    /// and then does not help; beyond it: 408.
    pub head_timeout_ns: u64,
    /// Before the first request and between requests, while connections are few; beyond it the
    /// connection closes silently, as peers expect.
    pub idle_timeout_ns: u64,
    /// What `idle_timeout_ns` shrinks to, in a straight line, as nine tenths of `connections_max`
    /// fill; and how long a connection has to be idle before it makes room for a new one.
    pub idle_timeout_min_ns: u64,
    /// How long a body may be slower than `body_rate_bytes_per_s_min` before that counts.
    pub body_grace_ns: u64,
    /// Slowest body after the grace; below it: 408.
    pub body_rate_bytes_per_s_min: u64,
    /// How far a peer may be behind while others wait for the memory that its large body holds: all of what is held in
    /// two minutes, 64 KiB a second at least. The one furthest behind gets 408, or is cut if it reads a response too
    /// slowly. Shorter than the 5 s that the others wait.
    pub contended_grace_ns: u64,
    /// For a peer that does not read what it asked for; beyond it the connection is cut.
    pub write_stall_ns: u64,
    /// Slowest reading of a response: so many bytes earn a blocked write one second more.
    pub write_rate_bytes_per_s_min: u64,
    /// How long a graceful stop waits for requests under way.
    pub drain_timeout_ns: u64,
    /// Open connections of one shard. One more takes the place of the one idle for longest, if that is
    /// `idle_timeout_min_ns`; otherwise it gets 503 and is closed.
    pub connections_max: usize,
    /// Open connections of one shard from one address; one more gets 503 and is closed. `usize::MAX`: no limit: behind
    /// a proxy all come from one address.
    pub connections_per_address_max: usize,
    /// Whether connections from loopback addresses count towards `connections_per_address_max`.
    pub counts_loopback_addresses: bool,
}

/// Sockets that are refused or closing, of a shard.
const CLOSING_MIN: usize = 16;
const CLOSING_MAX: usize = 256;

const fn closing_max(connections: usize) -> usize {
    match connections / 4 {
        few if few < CLOSING_MIN => CLOSING_MIN,
        many if many > CLOSING_MAX => CLOSING_MAX,
        some => some,
    }
}

impl LimitValues {
    /// The servers' values.
    pub const DEFAULT: Self = Self {
        request_line_bytes_max: 8 * 1024,
        head_bytes_max: 16 * 1024,
        fields_max: 100,
        body_bytes_max: 64 * 1024 * 1024,
        bodies_bytes_max: u64::MAX,
        chunk_extension_bytes_max: 256,
        trailer_bytes_max: 4 * 1024,
        pipelined_per_tick_max: 64,
        output_bytes_max: 256 * 1024,
        head_timeout_ns: 10 * SECOND_NS,
        idle_timeout_ns: 75 * SECOND_NS,
        idle_timeout_min_ns: SECOND_NS,
        body_grace_ns: 5 * SECOND_NS,
        body_rate_bytes_per_s_min: 240,
        contended_grace_ns: 2 * SECOND_NS,
        write_stall_ns: 30 * SECOND_NS,
        write_rate_bytes_per_s_min: 16 * 1024,
        drain_timeout_ns: 30 * SECOND_NS,
        connections_max: 16 * 1024,
        connections_per_address_max: usize::MAX,
        counts_loopback_addresses: true,
    };

    /// Accepted sockets that a shard holds at most: its connections, and a quarter of as many (16 to 256) that still read
    /// their 503 or are closing. At this bound the one that has been closing for longest is ended for the next.
    #[must_use]
    pub const fn sockets_max(&self) -> usize {
        self.connections_max
            .saturating_add(closing_max(self.connections_max))
    }

    /// The most `connections_max` with which a shard holds no more than `sockets`; 0 for too few of them.
    #[must_use]
    pub const fn connections_within(sockets: usize) -> usize {
        let most = sockets.saturating_sub(CLOSING_MAX);
        let share = sockets / 5 * 4;
        let least = sockets.saturating_sub(CLOSING_MIN);
        // The first of the three whose share for closing sockets is at most the assumed one.
        if most / 4 >= CLOSING_MAX {
            most
        } else if share / 4 >= CLOSING_MIN {
            share
        } else {
            least
        }
    }

    /// Checks each value once, so that nothing that takes [`Limits`] checks again.
    ///
    /// # Errors
    /// The first value, in the order of the fields, that is 0 where something is needed, or larger than
    /// the parser's tables: heads, request lines and trailers up to [`HEAD_BYTES_CAPACITY`], fields up
    /// to [`FIELDS_CAPACITY`].
    pub const fn checked(self) -> Result<Limits, LimitsError> {
        let ranges = self.ranges();
        let mut index = 0;
        while index < ranges.len() {
            let (name, value, value_max) = ranges[index];
            if value == 0 || value > value_max {
                return Err(LimitsError::OutOfRange {
                    name,
                    value,
                    value_max,
                });
            }
            index += 1;
        }
        Ok(Limits(self))
    }

    /// Each value that has to be in a range from 1 on, and the end of the range.
    const fn ranges(&self) -> [(&'static str, u64, u64); 15] {
        let head_max = HEAD_BYTES_CAPACITY as u64;
        let fields_max = FIELDS_CAPACITY as u64;
        let line_bytes = self.request_line_bytes_max as u64;
        let trailer_bytes = self.trailer_bytes_max as u64;
        let pipelined = self.pipelined_per_tick_max as u64;
        let body_rate = self.body_rate_bytes_per_s_min;
        let write_rate = self.write_rate_bytes_per_s_min;
        let connections = self.connections_max as u64;
        let per_address = self.connections_per_address_max as u64;
        let any = u64::MAX;
        [
            ("request_line_bytes_max", line_bytes, head_max),
            ("head_bytes_max", self.head_bytes_max as u64, head_max),
            ("fields_max", self.fields_max as u64, fields_max),
            ("bodies_bytes_max", self.bodies_bytes_max, any),
            ("trailer_bytes_max", trailer_bytes, head_max),
            ("pipelined_per_tick_max", pipelined, any),
            ("output_bytes_max", self.output_bytes_max as u64, any),
            ("head_timeout_ns", self.head_timeout_ns, any),
            ("idle_timeout_ns", self.idle_timeout_ns, any),
            ("idle_timeout_min_ns", self.idle_timeout_min_ns, any),
            ("body_rate_bytes_per_s_min", body_rate, any),
            ("write_stall_ns", self.write_stall_ns, any),
            ("write_rate_bytes_per_s_min", write_rate, any),
            ("connections_max", connections, u32::MAX as u64),
            ("connections_per_address_max", per_address, any),
        ]
    }
}

impl Default for LimitValues {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Checked caps: made by [`LimitValues::checked`], read like the values. Heads parsed under them fit the parser's
/// tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits(LimitValues);

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Deref for Limits {
    type Target = LimitValues;

    #[inline(always)]
    fn deref(&self) -> &LimitValues {
        &self.0
    }
}

impl Limits {
    /// The servers' values.
    pub const DEFAULT: Self = sound(LimitValues::DEFAULT);

    /// For heads that were accepted before, under whatever limits.
    pub(crate) const OF_ACCEPTED_HEADS: Self = sound(LimitValues {
        request_line_bytes_max: HEAD_BYTES_CAPACITY,
        head_bytes_max: HEAD_BYTES_CAPACITY,
        fields_max: FIELDS_CAPACITY,
        body_bytes_max: u64::MAX,
        ..LimitValues::DEFAULT
    });

    /// The same with another cap on one body, which may be any: clients often take whatever comes.
    #[must_use]
    pub const fn with_body_bytes_max(mut self, body_bytes_max: u64) -> Self {
        self.0.body_bytes_max = body_bytes_max;
        self
    }

    /// The same with other caps on the heads of responses, for a [`crate::ClientConnection`], which needs only the
    /// fields about framing: so many fields are checked, and the first [`FIELDS_CAPACITY`] of them are stored in the
    /// table.
    ///
    /// # Errors
    /// A cap of 0, or a head longer than [`HEAD_BYTES_CAPACITY`].
    pub const fn with_response_heads(
        mut self,
        head_bytes_max: usize,
        fields_max: usize,
    ) -> Result<Self, LimitsError> {
        if head_bytes_max == 0 || head_bytes_max > HEAD_BYTES_CAPACITY {
            return Err(LimitsError::OutOfRange {
                name: "head_bytes_max",
                value: head_bytes_max as u64,
                value_max: HEAD_BYTES_CAPACITY as u64,
            });
        }
        if fields_max == 0 {
            return Err(LimitsError::OutOfRange {
                name: "fields_max",
                value: 0,
                value_max: HEAD_BYTES_CAPACITY as u64,
            });
        }
        self.0.head_bytes_max = head_bytes_max;
        self.0.fields_max = fields_max;
        Ok(self)
    }

    /// The same with another cap on all bodies together.
    #[must_use]
    pub const fn with_bodies_bytes_max(mut self, bodies_bytes_max: NonZeroU64) -> Self {
        self.0.bodies_bytes_max = bodies_bytes_max.get();
        self
    }
}

/// For constants: values that are not sound do not compile.
const fn sound(values: LimitValues) -> Limits {
    match values.checked() {
        Ok(limits) => limits,
        Err(_) => panic!("these limits are out of range"),
    }
}

/// A value that no server or client can work with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The parser's table is smaller than what was asked for, or the limit is zero.
    #[error("{name} is {value}: use a value from 1 to {value_max}")]
    OutOfRange {
        /// Field of [`LimitValues`].
        name: &'static str,
        /// The configured value.
        value: u64,
        /// The largest that works.
        value_max: u64,
    },
}

/// A limit that a peer hit: an index into the counts of how often each limit was hit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum Limit {
    /// `request_line_bytes_max`
    RequestLine,
    /// `head_bytes_max`
    Head,
    /// `fields_max`
    Fields,
    /// `body_bytes_max`
    Body,
    /// `bodies_bytes_max`
    Bodies,
    /// `chunk_extension_bytes_max`
    ChunkExtension,
    /// `trailer_bytes_max`
    Trailer,
    /// `pipelined_per_tick_max`
    Pipelined,
    /// `output_bytes_max`
    Output,
    /// `head_timeout_ns`
    HeadTime,
    /// `idle_timeout_ns`, shrunken or not
    IdleTime,
    /// `body_rate_bytes_per_s_min`, after `body_grace_ns`
    BodyRate,
    /// `write_stall_ns`, with what `write_rate_bytes_per_s_min` earned
    WriteStall,
    /// `drain_timeout_ns`
    Drain,
    /// `connections_max`
    Connections,
    /// `connections_per_address_max`
    AddressConnections,
    /// `contended_grace_ns`
    Contended,
}

impl Limit {
    /// How many there are.
    pub(crate) const COUNT: usize = 17;
}

/// One limit as `/metrics` shows it: the field's name, its value, and what counts its hits.
pub(crate) type NamedLimit = (&'static str, u64, Option<Limit>);

impl LimitValues {
    /// Every limit by the name of its field. Those that only shape another one are counted with it.
    pub(crate) fn named(&self) -> [NamedLimit; Limit::COUNT + 3] {
        use Limit as L;
        let of = |name, value: u64, limit: L| (name, value, Some(limit));
        let size = |name, value: usize, limit: L| (name, value as u64, Some(limit));
        let address_max = self.connections_per_address_max;
        let extension_max = self.chunk_extension_bytes_max;
        let rate_min = self.body_rate_bytes_per_s_min;
        let write_rate_min = self.write_rate_bytes_per_s_min;
        [
            size(
                "request_line_bytes_max",
                self.request_line_bytes_max,
                L::RequestLine,
            ),
            size("head_bytes_max", self.head_bytes_max, L::Head),
            size("fields_max", self.fields_max, L::Fields),
            of("body_bytes_max", self.body_bytes_max, L::Body),
            of("bodies_bytes_max", self.bodies_bytes_max, L::Bodies),
            size(
                "chunk_extension_bytes_max",
                extension_max,
                L::ChunkExtension,
            ),
            size("trailer_bytes_max", self.trailer_bytes_max, L::Trailer),
            size(
                "pipelined_per_tick_max",
                self.pipelined_per_tick_max,
                L::Pipelined,
            ),
            size("output_bytes_max", self.output_bytes_max, L::Output),
            of("head_timeout_ns", self.head_timeout_ns, L::HeadTime),
            of("idle_timeout_ns", self.idle_timeout_ns, L::IdleTime),
            ("idle_timeout_min_ns", self.idle_timeout_min_ns, None),
            of("body_rate_bytes_per_s_min", rate_min, L::BodyRate),
            ("body_grace_ns", self.body_grace_ns, None),
            of("contended_grace_ns", self.contended_grace_ns, L::Contended),
            of("write_stall_ns", self.write_stall_ns, L::WriteStall),
            ("write_rate_bytes_per_s_min", write_rate_min, None),
            of("drain_timeout_ns", self.drain_timeout_ns, L::Drain),
            size("connections_max", self.connections_max, L::Connections),
            size(
                "connections_per_address_max",
                address_max,
                L::AddressConnections,
            ),
        ]
    }

    /// How long a connection may be idle while `open_count` are open: less, the fewer more there
    /// may be.
    pub(crate) fn idle_timeout_with_ns(&self, open_count: usize) -> u64 {
        let shortest_ns = self.idle_timeout_min_ns.min(self.idle_timeout_ns);
        let range_ns = u128::from(self.idle_timeout_ns - shortest_ns);
        let full = self.connections_max as u128 * 9;
        let spare = full.saturating_sub(open_count as u128 * 10);
        // At most `range_ns`, so it fits.
        shortest_ns + (range_ns * spare / full) as u64
    }
}

#[cfg(test)]
#[path = "tests/limits.rs"]
mod tests;
