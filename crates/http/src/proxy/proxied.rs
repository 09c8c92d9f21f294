//! One request under way through the proxy: what is kept of it until its answer is complete.
//!
//! On the path: `service` makes one when a request comes and looks it up at every event of either
//! side. The head is kept, and a short body too, so that another try can be made of them.

use super::mirrors::Copied;
use super::request_head::OutgoingHead;
use super::upstreams::{Chosen, Tried};
use crate::client::ExchangeId;
use crate::head::Framing;
use crate::method::Method;
use crate::service::{RequestToken, Wants};
use millpond_mempool::{Buffer, Handle};

/// What of the client's body is still to be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum BodyState {
    /// There is none, or all of it is kept here.
    Kept,
    /// The client waits for the upstream's 100 Continue.
    AwaitsContinue,
    /// Parts are wanted as they come.
    Passing,
    /// The upstream has to take what it was given first.
    Blocked,
    /// All of it was passed on.
    Passed,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Proxied {
    pub(super) token: RequestToken,
    pub(super) method: Method,
    pub(super) head: OutgoingHead,
    pub(super) framing: Framing,
    /// A body that came with the head, or was gathered.
    pub(super) body: Buffer,
    pub(super) body_state: BodyState,
    /// A copy of the body in parts, for mirrors.
    pub(super) copy: Option<Handle<Copied>>,
    /// Parts of the body, or its end, were passed on that nobody has any more.
    pub(super) is_body_lost: bool,
    pub(super) expects_continue: bool,
    pub(super) may_upgrade: bool,
    /// Fields behind the client's body go to the upstream.
    pub(super) passes_trailers: bool,
    /// Fields behind the answer's body go to the client.
    pub(super) passes_answer_trailers: bool,
    /// The client knows of informational answers.
    pub(super) is_new_version: bool,
    pub(super) key_hash: Option<u64>,
    pub(super) tried: Tried,
    pub(super) tries: u32,
    pub(super) started_ns: u64,
    /// A kept connection had ended before this request was answered. The next try has a new one.
    pub(super) met_stale: bool,
    /// The try under way.
    pub(super) current: Option<(Chosen, ExchangeId)>,
    /// The client has the head of the answer, or more.
    pub(super) is_answering: bool,
    /// The client has all of the answer.
    pub(super) is_answered: bool,
    /// The client has sent a FIN, and is answered all the same.
    pub(super) is_half_closed: bool,
    /// The answer is not received until the client has taken what there is.
    pub(super) is_paused: bool,
}

impl Proxied {
    /// What to wait for on the client's side.
    pub(super) fn wants(&self) -> Wants {
        Wants {
            body: self.body_state == BodyState::Passing,
            room: self.is_paused,
        }
    }
}

/// The word that the server keeps for us: never zero, which it begins with.
pub(super) fn state_of(handle: Handle<Proxied>) -> u64 {
    handle.to_bits().wrapping_add(1)
}

pub(super) fn handle_of(state: u64) -> Handle<Proxied> {
    Handle::from_bits(state.wrapping_sub(1))
}
