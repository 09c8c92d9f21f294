//! Flags of `millpond serve` for what peers may send and how long they may take.

use clap::Args;
use millpond_http::{LimitValues, LimitsError};
use millpond_io::Address;

use super::{parse_bytes, parse_count, parse_duration_ns};

const CONNECTIONS: &str = "Limits on connections";
const MESSAGES: &str = "Limits on messages";
const TIME: &str = "Deadlines";

/// Caps on peers; `LimitValues` says why each has the default it has.
#[derive(Args, Debug)]
pub(super) struct LimitFlags {
    /// Open connections of the whole server; one more takes the place of the one idle for longest,
    /// or is answered with 503 if none has been idle for --idle-timeout-min
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "16384", help_heading = CONNECTIONS)]
    max_connections: u64,
    /// Open connections from one address (IPv6: from one /64); one more is answered with 503. Behind a proxy or
    /// balancer all clients have its address: none, or --proxy-protocol [default: half of --max-connections, and none
    /// for loopback addresses]
    #[arg(long, value_name = "N|none", value_parser = parse_cap, help_heading = CONNECTIONS)]
    max_connections_per_address: Option<Cap>,

    /// Method, target and version; a longer line is answered with 414
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "8KiB", help_heading = MESSAGES)]
    max_request_line: u64,
    /// Request line and all fields; a longer head is answered with 431
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "16KiB", help_heading = MESSAGES)]
    max_head: u64,
    /// Header fields of a request, at most 128; more are answered with 431
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "100", help_heading = MESSAGES)]
    max_fields: u64,
    /// Body of a request; a longer one is answered with 413 (serve entity: see --max-value)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "64MiB", help_heading = MESSAGES)]
    max_body: u64,
    /// Extensions of one chunk; longer ones are answered with 400
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "256", help_heading = MESSAGES)]
    max_chunk_extension: u64,
    /// Fields behind a chunked body; longer ones are answered with 431
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4KiB", help_heading = MESSAGES)]
    max_trailer: u64,
    /// Pipelined requests of one connection answered before the others have their turn
    #[arg(long, value_name = "N", value_parser = parse_count, default_value = "64", help_heading = MESSAGES)]
    max_pipelined: u64,
    /// Unsent responses of one connection at which its next request waits
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "256KiB", help_heading = MESSAGES)]
    max_output: u64,

    /// From the first byte of a head to its end; 408 beyond it
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "10s", help_heading = TIME)]
    head_timeout: u64,
    /// Without a request, while connections are few; then the connection closes
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "75s", help_heading = TIME)]
    idle_timeout: u64,
    /// What --idle-timeout shrinks to, in a straight line, as nine tenths of the connections fill
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "1s", help_heading = TIME)]
    idle_timeout_min: u64,
    /// How long a body may be slower than --min-body-rate
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "5s", help_heading = TIME)]
    body_grace: u64,
    /// Slowest body, per second; 408 below it
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "240", help_heading = TIME)]
    min_body_rate: u64,
    /// How far a peer may be behind while others wait for the memory of its large body or response: all of
    /// it in two minutes, 64 KiB a second at least; then 408, or the connection is cut
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "2s", help_heading = TIME)]
    contended_grace: u64,
    /// For a peer that does not take its response; then the connection is cut
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s", help_heading = TIME)]
    write_stall: u64,
    /// Slowest reading of a response, per second: what takes longer than --write-stall at this rate
    /// has that much longer
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "16KiB", help_heading = TIME)]
    min_write_rate: u64,
    /// How long a graceful stop waits for requests being answered
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s", help_heading = TIME)]
    drain_timeout: u64,
}

/// A cap, or none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cap {
    At(u64),
    None,
}

fn parse_cap(text: &str) -> Result<Cap, String> {
    match text {
        "none" => Ok(Cap::None),
        count => parse_count(count).map(Cap::At),
    }
}

impl LimitFlags {
    /// Connections that are wanted.
    pub(super) fn connections(&self) -> u64 {
        self.max_connections
    }

    /// The limits of each of `shards` of a server that listens at `listen`. The kernel spreads connections over
    /// them: each gets its share, rounded up.
    /// `has_told_addresses`: clients' addresses come from `--proxy-protocol`, wherever the balancer is.
    /// `connections`: as many of [`Self::connections`] as there are descriptors for.
    pub(super) fn limits(
        &self,
        (listen, has_told_addresses): (&Address, bool),
        shards: usize,
        connections: u64,
    ) -> LimitValues {
        let share = |count: u64| in_memory(count.div_ceil(shards as u64));
        let is_remote = has_told_addresses
            || matches!(listen, Address::Inet(at) if !at.ip().to_canonical().is_loopback());
        let cap = match self.max_connections_per_address {
            // One client alone must not shut all others out.
            None if is_remote => Cap::At(connections.div_ceil(2)),
            None => Cap::None,
            Some(cap) => cap,
        };
        LimitValues {
            request_line_bytes_max: in_memory(self.max_request_line),
            head_bytes_max: in_memory(self.max_head),
            fields_max: in_memory(self.max_fields),
            body_bytes_max: self.max_body,
            // A service that gathers whole bodies says how many bytes of them there may be.
            bodies_bytes_max: LimitValues::default().bodies_bytes_max,
            chunk_extension_bytes_max: in_memory(self.max_chunk_extension),
            trailer_bytes_max: in_memory(self.max_trailer),
            pipelined_per_tick_max: in_memory(self.max_pipelined),
            output_bytes_max: in_memory(self.max_output),
            head_timeout_ns: self.head_timeout,
            idle_timeout_ns: self.idle_timeout,
            idle_timeout_min_ns: self.idle_timeout_min,
            body_grace_ns: self.body_grace,
            body_rate_bytes_per_s_min: self.min_body_rate,
            contended_grace_ns: self.contended_grace,
            write_stall_ns: self.write_stall,
            write_rate_bytes_per_s_min: self.min_write_rate,
            drain_timeout_ns: self.drain_timeout,
            connections_max: share(connections),
            connections_per_address_max: match cap {
                Cap::At(count) => share(count),
                Cap::None => usize::MAX,
            },
            counts_loopback_addresses: self.max_connections_per_address.is_some(),
        }
    }
}

/// The library's sentence with the flag instead of the field.
pub(super) fn in_flags(error: &LimitsError) -> String {
    let LimitsError::OutOfRange {
        name,
        value,
        value_max,
    } = error
    else {
        return error.to_string();
    };
    let flag = FLAGS.iter().find(|(field, _)| field == name);
    let shown = flag.map_or(*name, |(_, flag)| *flag);
    match *value_max {
        u64::MAX => format!("{shown} {value}: use at least 1"),
        value_max => format!("{shown} {value}: use a value from 1 to {value_max}"),
    }
}

/// Where the two differ in more than the order of their words, a reader would not guess one from the other.
const FLAGS: [(&str, &str); 14] = [
    ("request_line_bytes_max", "--max-request-line"),
    ("head_bytes_max", "--max-head"),
    ("fields_max", "--max-fields"),
    ("trailer_bytes_max", "--max-trailer"),
    ("pipelined_per_tick_max", "--max-pipelined"),
    ("output_bytes_max", "--max-output"),
    ("head_timeout_ns", "--head-timeout"),
    ("idle_timeout_ns", "--idle-timeout"),
    ("idle_timeout_min_ns", "--idle-timeout-min"),
    ("body_rate_bytes_per_s_min", "--min-body-rate"),
    ("write_stall_ns", "--write-stall"),
    ("write_rate_bytes_per_s_min", "--min-write-rate"),
    ("connections_max", "--max-connections"),
    (
        "connections_per_address_max",
        "--max-connections-per-address",
    ),
];

fn in_memory(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "tests/limits.rs"]
mod tests;
