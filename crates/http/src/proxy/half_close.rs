//! Clients that send a FIN before their request is answered.
//!
//! A client that has closed its connection cannot be told from one that has closed its sending side
//! alone. It is taken for the first unless the configuration says otherwise, as nginx and haproxy do:
//! else requests that nobody waits for hold connections to upstreams for as long as those take.

use super::proxied::{Proxied, handle_of};
use super::service::Proxy;
use crate::completions::Completions;
use crate::service::AfterFin;
use millpond_mempool::Handle;

/// Requests of half-closed clients that are answered at a time, of one shard. One more is cancelled.
pub const HALF_CLOSED_MAX: usize = 256;

/// What a FIN from a client means for its request, while that is not answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum HalfClose {
    /// The client has gone: the request is cancelled, at the upstream too.
    #[default]
    Cancel,
    /// The request is answered, if its body is complete and no more than [`HALF_CLOSED_MAX`] others
    /// are under way like it.
    Allow {
        /// From the FIN to the end of the answer; the request is cancelled then.
        timeout_ns: u64,
    },
}

impl Proxy {
    pub(super) fn after_fin(&mut self, state: u64, now_ns: u64) -> AfterFin {
        let HalfClose::Allow { timeout_ns } = self.config.half_close else {
            return AfterFin::Cancel;
        };
        let handle = handle_of(state);
        let proxied = self.requests.get(handle);
        if proxied.is_none_or(|proxied| proxied.is_half_closed) {
            // Its answer is complete, or it is known already.
            return AfterFin::Answer;
        }
        if self.half_closed.len() >= HALF_CLOSED_MAX {
            let requests = &self.requests;
            self.half_closed
                .retain(|&(_, handle)| requests.get(handle).is_some());
        }
        if self.half_closed.len() >= HALF_CLOSED_MAX {
            return AfterFin::Cancel;
        }
        if let Some(proxied) = self.requests.get_mut(handle) {
            proxied.is_half_closed = true;
        }
        let due_ns = now_ns.saturating_add(timeout_ns);
        self.half_closed.push_back((due_ns, handle));
        self.client.alarm_at(due_ns);
        AfterFin::Answer
    }

    /// Cancels the requests of half-closed clients whose time is over.
    pub(super) fn end_half_closed(&mut self, now_ns: u64, completions: &mut Completions<'_>) {
        while let Some(&(due_ns, handle)) = self.half_closed.front() {
            let token = self.requests.get(handle).map(|proxied| proxied.token);
            if due_ns > now_ns && token.is_some() {
                self.client.alarm_at(due_ns);
                return;
            }
            self.half_closed.pop_front();
            if let Some(token) = token {
                self.give_up(handle);
                completions.cancel(token);
            }
        }
    }
}

/// Requests of half-closed clients, and when they are cancelled: the first is due first.
pub(super) type HalfClosed = std::collections::VecDeque<(u64, Handle<Proxied>)>;
