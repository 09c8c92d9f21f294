//! What the futures of one shard wait on besides their requests: time, and other servers.
//!
//! Futures only note what they want; the server hands it to the shard's timers and driver when the
//! tick ends (`pump`, and the [`Client`]'s own), and brings the events back.

use super::request::{AsyncRequest, BodyCell};
use super::upstream::{BODY_BYTES_MAX, Upstreams};
use crate::client::Client;
use crate::limits::Limits;
use crate::request::Request;
use crate::service::ServiceContext;
use millpond_io::connection_pool::PoolConfig;
use millpond_io::{Driver, ShardContext, TimerId, monotonic_ns};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolError, PoolMode, PoolStats, Slab};
use std::cell::RefCell;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Timers of futures are told from those of sockets, whose slots are dense, by this bit.
const SLEEP_TIMER_BIT: u64 = 1 << 31;

/// One shard's place for everything its futures wait on. Clones are the same place.
#[derive(Clone)]
pub struct AsyncShard {
    pub(super) local: Rc<Local>,
}

impl fmt::Debug for AsyncShard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AsyncShard").finish_non_exhaustive()
    }
}

pub(super) struct Local {
    pub(super) bodies: RefCell<Slab<BodyCell>>,
    sleeps: RefCell<Sleeps>,
    pub(super) upstreams: RefCell<Upstreams>,
    pub(super) client: Client,
}

struct Sleeps {
    slab: Slab<SleepState>,
    /// Not in the timer wheel yet.
    fresh: Vec<Handle<SleepState>>,
    /// Timers whose sleep was dropped.
    dropped: Vec<TimerId>,
}

struct SleepState {
    deadline_ns: u64,
    timer: Option<TimerId>,
    waker: Waker,
}

impl AsyncShard {
    /// A place without upstreams, whose addresses will have to be given as numbers.
    #[must_use]
    pub fn new(mode: PoolMode) -> Self {
        let limits = Limits::DEFAULT.with_body_bytes_max(BODY_BYTES_MAX);
        let client = Client::with_parts(mode, PoolConfig::default(), limits, None);
        Self::with_client(mode, client)
    }

    /// A place whose calls go through `client`, of this shard and of nobody else's.
    #[must_use]
    pub fn with_client(mode: PoolMode, client: Client) -> Self {
        Self {
            local: Rc::new(Local {
                bodies: RefCell::new(Slab::new("http_async_bodies", mode)),
                sleeps: RefCell::new(Sleeps {
                    slab: Slab::new("http_sleeps", mode),
                    fresh: Vec::new(),
                    dropped: Vec::new(),
                }),
                upstreams: RefCell::new(Upstreams::new(mode)),
                client,
            }),
        }
    }

    pub(super) fn take_request(
        &self,
        request: &Request<'_>,
        context: &ServiceContext<'_>,
    ) -> Result<(AsyncRequest, Handle<BodyCell>), PoolError> {
        let blocks = &context.pools.blocks;
        let mut head_bytes = Buffer::new();
        head_bytes.extend_from_slice(blocks, request.bytes)?;
        let body = self.local.bodies.borrow_mut().insert(BodyCell::default())?;
        let request = AsyncRequest {
            method: request.method,
            shard: self.clone(),
            blocks: blocks.clone(),
            head_bytes,
            head: *request.head,
            body,
        };
        Ok((request, body))
    }

    pub(super) fn wants_body(&self, body: Handle<BodyCell>) -> bool {
        let bodies = self.local.bodies.borrow();
        bodies.get(body).is_some_and(|cell| cell.is_wanted)
    }

    pub(super) fn body_came(
        &self,
        body: Handle<BodyCell>,
        bytes: &[u8],
        blocks: &BlockPool,
    ) -> Result<(), PoolError> {
        match self.local.bodies.borrow_mut().get_mut(body) {
            Some(cell) => cell.part.extend_from_slice(blocks, bytes),
            None => Ok(()),
        }
    }

    pub(super) fn body_ended(&self, body: Handle<BodyCell>) {
        if let Some(cell) = self.local.bodies.borrow_mut().get_mut(body) {
            cell.is_ended = true;
        }
    }

    pub(super) fn forget_body(&self, body: Handle<BodyCell>) {
        self.local.bodies.borrow_mut().remove(body);
    }

    /// Waits for so long, at least, and about 17 ms longer at most.
    #[must_use]
    pub fn sleep(&self, duration_ns: u64) -> Sleep {
        Sleep {
            local: Rc::clone(&self.local),
            deadline_ns: monotonic_ns().saturating_add(duration_ns),
            state: None,
        }
    }

    pub(super) fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.local.bodies.borrow().stats());
        visit(self.local.sleeps.borrow().slab.stats());
        visit(self.local.upstreams.borrow().stats());
        self.local.client.visit_pool_stats(visit);
    }

    pub(super) fn trim_pools(&self) -> usize {
        self.local.bodies.borrow_mut().trim()
            + self.local.sleeps.borrow_mut().slab.trim()
            + self.local.upstreams.borrow_mut().trim()
            + self.local.client.trim_pools()
    }

    /// Hands over what futures asked for. At the end of every tick.
    pub(crate) fn pump<D: Driver>(&self, shard: &mut ShardContext<'_, D>) {
        let mut sleeps = self.local.sleeps.borrow_mut();
        let Sleeps {
            slab,
            fresh,
            dropped,
        } = &mut *sleeps;
        for handle in fresh.drain(..) {
            if let Some(state) = slab.get_mut(handle) {
                let timer = shard.timers.create(handle.to_bits() | SLEEP_TIMER_BIT);
                shard.timers.set(timer, state.deadline_ns);
                state.timer = Some(timer);
            }
        }
        for timer in dropped.drain(..) {
            shard.timers.remove(timer);
        }
    }

    /// A timer fired; false when it is not one of ours.
    pub(crate) fn timer_expired<D: Driver>(
        &self,
        shard: &mut ShardContext<'_, D>,
        user: u64,
    ) -> bool {
        if user & SLEEP_TIMER_BIT == 0 {
            return false;
        }
        let handle = Handle::from_bits(user & !SLEEP_TIMER_BIT);
        let mut sleeps = self.local.sleeps.borrow_mut();
        if let Some(state) = sleeps.slab.remove(handle) {
            if let Some(timer) = state.timer {
                shard.timers.remove(timer);
            }
            drop(sleeps);
            state.waker.wake();
        }
        true
    }
}

/// A time to wait for.
pub struct Sleep {
    local: Rc<Local>,
    deadline_ns: u64,
    state: Option<Handle<SleepState>>,
}

impl fmt::Debug for Sleep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sleep")
            .field("deadline_ns", &self.deadline_ns)
            .finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let local = Rc::clone(&self.local);
        let mut sleeps = local.sleeps.borrow_mut();
        if let Some(handle) = self.state {
            let Some(state) = sleeps.slab.get_mut(handle) else {
                return Poll::Ready(());
            };
            state.waker.clone_from(context.waker());
            return Poll::Pending;
        }
        let state = SleepState {
            deadline_ns: self.deadline_ns,
            timer: None,
            waker: context.waker().clone(),
        };
        match sleeps.slab.insert(state) {
            Ok(handle) => {
                sleeps.fresh.push(handle);
                self.state = Some(handle);
            }
            // No memory to wait in: look again in the next tick.
            Err(_) if monotonic_ns() < self.deadline_ns => context.waker().wake_by_ref(),
            Err(_) => return Poll::Ready(()),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(handle) = self.state else {
            return;
        };
        let mut sleeps = self.local.sleeps.borrow_mut();
        if let Some(timer) = sleeps.slab.remove(handle).and_then(|state| state.timer) {
            sleeps.dropped.push(timer);
        }
    }
}
