//! The life of a socket, the same for every driver: a state machine without I/O, and what a driver does for
//! each of its steps.
//!
//! ```text
//! Connecting -> Open -> Sending -> Lingering -> Closed   (close_after_send)
//!        \________\__-> Failing -> Closed                (reported in a later tick)
//! ```
//! Closing a TCP socket with unread bytes sends a reset, and a reset destroys what the peer has not read yet, often the
//! response with the reason. So a socket whose owner leaves sends its queue, then a FIN, and discards bytes until the
//! peer's FIN. The limits are here; without them an idle peer would keep the socket of an unserved connection.

use super::SocketId;
use super::accepting::RETRY_TIMER_USER;
use crate::scheduler::TIMERS_PER_TICK_MAX;
use crate::timer_wheel::{TimerId, TimerWheel};
use rustix::io::Errno;
use std::collections::VecDeque;

/// A peer that takes no byte of the queue for this long is disconnected.
const STALL_NS: u64 = 30_000_000_000;

/// How long the peer has to finish after our FIN.
const LINGER_NS: u64 = 2_000_000_000;

/// How much of what the peer still sends is read and thrown away.
const DISCARD_BYTES_MAX: u32 = 4 << 20;

/// Where a socket is in its life.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// The handshake runs; output waits.
    Connecting,
    /// Bytes flow.
    Open,
    /// Its owner left; the queue still goes out, arriving bytes are discarded.
    Sending,
    /// Everything and a FIN went out; arriving bytes are discarded until the peer's FIN.
    Lingering,
    /// A call failed outside the socket's own event; the owner learns of it in a later tick, behind what had
    /// arrived before: see [`Life::has_last_bytes`].
    Failing(Errno),
    /// Its id is stale, but the kernel may still have operations on it.
    Closed,
}

/// Whether it receives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Receiving {
    On,
    Paused,
    /// The peer's FIN was reported.
    Finished,
}

/// Whether a socket that failed may have more to deliver before that is reported.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum IsMoreLeft {
    No,
    Yes,
}

/// Actions of a driver after a transition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use = "the transition has happened already"]
pub(super) enum CloseStep {
    Nothing,
    /// The queue goes out within [`STALL_NS`]; received bytes are discarded.
    SendQueue,
    /// A part of the queue has gone out: [`STALL_NS`] begin anew.
    ExtendDeadline,
    /// Send a FIN; received bytes are discarded for [`LINGER_NS`].
    Linger,
    Close,
    /// Close with a reset: the peer does not take what it was sent.
    Reset,
    /// Drop the queue, and report to the owner in a later tick.
    ReportFailure,
}

/// The state of one socket.
#[derive(Debug)]
pub(super) struct Life {
    stage: Stage,
    receiving: Receiving,
    /// After the queue a FIN goes out and the peer's is waited for; else the socket is closed.
    lingers: bool,
    /// The time it lingers was cut short.
    is_linger_short: bool,
    /// How much more is discarded before the socket closes anyway.
    discard_bytes_left: u32,
    /// Ends `Sending` and `Lingering`.
    deadline: Option<TimerId>,
}

impl Life {
    pub(super) fn new(stage: Stage) -> Self {
        Self {
            stage,
            receiving: Receiving::On,
            lingers: true,
            is_linger_short: false,
            discard_bytes_left: DISCARD_BYTES_MAX,
            deadline: None,
        }
    }

    #[inline]
    pub(super) fn stage(&self) -> Stage {
        self.stage
    }

    #[inline]
    pub(super) fn receiving(&self) -> Receiving {
        self.receiving
    }

    /// Its owner has left, and something is still to be done before it closes.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self.stage, Stage::Sending | Stage::Lingering)
    }

    /// Its owner has not left.
    #[inline]
    pub(super) fn is_owned(&self) -> bool {
        matches!(
            self.stage,
            Stage::Connecting | Stage::Open | Stage::Failing(_)
        )
    }

    /// Whether bytes that arrived before a send failed are still to be delivered. A server that refuses an upload
    /// responds, closes and so resets: the response is here while the upload's next send fails. Bound: a broken
    /// connection receives no more, so these are at most the bytes in the kernel's buffer.
    pub(super) fn has_last_bytes(&self) -> bool {
        let is_gone = matches!(
            self.stage,
            Stage::Failing(Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT)
        );
        is_gone && self.receiving == Receiving::On
    }

    /// Whether arriving bytes are to be thrown away.
    pub(super) fn discards(&self) -> bool {
        self.is_closing() && self.lingers && self.receiving != Receiving::Finished
    }

    /// The deadline of one that lingers, once: it is to be set anew.
    fn take_long_linger(&mut self) -> Option<TimerId> {
        let is_first = self.stage == Stage::Lingering && !self.is_linger_short;
        self.is_linger_short |= is_first;
        self.deadline.filter(|_| is_first)
    }

    /// From here on it closes as soon as its queue is out.
    #[cfg(feature = "simulator")]
    pub(super) fn close_without_lingering(&mut self) {
        self.lingers = false;
    }

    /// The handshake is over.
    pub(super) fn connected(&mut self) {
        debug_assert_eq!(self.stage, Stage::Connecting);
        self.stage = Stage::Open;
    }

    /// Whether that changes anything.
    pub(super) fn pause(&mut self) -> bool {
        self.change_receiving(Receiving::On, Receiving::Paused)
    }

    /// Whether that changes anything.
    pub(super) fn resume(&mut self) -> bool {
        self.change_receiving(Receiving::Paused, Receiving::On)
    }

    fn change_receiving(&mut self, from: Receiving, to: Receiving) -> bool {
        let is_change = self.receiving == from;
        if is_change {
            self.receiving = to;
        }
        is_change
    }

    /// The peer's FIN came.
    pub(super) fn peer_finished(&mut self) -> CloseStep {
        self.receiving = Receiving::Finished;
        match self.stage {
            Stage::Lingering => CloseStep::Close,
            _ => CloseStep::Nothing,
        }
    }

    /// Its owner leaves, and what is queued is to arrive.
    fn leave(&mut self, has_queue: bool) -> CloseStep {
        match self.stage {
            Stage::Sending | Stage::Lingering | Stage::Closed => CloseStep::Nothing,
            Stage::Connecting | Stage::Failing(_) => CloseStep::Close,
            Stage::Open if has_queue => {
                self.stage = Stage::Sending;
                CloseStep::SendQueue
            }
            Stage::Open => self.linger(),
        }
    }

    /// The queue is out.
    pub(super) fn queue_sent(&mut self) -> CloseStep {
        match self.stage {
            Stage::Sending => self.linger(),
            _ => CloseStep::Nothing,
        }
    }

    fn linger(&mut self) -> CloseStep {
        // A peer that finished before us is only to be closed, which sends our FIN as well.
        if self.receiving == Receiving::Finished || !self.lingers {
            return CloseStep::Close;
        }
        self.stage = Stage::Lingering;
        CloseStep::Linger
    }

    /// A part of the queue went out.
    pub(super) fn queue_moved(&self) -> CloseStep {
        match self.stage {
            Stage::Sending => CloseStep::ExtendDeadline,
            _ => CloseStep::Nothing,
        }
    }

    /// Bytes arrived and were thrown away.
    pub(super) fn discarded(&mut self, bytes: usize) -> CloseStep {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.discard_bytes_left = self.discard_bytes_left.saturating_sub(bytes);
        match self.discard_bytes_left {
            0 if self.is_closing() => CloseStep::Close,
            _ => CloseStep::Nothing,
        }
    }

    /// The time it had to close is over. After our FIN the peer may still be reading what was sent.
    fn deadline_passed(&self) -> CloseStep {
        match self.stage {
            Stage::Sending => CloseStep::Reset,
            Stage::Lingering => CloseStep::Close,
            _ => CloseStep::Nothing,
        }
    }

    /// A call failed.
    fn fail(&mut self, error: Errno) -> CloseStep {
        match self.stage {
            Stage::Failing(_) | Stage::Closed => CloseStep::Nothing,
            // Its owner left: no event is reported.
            Stage::Sending | Stage::Lingering => CloseStep::Close,
            Stage::Connecting | Stage::Open => {
                self.stage = Stage::Failing(error);
                CloseStep::ReportFailure
            }
        }
    }

    /// It is closed; false if it was already. Ends the count of a closing one.
    pub(super) fn close(&mut self, closing: &mut Closing, deadlines: &mut TimerWheel) -> bool {
        if let Some(deadline) = self.deadline.take() {
            deadlines.remove(deadline);
            closing.count -= 1;
        }
        let is_change = self.stage != Stage::Closed;
        self.stage = Stage::Closed;
        is_change
    }
}

/// Ids beyond twice the sockets that are closing that are kept before ended ones are dropped.
const ENDED_IDS_MAX: usize = 64;

/// The sockets of a driver that send or linger for owners that have left.
#[derive(Debug, Default)]
pub(super) struct Closing {
    pub(super) count: usize,
    /// In the order in which the owners left. May hold ended ones: bound twice `count`, and
    /// [`ENDED_IDS_MAX`].
    order: VecDeque<SocketId>,
}

/// The operations of a driver that the steps need.
pub(super) trait SocketDriver {
    /// `None`: the socket is gone.
    fn life(&mut self, id: SocketId) -> Option<&mut Life>;

    fn closing_mut(&mut self) -> &mut Closing;

    fn deadlines_mut(&mut self) -> &mut TimerWheel;

    fn tick_ns(&self) -> u64;

    /// Bytes that were given are not all with the kernel.
    fn has_queue(&mut self, id: SocketId) -> bool;

    fn send_fin(&mut self, id: SocketId) -> Result<(), Errno>;

    /// Makes arriving bytes be received and dropped.
    fn receive_to_discard(&mut self, id: SocketId);

    fn remove(&mut self, id: SocketId);

    /// Closes with a reset, which takes back what the peer has not taken.
    fn reset_now(&mut self, id: SocketId);

    /// The socket is `Failing`.
    fn report_failure_later(&mut self, id: SocketId);

    /// The listener's pause is over.
    fn accept_again(&mut self);
}

/// The action a transition requires.
pub(super) fn perform<D: SocketDriver>(driver: &mut D, id: SocketId, step: CloseStep) {
    match step {
        CloseStep::Nothing => {}
        CloseStep::SendQueue => {
            set_deadline(driver, id, STALL_NS);
            // From here on, so that the peer can go on to read.
            driver.receive_to_discard(id);
        }
        CloseStep::ExtendDeadline => set_deadline(driver, id, STALL_NS),
        CloseStep::Linger => {
            set_deadline(driver, id, LINGER_NS);
            match driver.send_fin(id) {
                Ok(()) => driver.receive_to_discard(id),
                Err(_) => driver.remove(id),
            }
        }
        CloseStep::Close => driver.remove(id),
        CloseStep::Reset => driver.reset_now(id),
        CloseStep::ReportFailure => driver.report_failure_later(id),
    }
}

fn set_deadline<D: SocketDriver>(driver: &mut D, id: SocketId, allowed_ns: u64) {
    let deadline_ns = driver.tick_ns() + allowed_ns;
    let known = driver.life(id).map(|life| life.deadline);
    let deadline = match known {
        None => return,
        Some(Some(deadline)) => deadline,
        Some(None) => {
            let deadline = driver.deadlines_mut().create(id.to_bits());
            if let Some(life) = driver.life(id) {
                life.deadline = Some(deadline);
            }
            note_closing(driver, id);
            deadline
        }
    };
    driver.deadlines_mut().set(deadline, deadline_ns);
}

fn note_closing<D: SocketDriver>(driver: &mut D, id: SocketId) {
    let closing = driver.closing_mut();
    closing.count += 1;
    if closing.order.len() >= 2 * closing.count + ENDED_IDS_MAX {
        let mut order = std::mem::take(&mut closing.order);
        order.retain(|id| driver.life(*id).is_some_and(|life| life.is_closing()));
        driver.closing_mut().order = order;
    }
    driver.closing_mut().order.push_back(id);
}

/// See [`super::Driver::close_after_send`].
pub(super) fn leave<D: SocketDriver>(driver: &mut D, id: SocketId) {
    let has_queue = driver.has_queue(id);
    if let Some(life) = driver.life(id) {
        let step = life.leave(has_queue);
        perform(driver, id, step);
    }
}

/// See [`super::Driver::shorten_lingering`].
pub(super) fn shorten_lingering<D: SocketDriver>(driver: &mut D, allowed_ns: u64) {
    let deadline_ns = driver.tick_ns() + allowed_ns;
    let order = std::mem::take(&mut driver.closing_mut().order);
    for &id in &order {
        let life = driver.life(id);
        let deadline = life.and_then(Life::take_long_linger);
        if let Some(deadline) = deadline {
            driver.deadlines_mut().set(deadline, deadline_ns);
        }
    }
    driver.closing_mut().order = order;
}

/// Marks a socket whose failure is reported to its owner in a later tick: methods report nothing themselves, so that no
/// handler runs inside another one.
pub(super) fn fail_later<D: SocketDriver>(driver: &mut D, id: SocketId, error: Errno) {
    if let Some(life) = driver.life(id) {
        let step = life.fail(error);
        perform(driver, id, step);
    }
}

/// Takes the socket that has been closing for longest out of the order.
pub(super) fn pop_oldest_closing<D: SocketDriver>(driver: &mut D) -> Option<SocketId> {
    while let Some(id) = driver.closing_mut().order.pop_front() {
        if driver.life(id).is_some_and(|life| life.is_closing()) {
            return Some(id);
        }
    }
    None
}

/// Ends the socket that has been closing for longest; false if none is closing.
pub(super) fn end_oldest_closing<D: SocketDriver>(driver: &mut D) -> bool {
    let oldest = pop_oldest_closing(driver);
    if let Some(id) = oldest {
        end_late(driver, id);
    }
    oldest.is_some()
}

/// Ends a closing socket whose time has passed.
pub(super) fn end_late<D: SocketDriver>(driver: &mut D, id: SocketId) {
    if let Some(life) = driver.life(id) {
        let step = life.deadline_passed();
        perform(driver, id, step);
    }
}

/// Ends what took too long; wakes the listener that paused.
pub(super) fn expire_deadlines<D: SocketDriver>(driver: &mut D) {
    for _ in 0..TIMERS_PER_TICK_MAX {
        let now_ns = driver.tick_ns();
        let Some((user, _)) = driver.deadlines_mut().pop_expired(now_ns) else {
            return;
        };
        match user {
            RETRY_TIMER_USER => driver.accept_again(),
            bits => end_late(driver, SocketId::from_bits(bits)),
        }
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
