//! The path of nearly all answers: whole in what one receive brought, and told at once.
//!
//! On the path: `driving` tries this before `reading`, for who asked for it
//! ([`super::ClientConfig::tells_whole_answers`]). The exchange is over and its connection given back
//! before anybody is told, which is once instead of three times.
//!
//! Absent on purpose: chunks, informational answers, changes of protocol, and bodies longer than a
//! part: `reading` has those.

use super::answer_heads::AnswerHeads;
use super::driving::{Listener, tell};
use super::exchange::{AnswerHead, ExchangeEvent, ExchangeReport};
use super::reading::PART_BYTES_MAX;
use super::running::{Exchange, Incoming};
use super::shard_client::{Client, Shared};
use crate::head::{Framing, ResponseHead};
use crate::parse::Parsed;
use millpond_io::{Driver, ShardContext};
use millpond_mempool::Handle;

/// An answer of which all is there.
struct Whole {
    head: ResponseHead,
    framing: Framing,
    user: u64,
    report: ExchangeReport,
}

impl Client {
    /// Ends the exchange if `received` is all of its answer and nothing else. False: nothing was done.
    #[inline]
    pub(super) fn received_whole<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
        on: &mut impl Listener,
    ) -> bool {
        let (heads, whole) = {
            let shared = &mut *self.shared.borrow_mut();
            let Some(mut heads) = shared.heads.take() else {
                return false;
            };
            let Some(whole) = shared.end_if_whole(shard, handle, received, &mut heads) else {
                shared.heads = Some(heads);
                return false;
            };
            (heads, whole)
        };
        let (head, body) = received.split_at(whole.head.head_bytes);
        let event = ExchangeEvent::Whole {
            head: AnswerHead {
                bytes: head,
                head: &whole.head,
                fields: heads.fields(),
                framing: whole.framing,
            },
            body,
            report: &whole.report,
        };
        tell(shard, handle, whole.user, event, on);
        self.shared.borrow_mut().heads = Some(heads);
        true
    }
}

impl Shared {
    fn end_if_whole<D: Driver>(
        &mut self,
        shard: &mut ShardContext<'_, D>,
        handle: Handle<Exchange>,
        received: &[u8],
        heads: &mut AnswerHeads,
    ) -> Option<Whole> {
        let exchange = self.exchanges.get_mut(handle)?;
        let awaits_head = matches!(exchange.incoming, Incoming::Head)
            && exchange.partial.is_empty()
            && exchange.kept.is_none()
            && !exchange.is_paused
            && !exchange.is_receive_paused
            && exchange.is_request_complete();
        if !awaits_head {
            return None;
        }
        let Ok(Parsed::Complete(head)) = heads.read(exchange.key, received, &self.limits) else {
            return None;
        };
        let framing = head.framing(exchange.method);
        let body_bytes = match framing {
            Framing::None => 0,
            Framing::Length(length) if length <= self.limits.body_bytes_max => length,
            _ => return None,
        };
        let is_whole = body_bytes <= PART_BYTES_MAX as u64
            && received.len() == head.head_bytes + body_bytes as usize
            && !head.status.is_informational();
        if !is_whole {
            return None;
        }
        let report = &mut exchange.report;
        if !exchange.has_answer_begun {
            report.first_byte_ns = shard.now_ns.saturating_sub(exchange.connected_ns);
        }
        report.body_bytes = body_bytes;
        let report = exchange.report_at(shard.now_ns);
        let user = exchange.user;
        let is_clean = head.keep_alive(exchange.method) && !exchange.is_peer_finished;
        let holdings = exchange.holdings();
        self.exchanges.discard(handle);
        self.leave(shard, holdings, is_clean);
        Some(Whole {
            head,
            framing,
            user,
            report,
        })
    }
}
