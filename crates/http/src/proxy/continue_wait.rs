//! Clients that asked whether to send their body, and upstreams that do not say.
//!
//! On the path: `service` notes each such request; its alarm ends the waits that are over. The
//! upstream's 100 Continue, which ends one earlier, comes by `answering`.
//! Absent on purpose: a timer for each. All wait equally long, so the oldest is the first.

use super::proxied::{BodyState, Proxied};
use super::service::Proxy;
use crate::completions::Completions;
use crate::service::Flow;
use millpond_mempool::Handle;

/// How long a client that asked first waits for the upstream's 100 Continue, as curl does.
const CONTINUE_WAIT_NS: u64 = 1_000_000_000;

impl Proxy {
    /// The client of this request waits from now on.
    pub(super) fn await_continue(&mut self, handle: Handle<Proxied>, now_ns: u64) {
        let due_ns = now_ns + CONTINUE_WAIT_NS;
        self.awaiting.push_back((due_ns, handle));
        self.client.alarm_at(due_ns);
    }

    /// An upstream that says neither 100 nor anything else may never say it: its version may not know
    /// how, or its way of asking is to read on (RFC 9110 10.1.1). The client sends its body, then.
    pub(super) fn end_waits(&mut self, now_ns: u64, completions: &mut Completions<'_>) {
        while let Some(&(due_ns, handle)) = self.awaiting.front() {
            let awaits = |proxied: &&mut Proxied| proxied.body_state == BodyState::AwaitsContinue;
            let proxied = self.requests.get_mut(handle).filter(awaits);
            if due_ns > now_ns && proxied.is_some() {
                self.client.alarm_at(due_ns);
                return;
            }
            if let Some(proxied) = proxied {
                proxied.body_state = BodyState::Passing;
                completions.proceed(proxied.token, |_, _| Flow::Stream(proxied.wants()));
            }
            self.awaiting.pop_front();
        }
    }
}
