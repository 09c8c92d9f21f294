//! Waiting for ready sockets: a spin first where that was asked for and pays, then one sleep.
//!
//! Absent on purpose: looking without a system call. Epoll has nothing in memory to look at, so
//! its spins cost more than those of a ring.

use super::{EpollDriver, whole_ms_wait};
use crate::clock::{earlier, monotonic_ns, timespec_of_ns};
use crate::driver::busy_poll::{LOOKS_PER_CLOCK, SpinEnd};
use crate::error::IoError;
use rustix::event::epoll;
use rustix::fd::AsFd;
use rustix::io::Errno;

impl EpollDriver {
    /// Fills `events`; returns how many there are.
    pub(super) fn wait(
        &mut self,
        deadline_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, IoError> {
        // All answers of the tick before have left.
        self.close_waiting();
        let own_deadline_ns = self.deadlines.next_deadline_ns();
        let deadline_ns = earlier(deadline_ns, own_deadline_ns);
        let must_look_only = self.is_behind() || !self.close_queue.is_empty();
        let mut wait_ns = match deadline_ns {
            _ if must_look_only => Some(0),
            Some(deadline_ns) => Some(deadline_ns.saturating_sub(monotonic_ns())),
            None => None,
        };
        let mut slept_from_ns = None;
        if wait_ns != Some(0) && self.busy_poll.is_on() {
            let start_ns = monotonic_ns();
            if self.busy_poll.is_due() {
                if let Some(count) = self.spin(start_ns, deadline_ns, events)? {
                    return Ok(count);
                }
                // What is left of the wait; the spin ends before the deadline, or would have said.
                wait_ns = deadline_ns.map(|deadline_ns| deadline_ns.saturating_sub(self.now_ns));
            } else {
                slept_from_ns = Some(start_ns);
            }
        }
        if wait_ns != Some(0) && !self.wake.prepare_sleep() {
            wait_ns = Some(0);
        }
        let count = self.wait_once(wait_ns, events)?;
        self.now_ns = monotonic_ns();
        if let Some(start_ns) = slept_from_ns.filter(|_| count > 0) {
            self.busy_poll.slept(self.now_ns - start_ns);
        }
        Ok(count)
    }

    /// Who is ready has not all been told of.
    pub(super) fn is_behind(&self) -> bool {
        !self.failing.is_empty()
            || self.waiting.count() > 0
            || self.takes_last_connections()
            || self.has_pending_connection()
    }

    /// Looks again and again until there is something to handle. `None`: the time for that is
    /// over and nothing came, so sleep.
    fn spin(
        &mut self,
        start_ns: u64,
        deadline_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<Option<usize>, IoError> {
        let end_ns = self.busy_poll.end_ns(start_ns, deadline_ns);
        let mut looks = 0;
        let found = loop {
            let count = self.wait_once(Some(0), events)?;
            if count > 0 || self.wake.is_used() {
                break Some(count);
            }
            looks += 1;
            if looks % LOOKS_PER_CLOCK == 0 && monotonic_ns() >= end_ns {
                break None;
            }
            std::hint::spin_loop();
        };
        self.now_ns = monotonic_ns();
        self.counters.spun_ns += self.now_ns - start_ns;
        let is_time = deadline_ns.is_some_and(|deadline_ns| self.now_ns >= deadline_ns);
        self.busy_poll.spun(SpinEnd::of(found.is_some(), is_time));
        match found {
            Some(_) => self.counters.spins_paid += 1,
            None => self.counters.spins_vain += 1,
        }
        Ok(found.or(is_time.then_some(0)))
    }

    /// One counted wait; `None` is for ever.
    fn wait_once(
        &mut self,
        wait_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, IoError> {
        self.counters.waits += 1;
        let count = match self.wait_for_events(wait_ns, events) {
            Ok(count) => count,
            // A signal for this thread; the caller decides whether to wait again.
            Err(Errno::INTR) => 0,
            Err(error) => {
                return Err(IoError::System {
                    call: "epoll_wait",
                    error,
                });
            }
        };
        self.counters.empty_waits += u64::from(count == 0);
        Ok(count)
    }

    /// One wait, precise where the kernel can; never shorter than asked for.
    fn wait_for_events(
        &mut self,
        wait_ns: Option<u64>,
        events: &mut [epoll::Event],
    ) -> Result<usize, Errno> {
        if !self.waits_in_whole_ms {
            let timeout = wait_ns.map(timespec_of_ns);
            match epoll::wait(&self.epoll, &mut *events, timeout.as_ref()) {
                Err(Errno::NOSYS) => self.waits_in_whole_ms = true,
                result => return result,
            }
        }
        whole_ms_wait::wait(self.epoll.as_fd(), events, wait_ns)
    }
}
