//! Handing over what a tick asked for and waiting for what comes next, in one system call.
//!
//! A spin is for few connections, so it sends what is due by plain system calls, which are quicker
//! than the ring for one, and enters the ring when the kernel says, by a flag in memory, that it
//! has completions to work out. Kernels without that flag are asked by system calls, as epoll is.

use super::ring::Wait;
use super::{MEMORY_PAUSE, UringDriver};
use crate::clock::{earlier, monotonic_ns};
use crate::driver::busy_poll::{LOOKS_PER_CLOCK, SpinEnd};
use crate::driver::features::DriverFeature;
use crate::error::IoError;
use rustix::io::Errno;
use std::thread;

/// Up to so many sends go out one by one before a spin; more are cheaper through the ring.
const DIRECT_SENDS_MAX: usize = 2;

/// The kernel works out some twenty completions in a call. After so many it may have more.
const HANDED_OUT_MAX: usize = 16;

/// Calls of one tick that look for prompt clients behind a crowd.
const LOOKS_FOR_PROMPT_CLIENTS_MAX: usize = 16;

/// How long a kernel may have no memory for what is handed over. All peers of the shard wait meanwhile; what lasts
/// longer does not pass, and the shard ends with an error.
const MEMORY_WAIT_MAX_NS: u64 = 10_000_000_000;

impl UringDriver {
    /// Hands everything over, waits, and takes the completions out.
    pub(super) fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), IoError> {
        let must_look_only = self.is_behind() || !self.close_queue.is_empty();
        let own_deadline_ns = self.deadlines.next_deadline_ns();
        let deadline_ns = earlier(deadline_ns, own_deadline_ns);
        let wait = match deadline_ns {
            _ if must_look_only => Wait::Look,
            Some(deadline_ns) if deadline_ns <= self.now_ns => Wait::Look,
            Some(deadline_ns) => Wait::Until(deadline_ns),
            None => Wait::Endless,
        };
        if wait == Wait::Look || !self.busy_poll.is_on() {
            self.hand_over_due();
            self.sleep(wait)?;
        } else {
            self.spin_or_sleep(wait, deadline_ns)?;
        }
        self.take_completions()
    }

    /// What has happened has not all been told of.
    pub(super) fn is_behind(&mut self) -> bool {
        !self.failing.is_empty()
            || !self.resumed.is_empty()
            || self.has_waiting_connections()
            || !self.waiting.is_empty()
            || self.takes_last_connections()
            || self.ring.has_completions()
    }

    /// One call, which sleeps unless a [`crate::Waker`] was used.
    #[inline]
    fn sleep(&mut self, wait: Wait) -> Result<(), IoError> {
        let wait = if wait != Wait::Look && !self.wake.prepare_sleep() {
            Wait::Look
        } else {
            wait
        };
        self.wait_once(wait)
    }

    /// One counted call that is a wait of this tick.
    #[inline]
    fn wait_once(&mut self, wait: Wait) -> Result<(), IoError> {
        self.counters.waits += 1;
        self.enter(wait)?;
        self.counters.empty_waits += u64::from(!self.ring.has_completions());
        Ok(())
    }

    fn spin_or_sleep(&mut self, wait: Wait, deadline_ns: Option<u64>) -> Result<(), IoError> {
        let start_ns = monotonic_ns();
        if !self.busy_poll.is_due() {
            self.hand_over_due();
            self.sleep(wait)?;
            if self.ring.has_completions() {
                self.busy_poll.slept(monotonic_ns() - start_ns);
            }
            return Ok(());
        }
        if self.spin(start_ns, deadline_ns)? {
            return Ok(());
        }
        self.sleep(wait)
    }

    /// Looks again and again until there is something to handle or the deadline is met. False: the
    /// time for that is over and nothing came, so sleep.
    fn spin(&mut self, start_ns: u64, deadline_ns: Option<u64>) -> Result<bool, IoError> {
        let end_ns = self.busy_poll.end_ns(start_ns, deadline_ns);
        let must_ask = !self.features.has(DriverFeature::TaskRunFlag);
        let mut now_ns = start_ns;
        let mut looks = 0;
        let mut has_found = false;
        if self.due.len() <= DIRECT_SENDS_MAX {
            self.send_all_due_directly();
        } else {
            self.hand_over_due();
        }
        if !self.ring.is_handed_over() || self.ring.is_overflowing() {
            self.wait_once(Wait::Look)?;
        }
        while now_ns < end_ns {
            // What could not be handed over, or not be sent, is no case for patience.
            has_found = self.ring.has_completions()
                || self.wake.is_used()
                || !self.failing.is_empty()
                || !self.found_blocked.is_empty()
                || !self.ring.is_handed_over();
            if has_found {
                break;
            }
            if must_ask || self.ring.has_task_work() {
                self.wait_once(Wait::Look)?;
            } else {
                std::hint::spin_loop();
            }
            looks += 1;
            if looks % LOOKS_PER_CLOCK == 0 {
                now_ns = monotonic_ns();
            }
        }
        now_ns = monotonic_ns();
        self.counters.spun_ns += now_ns - start_ns;
        let is_time = deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns);
        self.busy_poll.spun(SpinEnd::of(has_found, is_time));
        if has_found {
            self.counters.spins_paid += 1;
        } else {
            self.counters.spins_vain += 1;
        }
        Ok(has_found || is_time)
    }

    /// Takes out what the kernel completed, once all submissions are with it.
    fn take_completions(&mut self) -> Result<(), IoError> {
        self.ring.take_completions(&mut self.completions);
        self.now_ns = monotonic_ns();
        self.look_for_prompt_clients()?;
        // Sends count as done when nothing is heard of them: so everything must have been said.
        let give_up_ns = self.now_ns.saturating_add(MEMORY_WAIT_MAX_NS);
        while !self.ring.is_handed_over() || self.ring.is_overflowing() {
            let before = (self.ring.unsubmitted(), self.completions.len());
            self.enter(Wait::Look)?;
            self.ring.take_completions(&mut self.completions);
            if before != (self.ring.unsubmitted(), self.completions.len()) {
                continue;
            }
            if monotonic_ns() >= give_up_ns {
                return Err(IoError::System {
                    call: "io_uring_enter",
                    error: Errno::NOMEM,
                });
            }
            thread::sleep(MEMORY_PAUSE);
        }
        self.is_wait_full = self.completions.len() >= HANDED_OUT_MAX;
        Ok(())
    }

    /// While others wait for their turns, takes all that the kernel has: it hands out about twenty
    /// completions per call, and a prompt client's may be behind a crowd's.
    fn look_for_prompt_clients(&mut self) -> Result<(), IoError> {
        let is_waiting = !self.resumed.is_empty() || self.has_waiting_connections();
        if !is_waiting || !self.scheduler.is_protecting() {
            return Ok(());
        }
        for _ in 0..LOOKS_FOR_PROMPT_CLIENTS_MAX {
            let before = self.completions.len();
            self.wait_once(Wait::Look)?;
            self.ring.take_completions(&mut self.completions);
            if self.completions.len() == before {
                break;
            }
        }
        Ok(())
    }

    fn enter(&mut self, wait: Wait) -> Result<(), IoError> {
        self.ring
            .enter(wait)
            .map_err(IoError::system("io_uring_enter"))
    }
}
