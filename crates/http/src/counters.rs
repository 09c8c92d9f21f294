//! What a server counts: plain integers of one shard, added up only when somebody asks.

use crate::status::StatusCode;

const CODES: usize = (StatusCode::CODE_MAX - StatusCode::CODE_MIN + 1) as usize;

/// Counts since the shard started.
#[derive(Clone, Debug)]
pub struct HttpCounters {
    /// Requests handed to a service, `/metrics` included.
    pub requests: u64,
    /// Connections taken.
    pub connections_accepted: u64,
    /// Connections open now.
    pub connections_open: u64,
    /// Connections answered 503 because of `Limits::connections_max`.
    pub connections_refused: u64,
    /// Idle connections closed to make room for a new one when descriptors ran out.
    pub connections_shed: u64,
    /// Connections closed because they were idle for too long.
    pub idle_timeouts: u64,
    /// Heads that took too long.
    pub head_timeouts: u64,
    /// Bodies that were too slow.
    pub body_timeouts: u64,
    /// Connections cut because the peer did not read.
    pub write_stalls: u64,
    responses: [u64; CODES],
}

impl Default for HttpCounters {
    fn default() -> Self {
        Self {
            requests: 0,
            connections_accepted: 0,
            connections_open: 0,
            connections_refused: 0,
            connections_shed: 0,
            idle_timeouts: 0,
            head_timeouts: 0,
            body_timeouts: 0,
            write_stalls: 0,
            responses: [0; CODES],
        }
    }
}

impl HttpCounters {
    /// A final response was written.
    #[inline]
    pub(crate) fn count_response(&mut self, status: StatusCode) {
        self.responses[usize::from(status.code() - StatusCode::CODE_MIN)] += 1;
    }

    /// Responses per status, those that occurred.
    pub fn responses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (StatusCode::CODE_MIN..)
            .zip(self.responses)
            .filter(|&(_, count)| count > 0)
    }
}
