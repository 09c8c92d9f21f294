//! One tick: let the peers act, jump to the next moment at which something happens, report it.

use super::{Attempt, Socket};
use super::{Event, SimDriver, SocketId, handle_of, id_of};
use crate::clock::timespec_of_ns;
use crate::driver::accepting::accept_waiting;
use crate::driver::lifecycle::{Receiving, Stage, expire_deadlines};
use crate::error::IoError;
use crate::pools::ShardPools;
use crate::scheduler::{Usage, Work};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// One thing to report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Task {
    Woken,
    Listener,
    Socket(SocketId),
}

impl SimDriver {
    pub(super) fn tick_once<H>(
        &mut self,
        deadline_ns: Option<u64>,
        pools: &mut ShardPools,
        mut handler: H,
    ) -> Result<(), IoError>
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        self.counters.ticks += 1;
        self.scheduler.begin_tick(self.now_ns);
        self.release_gone();
        self.make_late_sends();
        self.counters.waits += 1;
        self.wait(deadline_ns)?;
        let mut tasks = self.ready_tasks();
        self.choose(&mut tasks);
        self.counters.empty_waits += u64::from(tasks.is_empty());
        let mut next = 0;
        while next < tasks.len() {
            let task = tasks[next];
            next += 1;
            self.perform(task, pools, &mut handler);
            if let Task::Socket(id) = task
                && self.bursts(id)
            {
                tasks.push(task);
            }
        }
        self.give_turns(pools, &mut handler);
        if self.takes_last_connections() {
            self.resume_accepting();
            accept_waiting(self, pools, &mut handler);
            // Those that could not be taken are refused, and so are later ones.
            self.end_accepting();
        }
        expire_deadlines(self);
        Ok(())
    }

    /// Lets time pass until there is something to do, at most until `deadline_ns`.
    fn wait(&mut self, deadline_ns: Option<u64>) -> Result<(), IoError> {
        {
            let mut state = self.network.state();
            if state.ticks_left == 0 {
                return Err(IoError::System {
                    call: "a tick of a simulation that has had all its ticks",
                    error: Errno::DEADLK,
                });
            }
            state.ticks_left -= 1;
            let tick_ns_max = state.plan.tick_ns_max.max(1);
            state.now_ns += state.rng.u64(1..=tick_ns_max);
        }
        loop {
            self.network.run_scripts();
            let now_ns = self.network.now_ns();
            self.now_ns = now_ns;
            let own_ns = self.deadlines.next_deadline_ns();
            let end_ns = [deadline_ns, own_ns].into_iter().flatten().min();
            if self.is_behind() || end_ns.is_some_and(|end_ns| end_ns <= now_ns) {
                return Ok(());
            }
            // From here on another thread that wakes us ends a real wait, should there be one.
            let _ = self.wake.prepare_sleep();
            if self.wake.is_used() {
                return Ok(());
            }
            let script_ns = self.network.next_script_ns();
            let Some(next_ns) = [end_ns, script_ns].into_iter().flatten().min() else {
                return self.wait_for_threads();
            };
            let mut state = self.network.state();
            let probability = state.plan.spurious_wakes;
            if state.chance(probability) {
                let ahead_ns = next_ns.saturating_sub(now_ns);
                state.now_ns += state.rng.u64(0..=ahead_ns);
                self.now_ns = state.now_ns;
                return Ok(());
            }
            state.now_ns = next_ns.max(now_ns);
        }
    }

    /// Nothing is left to happen here: only another thread's waker can change that.
    fn wait_for_threads(&mut self) -> Result<(), IoError> {
        let patience = self.network.state().patience;
        let timeout = timespec_of_ns(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
        while !self.wake.is_used() {
            let mut fds = [PollFd::from_borrowed_fd(self.wake.fd(), PollFlags::IN)];
            let count = match poll(&mut fds, Some(&timeout)) {
                Err(Errno::INTR) => continue,
                outcome => outcome.map_err(IoError::system("poll"))?,
            };
            if count == 0 {
                return Err(IoError::System {
                    call: "the wait of a simulation in which nothing can happen any more",
                    error: Errno::DEADLK,
                });
            }
            // An earlier use that needed no sleep ended may have left its write behind.
            let mut uses = [0; 8];
            let _ = rustix::io::read(self.wake.fd(), &mut uses);
        }
        Ok(())
    }

    /// There is something to do that waits for no time to pass.
    pub(super) fn is_behind(&self) -> bool {
        self.takes_last_connections()
            || self.can_accept()
            || self.sockets.iter().any(|(_, socket)| self.is_ready(socket))
    }

    fn ready_tasks(&mut self) -> Vec<Task> {
        let mut tasks = Vec::new();
        if self.wake.take() {
            tasks.push(Task::Woken);
        }
        if self.can_accept() {
            tasks.push(Task::Listener);
        }
        for (handle, socket) in self.sockets.iter() {
            if self.is_ready(socket) {
                tasks.push(Task::Socket(id_of(handle)));
            }
        }
        tasks
    }

    /// Whether a socket has an event to report, or a closing one has work.
    fn is_ready(&self, socket: &Socket) -> bool {
        let mut state = self.network.state();
        let end = socket.end.end;
        let wire = state.wire(socket.end);
        let error = wire.error(end);
        let is_queued = !socket.queue.is_empty() && !socket.is_late;
        let can_flush = is_queued && (wire.room(end) > 0 || error.is_some());
        let has_arrived = wire.waiting(end) > 0 || wire.is_finished(end) || error.is_some();
        match socket.life.stage() {
            Stage::Connecting => socket.attempt != Attempt::Unanswered,
            Stage::Failing(_) => true,
            Stage::Open => {
                let is_heard = match socket.life.receiving() {
                    Receiving::On => has_arrived,
                    Receiving::Paused | Receiving::Finished => error.is_some(),
                };
                can_flush || is_heard || socket.owes_blocked
            }
            Stage::Sending | Stage::Lingering => can_flush || has_arrived && socket.life.discards(),
            Stage::Closed => false,
        }
    }

    /// Leaves some out for later and mixes the others, as the plan wants.
    fn choose(&mut self, tasks: &mut Vec<Task>) {
        let mut state = self.network.state();
        let state = &mut *state;
        let probability = state.plan.delays;
        // A use of the waker is taken from it already, and must not be lost.
        tasks.retain(|&task| task == Task::Woken || !state.chance(probability));
        if state.plan.reorders {
            state.rng.shuffle(tasks);
        }
    }

    /// Whether more of a socket's completions arrive in the same tick.
    fn bursts(&self, id: SocketId) -> bool {
        let socket = self.sockets.get(handle_of(id));
        let is_open = socket.is_some_and(|socket| socket.life.stage() == Stage::Open);
        let mut state = self.network.state();
        let probability = state.plan.bursts;
        let is_lucky = is_open && state.chance(probability);
        drop(state);
        is_lucky && socket.is_some_and(|socket| self.is_ready(socket))
    }

    fn perform<H>(&mut self, task: Task, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        match task {
            Task::Woken => {
                self.counters.wakes += 1;
                handler(self, pools, Event::Woken);
            }
            Task::Listener => {
                accept_waiting(self, pools, handler);
            }
            Task::Socket(id) if self.must_wait(id) => {}
            Task::Socket(id) => self.look_at(id, pools, handler),
        }
    }

    /// Whether a socket's event waits behind others of its kind, or for the budget of a later tick; then it is in the
    /// queue.
    fn must_wait(&mut self, id: SocketId) -> bool {
        let is_queue_empty = self.waiting.is_empty();
        let Self {
            sockets,
            scheduler,
            waiting,
            counters,
            ..
        } = self;
        let Some(socket) = sockets.get_mut(handle_of(id)) else {
            return false;
        };
        let work = match socket.life.stage() {
            Stage::Open if scheduler.is_prompt(socket.usage) => return false,
            Stage::Open => socket.usage.work(),
            Stage::Failing(_) => Work::End,
            _ => return false,
        };
        if socket.usage == Usage::OURS || is_queue_empty && scheduler.admits(work) {
            return false;
        }
        if !std::mem::replace(&mut socket.is_waiting, true) {
            counters.deferred += 1;
            waiting.push_back(id);
        }
        true
    }

    /// As many of those that wait as the tick's budget admits.
    fn give_turns<H>(&mut self, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        for _ in 0..self.waiting.len() {
            let Some(&id) = self.waiting.front() else {
                return;
            };
            let usage = self.socket(id).map(|socket| socket.usage);
            if usage.is_some_and(|usage| !self.scheduler.admits(usage.work())) {
                return;
            }
            self.waiting.pop_front();
            if let Some(socket) = self.socket(id) {
                socket.is_waiting = false;
                self.look_at(id, pools, handler);
            }
        }
    }

    fn look_at<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let looked_at = self
            .socket(id)
            .map(|socket| (socket.end, socket.life.stage(), socket.attempt));
        let Some((end, stage, attempt)) = looked_at else {
            self.counters.stale_events += 1;
            return;
        };
        {
            let mut state = self.network.state();
            let (resets, loses) = (state.plan.resets, state.plan.resets_lose_input);
            if state.chance(resets) {
                let loses_input = state.chance(loses);
                state.wire(end).reset_by_network(loses_input);
                state.note(end.wire, "reset by the network", 0);
            }
        }
        match (stage, attempt) {
            (Stage::Open, _) => {
                self.tell_if_blocked(id, pools, handler);
                self.flush_if_blocked(id, pools, handler);
                // The handler may have closed it.
                if self.stage(id) == Some(Stage::Open) {
                    self.receive_if_ready(id, pools, handler);
                }
            }
            (Stage::Connecting, Attempt::Ends(Ok(()))) => {
                if let Some(socket) = self.socket(id) {
                    socket.life.connected();
                }
                handler(self, pools, Event::Connected { socket: id });
            }
            (Stage::Failing(_), _) if self.has_last_bytes(id) => {
                self.receive_open(id, pools, handler);
            }
            (Stage::Connecting, Attempt::Ends(Err(error))) | (Stage::Failing(error), _) => {
                self.remove_failed(id, error, pools, handler);
            }
            (Stage::Sending | Stage::Lingering, _) => self.advance_closing(id),
            (Stage::Connecting, Attempt::Unanswered) | (Stage::Closed, _) => {}
        }
    }

    /// Something arrived before a send failed, and is delivered first.
    fn has_last_bytes(&self, id: SocketId) -> bool {
        let socket = self.sockets.get(handle_of(id));
        socket.is_some_and(|socket| {
            let end = socket.end;
            socket.life.has_last_bytes() && self.network.state().wire(end).waiting(end.end) > 0
        })
    }

    fn tell_if_blocked<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if let Some(socket) = self.socket(id)
            && std::mem::take(&mut socket.owes_blocked)
        {
            handler(self, pools, Event::SendBlocked { socket: id });
        }
    }

    fn flush_if_blocked<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        let is_blocked = |socket: &mut Socket| {
            socket.life.stage() == Stage::Open && !socket.is_late && !socket.queue.is_empty()
        };
        if self.socket(id).is_some_and(is_blocked) {
            self.flush_open(id, pools, handler);
        }
    }

    fn receive_if_ready<H>(&mut self, id: SocketId, pools: &mut ShardPools, handler: &mut H)
    where
        H: FnMut(&mut Self, &mut ShardPools, Event<'_>),
    {
        if self
            .sockets
            .get(handle_of(id))
            .is_some_and(|s| self.is_ready(s))
        {
            self.receive_open(id, pools, handler);
        }
    }

    fn release_gone(&mut self) {
        let (tick, gone_before) = (self.counters.ticks, self.gone.len());
        let Self {
            gone,
            sockets,
            socket_count,
            ..
        } = self;
        gone.retain(|&id| {
            let handle = handle_of(id);
            let is_due = sockets
                .get(handle)
                .is_none_or(|socket| socket.until_tick <= tick);
            if is_due && let Some(socket) = sockets.remove(handle) {
                socket_count.closed(socket.end.opener());
            }
            !is_due
        });
        if self.gone.len() < gone_before {
            self.resume_accepting();
        }
    }
}
