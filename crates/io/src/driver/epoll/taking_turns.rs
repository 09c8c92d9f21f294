//! The turns of those who were put off behind regulars; see `standing`.

use super::socket::Stage;
use super::{EpollDriver, Event, IsTurn, SocketId};
use crate::driver::handle_of;
use crate::driver::standing::Turn;
use crate::driver::turn::TURN_OF_OTHERS_BYTES;
use crate::pools::ShardPools;
use millpond_mempool::Lease;
use rustix::event::epoll;

impl EpollDriver {
    /// Handles as many of them as have their turn in this tick. The kernel reports the others again,
    /// behind the rest only where that is more than it reports at once; otherwise in the same order
    /// for ever. So who is next goes round here: sixteen that sent heads without end once had all turns
    /// among the first six of them, and ten met the deadline of their heads.
    pub(super) fn give_turns<H>(
        &mut self,
        turn: &mut Turn,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let mut put_off = std::mem::take(&mut self.put_off);
        self.counters.put_off += put_off.len() as u64;
        if !put_off.is_empty() {
            self.turn_bytes = self.turn_bytes.min(TURN_OF_OTHERS_BYTES);
        }
        let next = self.turns_given.checked_rem(put_off.len()).unwrap_or(0);
        let (last, first) = put_off.split_at(next);
        for event in first.iter().chain(last) {
            if self.is_failing(event) {
                continue;
            }
            if !turn.goes_on() {
                break;
            }
            self.turns_given = self.turns_given.wrapping_add(1);
            self.handle_in_turn(event, buffer, pools, handler);
        }
        put_off.clear();
        self.put_off = put_off;
    }

    /// What failed is ended in its own turn, and reported by the kernel until then.
    fn is_failing(&self, event: &epoll::Event) -> bool {
        let id = SocketId::from_bits(event.data.u64());
        let socket = self.sockets.get(handle_of(id));
        socket.is_some_and(|socket| matches!(socket.stage, Stage::Failing(_)))
    }

    /// Out of the way of those who are not put off.
    #[inline(never)]
    fn handle_in_turn<H>(
        &mut self,
        event: &epoll::Event,
        buffer: &mut Lease,
        pools: &mut ShardPools,
        handler: &mut H,
    ) where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.handle_socket(event, IsTurn::Yes, buffer, pools, handler);
    }
}
