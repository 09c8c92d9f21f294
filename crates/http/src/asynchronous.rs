//! `async fn` handlers: one future for each request, in a slab, on the shard's own thread.
//!
//! On the path: [`AsyncService`] is a [`Service`]. A request becomes an [`AsyncRequest`], which the
//! handler's future owns; the future lies in a `PinSlab` of exactly its type and is polled where the
//! request is handled. When it has to wait, the exchange waits with it; whoever wakes it, from any
//! thread, puts its number into a queue and wakes the shard, which polls it in its next tick.
//!
//! ```text
//! call -> future -> poll -> Ready: answered at once
//!                     |
//!                     +-> Pending -> Waker::wake -> ready queue -> woken -> stream(Resumed) -> poll
//! ```
//!
//! No box and no `Arc` per request: the waker of a place in the slab is made once and serves all
//! futures that come to lie there. A wake that comes too late polls the next one once for nothing.

mod request;
mod shard;
mod upstream;
mod call;
mod conversation;

pub use call::UpstreamCall;
pub use conversation::UpstreamConversation;
pub use request::{AsyncRequest, BodyReadError, Reply};
pub use shard::{AsyncShard, Sleep};
pub use upstream::{UpstreamError, UpstreamId, UpstreamReply};

use crate::client::{Client, ExchangeEvent, ExchangeId};
use crate::completions::Completions;
use crate::request::Request;
use crate::response::Response;
use crate::service::{Flow, RequestToken, Service, ServiceContext, ShardStart, StreamEvent, Wants};
use millpond_io::Waker as ShardWaker;
use millpond_mempool::{Handle, PinSlab, PoolStats};
use request::BodyCell;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A service whose handler is an `async fn`: `|request| async move { ... Reply }`.
pub struct AsyncService<H, F> {
    handler: H,
    shard: AsyncShard,
    futures: PinSlab<F>,
    /// By place in `futures`.
    places: Vec<Place>,
    ready: Arc<ReadyQueue>,
    /// Kept for its memory.
    resumed: Vec<RequestToken>,
}

impl<H, F> fmt::Debug for AsyncService<H, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AsyncService")
            .finish_non_exhaustive()
    }
}

/// What belongs to a place in the slab of futures.
struct Place {
    task: Arc<Task>,
    waker: Waker,
    /// The body of the request whose future lies there.
    body: Handle<BodyCell>,
}

/// Futures that were woken.
struct ReadyQueue {
    tokens: Mutex<Vec<RequestToken>>,
    shard: ShardWaker,
}

/// What the wakers of one place in the slab share.
struct Task {
    ready: Arc<ReadyQueue>,
    /// Who lies there now.
    token: AtomicU64,
    is_queued: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let token = RequestToken::from_bits(self.token.load(Ordering::Acquire));
        let tokens = self.ready.tokens.lock();
        tokens.unwrap_or_else(PoisonError::into_inner).push(token);
        self.ready.shard.wake();
    }
}

impl<H, F> AsyncService<H, F>
where
    H: FnMut(AsyncRequest) -> F,
    F: Future<Output = Reply>,
{
    /// A service for one shard. `shard` is what its futures wait on besides their requests.
    pub fn new(start: &ShardStart, shard: AsyncShard, handler: H) -> Self {
        Self {
            handler,
            shard,
            futures: PinSlab::new("http_futures", start.pool_mode),
            places: Vec::new(),
            ready: Arc::new(ReadyQueue {
                tokens: Mutex::default(),
                shard: start.waker.clone(),
            }),
            resumed: Vec::new(),
        }
    }

    /// Polls the future behind `handle`, and answers when it is done.
    fn poll(&mut self, response: &mut Response<'_>, handle: Handle<Option<F>>) -> Flow {
        let Some(future) = self.futures.get_mut(handle) else {
            return Flow::Done;
        };
        let place = &self.places[handle.index() as usize];
        place.task.is_queued.store(false, Ordering::Release);
        match poll(future, &place.waker) {
            Poll::Ready(reply) => {
                self.end(handle);
                // Without memory nothing is sent, which becomes 503.
                let _ = reply.send(response);
                Flow::Done
            }
            Poll::Pending if self.shard.wants_body(place.body) => Flow::Stream(Wants::BODY),
            Poll::Pending => Flow::Stream(Wants::default()),
        }
    }

    fn end(&mut self, handle: Handle<Option<F>>) {
        if self.futures.remove(handle) {
            let body = self.places[handle.index() as usize].body;
            self.shard.forget_body(body);
        }
    }

    /// Keeps the future, which nobody has polled yet.
    fn keep(
        &mut self,
        future: F,
        token: RequestToken,
        body: Handle<BodyCell>,
    ) -> Option<Handle<Option<F>>> {
        let handle = self.futures.insert(future).ok()?;
        let index = handle.index() as usize;
        while self.places.len() <= index {
            let task = Arc::new(Task {
                ready: Arc::clone(&self.ready),
                token: AtomicU64::new(0),
                is_queued: AtomicBool::new(false),
            });
            let waker = Waker::from(Arc::clone(&task));
            self.places.push(Place { task, waker, body });
        }
        let place = &mut self.places[index];
        place.body = body;
        place.task.token.store(token.to_bits(), Ordering::Release);
        place.task.is_queued.store(false, Ordering::Release);
        Some(handle)
    }
}

/// The word that the server keeps for us: never zero, which it begins with.
fn state_of<F>(handle: Handle<Option<F>>) -> u64 {
    handle.to_bits().wrapping_add(1)
}

fn handle_of<F>(state: u64) -> Handle<Option<F>> {
    Handle::from_bits(state.wrapping_sub(1))
}

fn poll<F: Future>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

impl<H, F> Service for AsyncService<H, F>
where
    H: FnMut(AsyncRequest) -> F,
    F: Future<Output = Reply>,
{
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let Ok((request, body)) = self.shard.take_request(request, context) else {
            return Flow::Done;
        };
        let future = (self.handler)(request);
        let Some(handle) = self.keep(future, context.token, body) else {
            self.shard.forget_body(body);
            return Flow::Done;
        };
        context.state = state_of(handle);
        self.poll(response, handle)
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let handle = handle_of(context.state);
        let body = self.places[handle.index() as usize].body;
        let taken = match event {
            StreamEvent::Body(bytes) => self.shard.body_came(body, bytes, &context.pools.blocks),
            StreamEvent::BodyEnd { .. } => {
                self.shard.body_ended(body);
                Ok(())
            }
            StreamEvent::Room | StreamEvent::Resumed => Ok(()),
        };
        if taken.is_err() {
            self.end(handle);
            return Flow::Done;
        }
        self.poll(response, handle)
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        if state != 0 {
            self.end(handle_of(state));
        }
    }

    fn woken(&mut self, completions: &mut Completions<'_>) {
        let mut resumed = std::mem::take(&mut self.resumed);
        {
            let tokens = self.ready.tokens.lock();
            let mut tokens = tokens.unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *tokens, &mut resumed);
        }
        for token in resumed.drain(..) {
            completions.resume(token);
        }
        self.resumed = resumed;
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.futures.stats());
        self.shard.visit_pool_stats(visit);
    }

    fn trim_pools(&mut self) -> usize {
        self.futures.trim() + self.shard.trim_pools()
    }

    fn client(&self) -> Option<&Client> {
        Some(self.shard.client())
    }

    fn exchange_event(
        &mut self,
        _id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
        completions: &mut Completions<'_>,
    ) {
        self.shard.hear(user, event, &completions.pools().blocks);
    }

    fn async_shard(&mut self) -> Option<&mut AsyncShard> {
        Some(&mut self.shard)
    }
}
