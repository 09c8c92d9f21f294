//! The end of a driver: everything the kernel still does for it is ended, in order, before the memory
//! goes that it may be done in.
#![allow(unsafe_code)]

use super::operation::Operation;
use super::ring::Wait;
use super::{Event, UringDriver, id_of};
use crate::clock::monotonic_ns;
use crate::driver::lifecycle::SocketDriver;
use crate::pools::ShardPools;
use io_uring::cqueue;
use millpond_mempool::PoolMode;

/// How long a driver that ends waits for the kernel to let go of its memory.
const FAREWELL_NS: u64 = 1_000_000_000;

impl Drop for UringDriver {
    /// Closing the ring would end its operations some time later, while their memory is gone and
    /// ports stay taken. So everything is ended here, in order.
    fn drop(&mut self) {
        while let Some(id) = self.due.pop() {
            let _ = self.send_due_directly(id);
        }
        let accepting = self.accepting.take();
        let has_accept = accepting.is_some_and(|accepting| accepting.has_operation());
        if has_accept {
            self.cancel(Operation::Accept.alone());
        }
        self.cancel(Operation::Wake.alone());
        let handles: Vec<_> = self.sockets.handles().collect();
        for handle in handles {
            self.remove(id_of(handle));
        }
        self.wait_for_the_kernel(has_accept);
        // What the kernel still holds after so long is better lost than reused.
        for (_, socket) in self.sockets.iter_mut() {
            while let Some(data) = socket.queue.pop(&mut self.queued) {
                std::mem::forget(data);
            }
        }
        self.buffers.withdraw(&self.ring);
    }
}

impl UringDriver {
    /// Until nothing is in flight any more, or for [`FAREWELL_NS`].
    fn wait_for_the_kernel(&mut self, mut has_accept: bool) {
        let give_up_ns = monotonic_ns() + FAREWELL_NS;
        let mut pools = ShardPools::new(PoolMode::Off);
        let mut nobody = |_: &mut Self, _: &mut ShardPools, _: Event<'_>| {};
        let mut has_wake = true;
        loop {
            let is_quiet = self.sockets.is_empty() && !has_accept && !has_wake;
            let wait = if is_quiet {
                Wait::Look
            } else {
                Wait::Until(give_up_ns)
            };
            if self.ring.enter(wait).is_err() || is_quiet || monotonic_ns() >= give_up_ns {
                return;
            }
            let mut completions = std::mem::take(&mut self.completions);
            self.ring.take_completions(&mut completions);
            for completion in completions.drain(..) {
                let is_last = !cqueue::more(completion.flags());
                match Operation::from_user_data(completion.user_data()) {
                    Some((Operation::Wake, _)) => has_wake &= !is_last,
                    Some((Operation::Accept, _)) => has_accept &= !is_last,
                    _ => self.handle_completion(&completion, &mut pools, &mut nobody),
                }
            }
            self.completions = completions;
        }
    }
}
