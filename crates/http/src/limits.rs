//! Every cap on what a peer may send or how long it may take, each with its reason and its answer.
//!
//! Absent on purpose: a switch that loosens framing. Limits bound size and time; grammar is fixed.

const SECOND_NS: u64 = 1_000_000_000;

/// Fields a head can hold at all: the parser's table has this many places, so a server that wants
/// more must change the table, not only a flag.
pub const FIELDS_CAPACITY: usize = 128;

/// Offsets inside a head are 16 bits wide, which halves the parser's table.
pub const HEAD_BYTES_CAPACITY: usize = u16::MAX as usize;

/// The caps of one server or client. `Default` is what the servers run with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Method, target and version. 8 KiB is what browsers and proxies agree on; beyond it: 414.
    pub request_line_bytes_max: usize,
    /// Whole head with its last empty line: bounds what one half-sent request pins; beyond it: 431.
    pub head_bytes_max: usize,
    /// Header fields: bounds the work per request whatever their size; beyond it: 431.
    pub fields_max: usize,
    /// Body after decoding; beyond it: 413, before the body is read where its length is announced.
    pub body_bytes_max: u64,
    /// Bodies that are gathered whole, of all shards together, until their requests are answered; one
    /// more is not read, unless it is alone, for up to 5 s, and then answered 503. Those of up to 64 KiB
    /// do not count: there are no more of them than connections.
    pub bodies_bytes_max: u64,
    /// Chunk extensions of one chunk: nobody uses them, attackers do; beyond it: 400.
    pub chunk_extension_bytes_max: usize,
    /// Trailer section of a chunked body; beyond it: 431.
    pub trailer_bytes_max: usize,
    /// Requests answered per connection and tick: a deep pipeline must not starve the others.
    /// The rest waits for the next tick; nothing is refused.
    pub pipelined_per_tick_max: usize,
    /// Unsent response bytes of one connection at which it stops being read (back-pressure).
    pub output_bytes_max: usize,
    /// From the first byte of a head to its end, in total and not per read, so that a byte now
    /// and then does not help; beyond it: 408.
    pub head_timeout_ns: u64,
    /// Before the first request and between requests, while connections are few; beyond it the
    /// connection closes without a word, as peers expect.
    pub idle_timeout_ns: u64,
    /// What `idle_timeout_ns` shrinks to, in a straight line, as nine tenths of `connections_max`
    /// fill; and how long a connection has to be idle before it makes room for a new one.
    pub idle_timeout_min_ns: u64,
    /// How long a body may be slower than `body_rate_bytes_per_s_min` before that counts.
    pub body_grace_ns: u64,
    /// Slowest body after the grace; below it: 408.
    pub body_rate_bytes_per_s_min: u64,
    /// For a peer that does not read what it asked for; beyond it the connection is cut.
    pub write_stall_ns: u64,
    /// Slowest reading of a response: so many bytes earn a blocked write one second more.
    pub write_rate_bytes_per_s_min: u64,
    /// How long a graceful stop waits for requests being answered.
    pub drain_timeout_ns: u64,
    /// Open connections of one shard. One more takes the place of the one idle for longest, if that
    /// is `idle_timeout_min_ns`; otherwise it is answered 503 and closed.
    pub connections_max: usize,
    /// Open connections of one shard from one address; one more is answered 503 and closed.
    /// `usize::MAX` counts nobody: behind a proxy all come from one address.
    pub connections_per_address_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
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
            write_stall_ns: 30 * SECOND_NS,
            write_rate_bytes_per_s_min: 16 * 1024,
            drain_timeout_ns: 30 * SECOND_NS,
            connections_max: 16 * 1024,
            connections_per_address_max: usize::MAX,
        }
    }
}

/// Limits that contradict each other or the parser's tables.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The parser's table is smaller than what was asked for, or the limit is zero.
    #[error("{name} is {value}: use a value from 1 to {value_max}")]
    OutOfRange {
        /// Field of [`Limits`].
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// The largest that works.
        value_max: u64,
    },
}

/// What a peer ran into: an index into the counts of how often each limit struck.
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
}

impl Limit {
    /// How many there are.
    pub(crate) const COUNT: usize = 16;
}

/// One limit as `/metrics` shows it: the field's name, its value, and what struck counts it.
pub(crate) type NamedLimit = (&'static str, u64, Option<Limit>);

impl Limits {
    /// Every limit by the name of its field. Those that only shape another one strike with it.
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
        // At most `range_ns`, hence it fits.
        shortest_ns + (range_ns * spare / full) as u64
    }

    /// Checks once at start what the parser then relies on.
    pub fn check(&self) -> Result<(), LimitsError> {
        let head_max = HEAD_BYTES_CAPACITY as u64;
        let any = u64::MAX;
        for (name, value, value_max) in [
            (
                "request_line_bytes_max",
                self.request_line_bytes_max as u64,
                head_max,
            ),
            ("head_bytes_max", self.head_bytes_max as u64, head_max),
            ("fields_max", self.fields_max as u64, FIELDS_CAPACITY as u64),
            ("trailer_bytes_max", self.trailer_bytes_max as u64, head_max),
            (
                "pipelined_per_tick_max",
                self.pipelined_per_tick_max as u64,
                any,
            ),
            ("bodies_bytes_max", self.bodies_bytes_max, any),
            ("output_bytes_max", self.output_bytes_max as u64, any),
            ("head_timeout_ns", self.head_timeout_ns, any),
            ("idle_timeout_ns", self.idle_timeout_ns, any),
            ("idle_timeout_min_ns", self.idle_timeout_min_ns, any),
            (
                "body_rate_bytes_per_s_min",
                self.body_rate_bytes_per_s_min,
                any,
            ),
            ("write_stall_ns", self.write_stall_ns, any),
            (
                "write_rate_bytes_per_s_min",
                self.write_rate_bytes_per_s_min,
                any,
            ),
            (
                "connections_max",
                self.connections_max as u64,
                u64::from(u32::MAX),
            ),
            (
                "connections_per_address_max",
                self.connections_per_address_max as u64,
                any,
            ),
        ] {
            if value == 0 || value > value_max {
                return Err(LimitsError::OutOfRange {
                    name,
                    value,
                    value_max,
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the idle timeout is a straight line down to its minimum at nine tenths of the
    /// connections, and stays there; a minimum above the timeout changes nothing.
    #[test]
    fn idle_timeout_shrinks_in_a_straight_line() {
        let limits = Limits {
            idle_timeout_ns: 75 * SECOND_NS,
            idle_timeout_min_ns: SECOND_NS,
            connections_max: 1000,
            ..Limits::default()
        };
        for (open_count, expected_s) in [(0, 75), (450, 38), (900, 1), (901, 1), (1000, 1)] {
            let allowed_ns = limits.idle_timeout_with_ns(open_count);
            assert_eq!(allowed_ns, expected_s * SECOND_NS, "{open_count} open");
        }
        let short = Limits {
            idle_timeout_ns: SECOND_NS / 2,
            ..limits
        };
        assert_eq!(short.idle_timeout_with_ns(0), SECOND_NS / 2);
        assert_eq!(short.idle_timeout_with_ns(1000), SECOND_NS / 2);
    }

    /// Goal: every limit that can strike has a name and a place of its own, and each field is there.
    #[test]
    fn every_limit_is_named_once() {
        let limits = Limits::default();
        let named = limits.named();
        let mut places: Vec<usize> = named.iter().flat_map(|n| n.2).map(|l| l as usize).collect();
        places.sort_unstable();
        assert_eq!(places, (0..Limit::COUNT).collect::<Vec<_>>());
        let debug = format!("{limits:?}");
        for (name, value, _) in named {
            assert!(
                debug.contains(&format!("{name}: {value}")),
                "{name} in {debug}"
            );
        }
        assert_eq!(debug.matches(": ").count(), named.len(), "{debug}");
    }

    /// Goal: what the servers run with passes its own check, and a limit past a table does not.
    #[test]
    fn default_limits_hold_and_oversized_ones_are_named() {
        assert_eq!(Limits::default().check(), Ok(()));
        let wide = Limits {
            fields_max: FIELDS_CAPACITY + 1,
            ..Limits::default()
        };
        let error = wide.check().unwrap_err();
        assert_eq!(
            error.to_string(),
            "fields_max is 129: use a value from 1 to 128"
        );
        assert!(
            Limits {
                idle_timeout_ns: 0,
                ..Limits::default()
            }
            .check()
            .is_err()
        );
    }
}
