//! `async fn` handlers: one future for each request, in a slab, on the shard's own thread.
//!
//! [`AsyncService`] is a [`Service`]. A request becomes an [`AsyncRequest`], which the handler's
//! future owns; the future lies in a `PinSlab` of exactly its type and is polled where the request
//! is handled. When it has to wait, the exchange waits with it; a wake, from any thread,
//! puts its number into a queue and wakes the shard, which polls it in its next tick.
//!
//! ```text
//! call -> future -> poll -> Ready: answered at once
//!                     |
//!                     +-> Pending -> Waker::wake -> ready queue -> woken -> stream(Resumed) -> poll
//! ```
//!
//! No box and no `Arc` per request: the waker of a place in the slab is made once and serves all
//! futures that come to lie there. A wake that comes too late polls the next one once for nothing.

mod upstream;

use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use millpond_io::connection_pool::PoolConfig;
use millpond_io::{Driver, ShardContext, TimerId, Waker as ShardWaker, monotonic_ns};
use millpond_mempool::{
    BlockPool, Buffer, Handle, PinSlab, Pool, PoolError, PoolMode, PoolStats, Pooled, Slab,
};
use upstream::{BODY_BYTES_MAX, Upstreams};

use crate::client::{Client, ExchangeEvent, ExchangeId};
use crate::completions::Completions;
use crate::head::{Framing, HeadFields, RequestHead};
use crate::head_text::{Field, FieldName, FieldValue, HeadTextError, RequestTarget};
use crate::limits::Limits;
use crate::method::Method;
use crate::parse::parse_request_head;
use crate::request::Request;
use crate::response::{BodyLength, Response, SendError, WriteError};
use crate::service::{
    Flow, Interest, RequestToken, Service, ServiceContext, ShardStart, StreamEvent,
};
use crate::status::StatusCode;

pub use upstream::UpstreamCall;
pub use upstream::UpstreamConversation;
pub use upstream::{UpstreamError, UpstreamId, UpstreamReply};

/// A service whose handler is an `async fn`: `|request| async move { ... Reply }`.
pub struct AsyncService<H, F> {
    handler: H,
    shard: AsyncShard,
    futures: PinSlab<F>,
    /// By place in `futures`.
    places: Vec<TaskSlot>,
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

/// State of one slot in the slab of futures.
struct TaskSlot {
    task: Arc<Task>,
    waker: Waker,
    /// The body of the request whose future is in this slot.
    body: Handle<BodyCell>,
}

/// Futures that were woken.
struct ReadyQueue {
    tokens: Mutex<Vec<RequestToken>>,
    shard: ShardWaker,
}

/// State shared by the wakers of one slot in the slab.
struct Task {
    ready: Arc<ReadyQueue>,
    /// The task that lies there now.
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
    /// A service for one shard. `shard`: other things that its futures wait for (timers, upstream calls).
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

    /// Polls the future behind `handle`, and sends the response when it is done.
    fn poll(&mut self, response: &mut Response<'_>, handle: Handle<Option<F>>) -> Flow {
        let Some(mut future) = self.futures.get_mut(handle) else {
            return Flow::Done;
        };
        let place = &self.places[handle.index() as usize];
        let body = place.body;
        let (polled, is_whole) = loop {
            place.task.is_queued.store(false, Ordering::Release);
            let polled = poll(future.as_mut(), &place.waker);
            let sent = self.shard.send_parts(body, response, polled.is_ready());
            match sent {
                // The awaited data is there already. The room in the output ends this loop.
                Ok(Progress::RoomForMore) if polled.is_pending() => {}
                sent => break (polled, sent.is_ok()),
            }
        };
        match polled {
            Poll::Ready(reply) => {
                self.end(handle);
                // Without memory nothing is sent, which becomes 503; a response that was begun and not finished is cut.
                let _ = match reply.body {
                    ReplyBody::Begun if is_whole => response.finish().is_ok(),
                    ReplyBody::Begun => false,
                    _ => reply.send(response).is_ok(),
                };
                Flow::Done
            }
            Poll::Pending if is_whole => Flow::Stream(self.shard.interest(body)),
            Poll::Pending => {
                self.end(handle);
                Flow::Done
            }
        }
    }

    fn end(&mut self, handle: Handle<Option<F>>) {
        if self.futures.remove(handle) {
            let body = self.places[handle.index() as usize].body;
            self.shard.forget_body(body);
        }
    }

    /// Keeps the future, which has not been polled yet.
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
            self.places.push(TaskSlot { task, waker, body });
        }
        let place = &mut self.places[index];
        place.body = body;
        place.task.token.store(token.to_bits(), Ordering::Release);
        place.task.is_queued.store(false, Ordering::Release);
        Some(handle)
    }
}

/// The user data that the server keeps for us: never zero, its initial value.
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
            StreamEvent::Body(bytes) => {
                let blocks = &context.pools.blocks;
                let taken = self.shard.body_came(body, bytes, blocks);
                taken.map_err(WriteError::Memory)
            }
            StreamEvent::BodyEnd { .. } => {
                self.shard.body_ended(body);
                Ok(())
            }
            // So that the future finds room when it is polled.
            StreamEvent::Room => self.shard.send_parts(body, response, false).map(|_| ()),
            StreamEvent::Resumed => Ok(()),
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

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
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

// Other things that the futures of one shard wait for: timers and upstream calls.
//
// Futures only note what they want; the server hands it to the shard's timers and driver when the
// tick ends (`pump`, and the [`Client`]'s own), and brings the events back.

/// Result for the parts of a body.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    /// The future waits for room, and all of its parts have been taken.
    RoomForMore,
    /// For room, for something else, or for nothing.
    Waiting,
}

/// A future that has written so much waits until it was taken.
const OUTGOING_BYTES_MAX: usize = 16 << 10;

/// This bit distinguishes timers of futures from those of sockets, whose slots are dense.
const SLEEP_TIMER_BIT: u64 = 1 << 31;

/// One shard's place for everything its futures wait on. Clones are the same place.
#[derive(Clone)]
pub struct AsyncShard {
    local: Rc<Local>,
}

impl fmt::Debug for AsyncShard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AsyncShard").finish_non_exhaustive()
    }
}

struct Local {
    bodies: RefCell<Slab<BodyCell>>,
    /// Tables of the fields of requests whose handlers read them.
    fields: Pool<HeadFields>,
    sleeps: RefCell<Sleeps>,
    upstreams: RefCell<Upstreams>,
    client: Client,
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
    /// A shard without upstreams: addresses must be numeric.
    #[must_use]
    pub fn new(mode: PoolMode) -> Self {
        let limits = Limits::DEFAULT.with_body_bytes_max(BODY_BYTES_MAX);
        let client = Client::with_parts(mode, PoolConfig::default(), limits, None);
        Self::with_client(mode, client)
    }

    /// A shard whose calls go through `client`, which must belong to this shard.
    #[must_use]
    pub fn with_client(mode: PoolMode, client: Client) -> Self {
        Self {
            local: Rc::new(Local {
                bodies: RefCell::new(Slab::new("http_async_bodies", mode)),
                fields: Pool::new("http_async_fields", mode),
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

    fn take_request(
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
            fields: OnceCell::new(),
            body,
        };
        Ok((request, body))
    }

    /// The event that the future waits for.
    fn interest(&self, body: Handle<BodyCell>) -> Interest {
        let bodies = self.local.bodies.borrow();
        bodies
            .get(body)
            .map_or(Interest::default(), |cell| Interest {
                body: cell.is_wanted,
                room: !cell.outgoing.is_empty(),
            })
    }

    /// Writes what the future has begun and given of its response: as much as there is room for, or all of it.
    fn send_parts(
        &self,
        body: Handle<BodyCell>,
        response: &mut Response<'_>,
        is_last: bool,
    ) -> Result<Progress, WriteError> {
        let mut bodies = self.local.bodies.borrow_mut();
        let Some(cell) = bodies.get_mut(body) else {
            return Ok(Progress::Waiting);
        };
        if let Some((head, length)) = cell.begun.take() {
            head.start(response, length)?;
        }
        let room_bytes = if is_last {
            usize::MAX
        } else {
            response.room_bytes()
        };
        let count = cell.outgoing.len().min(room_bytes);
        if count > 0 {
            response.write(&cell.outgoing[..count])?;
            cell.outgoing.consume_front(count);
        }
        let wants_room = std::mem::take(&mut cell.wants_room);
        Ok(match wants_room && cell.outgoing.is_empty() {
            true => Progress::RoomForMore,
            false => Progress::Waiting,
        })
    }

    fn body_came(
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

    fn body_ended(&self, body: Handle<BodyCell>) {
        if let Some(cell) = self.local.bodies.borrow_mut().get_mut(body) {
            cell.is_ended = true;
        }
    }

    fn forget_body(&self, body: Handle<BodyCell>) {
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

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.local.bodies.borrow().stats());
        visit(self.local.fields.stats());
        visit(self.local.sleeps.borrow().slab.stats());
        visit(self.local.upstreams.borrow().stats());
        self.local.client.visit_pool_stats(visit);
    }

    fn trim_pools(&self) -> usize {
        self.local.bodies.borrow_mut().trim()
            + self.local.fields.trim()
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
            // No memory to wait in: poll again in the next tick.
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

// The request that an `async` handler owns, and the means to respond.

/// A body on its way from the server to a future.
#[derive(Debug, Default)]
struct BodyCell {
    /// The next part, until the future takes it.
    part: Buffer,
    is_ended: bool,
    /// The future waits for a part.
    is_wanted: bool,
    /// Status and fields of a response that the future has begun and the server has not sent.
    begun: Option<(Reply, BodyLength)>,
    /// Of the response's body, what the future has written and the server has not.
    outgoing: Buffer,
    /// The future waits until that was taken.
    wants_room: bool,
}

/// A request, owned: its head was copied once into pooled memory, its body is read when asked for.
pub struct AsyncRequest {
    /// The method; `Extension` for one without a name.
    pub method: Method,
    shard: AsyncShard,
    blocks: BlockPool,
    head_bytes: Buffer,
    head: RequestHead,
    /// Once a field was asked for.
    fields: OnceCell<Pooled<HeadFields>>,
    body: Handle<BodyCell>,
}

impl fmt::Debug for AsyncRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AsyncRequest")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

/// Why a body could not be read to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyReadError {
    /// Larger than the handler accepts: respond with 413.
    #[error("the body is larger than the {limit_bytes} bytes this handler takes")]
    TooLong {
        /// The limit that the handler gave.
        limit_bytes: usize,
    },
    /// No memory for it: respond with 503.
    #[error(transparent)]
    Memory(#[from] PoolError),
}

impl AsyncRequest {
    /// The path as sent, not decoded.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        match self.head.path.of(&self.head_bytes) {
            [] => b"/",
            path => path,
        }
    }

    /// The query after the first `?`, not decoded.
    #[must_use]
    pub fn query(&self) -> Option<&[u8]> {
        self.head.query.map(|query| query.of(&self.head_bytes))
    }

    /// The whole target as sent, which another request can have.
    #[must_use]
    pub fn target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.head.target.of(&self.head_bytes))
    }

    /// [`Self::path`] as the target of another request.
    #[must_use]
    pub fn path_target(&self) -> RequestTarget<'_> {
        RequestTarget::received(self.path())
    }

    /// All query parameters, decoded: see [`Request::query_pairs`].
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
        form_urlencoded::parse(self.query().unwrap_or_default())
    }

    /// Value of the first field with this name, compared without regard to case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.field(name).map(FieldValue::as_bytes)
    }

    /// The same as a value that another message can have.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<FieldValue<'_>> {
        let value = match self.fields() {
            Ok(fields) => fields.value_of(&self.head_bytes, name.as_bytes()),
            // Without memory for the table it is parsed for this call.
            Err(_) => {
                let mut fields = HeadFields::new();
                self.parse_fields(&mut fields);
                fields.value_of(&self.head_bytes, name.as_bytes())
            }
        };
        value.map(FieldValue::known)
    }

    /// All fields in the order they came.
    ///
    /// # Errors
    /// No memory for the table of fields, which the first call makes.
    pub fn headers(&self) -> Result<impl Iterator<Item = (&[u8], &[u8])>, PoolError> {
        let spans = self.fields()?.spans().iter();
        let bytes = &*self.head_bytes;
        Ok(spans.map(move |span| (span.name.of(bytes), span.value.of(bytes))))
    }

    /// The table of fields, made when it is first asked for, and kept with the request.
    fn fields(&self) -> Result<&HeadFields, PoolError> {
        if let Some(fields) = self.fields.get() {
            return Ok(fields);
        }
        let mut fields = self.shard.local.fields.insert(HeadFields::new())?;
        self.parse_fields(&mut fields);
        Ok(self.fields.get_or_init(|| fields))
    }

    fn parse_fields(&self, fields: &mut HeadFields) {
        // Under limits that are no narrower than those under which the server accepted it.
        let limits = &Limits::OF_ACCEPTED_HEADS;
        let parsed = parse_request_head(&self.head_bytes, limits, fields);
        debug_assert!(parsed.is_ok());
    }

    /// The shard's pool, for what the handler builds.
    #[must_use]
    pub fn blocks(&self) -> &BlockPool {
        &self.blocks
    }

    /// The next part of the body, at most 32 KiB; `None` at its end. Nothing is received between calls, so a slow
    /// handler slows its client down.
    pub async fn next_part(&mut self) -> Option<Buffer> {
        poll_fn(|_context| self.shard.poll_part(self.body)).await
    }

    /// The whole body.
    pub async fn read_body(&mut self, limit_bytes: usize) -> Result<Buffer, BodyReadError> {
        let mut body = Buffer::new();
        while let Some(part) = self.next_part().await {
            if body.len() + part.len() > limit_bytes {
                return Err(BodyReadError::TooLong { limit_bytes });
            }
            if body.is_empty() {
                body = part;
            } else {
                body.extend_from_slice(&self.blocks, &part)?;
            }
        }
        Ok(body)
    }

    /// Begins a response whose body the handler writes in parts, with status and fields of `head`. The handler must
    /// return [`ResponseBody::finish`]; with any other [`Reply`] the response is cut, which shows the client that a
    /// part is missing.
    pub fn begin(&mut self, head: Reply, length: BodyLength) -> ResponseBody {
        let mut bodies = self.shard.local.bodies.borrow_mut();
        if let Some(cell) = bodies.get_mut(self.body) {
            cell.begun = Some((head, length));
        }
        drop(bodies);
        ResponseBody {
            shard: self.shard.clone(),
            blocks: self.blocks.clone(),
            body: self.body,
        }
    }

    /// Waits for so long, at least, and about 17 ms longer at most.
    #[must_use]
    pub fn sleep(&self, duration_ns: u64) -> Sleep {
        self.shard.sleep(duration_ns)
    }

    /// Asks another server over the shard's own connections. The response's body is gathered.
    #[must_use]
    pub fn call(
        &self,
        upstream: UpstreamId,
        method: Method,
        target: RequestTarget<'_>,
        fields: &[Field<'_>],
        body: &[u8],
    ) -> UpstreamCall {
        let draft = self
            .shard
            .draft(upstream, &self.blocks, method, target, fields);
        let local = Rc::clone(&self.shard.local);
        UpstreamCall::new(local, self.blocks.clone(), draft, body)
    }

    /// Asks another server with a body that is written in parts, of so many bytes or in chunks, and
    /// reads the response's in parts.
    pub fn converse(
        &self,
        upstream: UpstreamId,
        method: Method,
        target: RequestTarget<'_>,
        fields: &[Field<'_>],
        body: Framing,
    ) -> Result<UpstreamConversation, UpstreamError> {
        let mut draft = self
            .shard
            .draft(upstream, &self.blocks, method, target, fields)?;
        draft.framing = body;
        let local = Rc::clone(&self.shard.local);
        UpstreamConversation::begin(local, self.blocks.clone(), draft)
    }
}

impl AsyncShard {
    /// Never wakes by itself: the server brings the part, and polls then.
    fn poll_part(&self, body: Handle<BodyCell>) -> Poll<Option<Buffer>> {
        let mut bodies = self.local.bodies.borrow_mut();
        let Some(cell) = bodies.get_mut(body) else {
            return Poll::Ready(None);
        };
        let is_there = !cell.part.is_empty();
        cell.is_wanted = !is_there && !cell.is_ended;
        match is_there {
            true => Poll::Ready(Some(std::mem::take(&mut cell.part))),
            false if cell.is_ended => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// The body of a response that was begun: see [`AsyncRequest::begin`].
pub struct ResponseBody {
    shard: AsyncShard,
    blocks: BlockPool,
    body: Handle<BodyCell>,
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ResponseBody")
            .finish_non_exhaustive()
    }
}

impl ResponseBody {
    /// Writes the next part, which is copied once. Waits while the client does not read what was written before, so a
    /// response of any length takes the memory of one part and of the connection's output.
    ///
    /// # Errors
    /// No memory.
    pub async fn write(&mut self, part: &[u8]) -> Result<(), PoolError> {
        poll_fn(|_context| self.poll_write(part)).await
    }

    /// Never wakes by itself: the server polls when there is room.
    fn poll_write(&self, part: &[u8]) -> Poll<Result<(), PoolError>> {
        let mut bodies = self.shard.local.bodies.borrow_mut();
        let Some(cell) = bodies.get_mut(self.body) else {
            return Poll::Ready(Ok(()));
        };
        if cell.outgoing.len() >= OUTGOING_BYTES_MAX {
            cell.wants_room = true;
            return Poll::Pending;
        }
        Poll::Ready(cell.outgoing.extend_from_slice(&self.blocks, part))
    }

    /// The end of the body, for the handler to return.
    #[must_use]
    pub fn finish(self) -> Reply {
        Reply::new(StatusCode::OK, ReplyBody::Begun)
    }
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    status: StatusCode,
    content_type: Option<FieldValue<'static>>,
    /// Fields that the handler added. Checked when they were.
    fields: Vec<(FieldName<'static>, String)>,
    body: ReplyBody,
}

#[derive(Debug)]
enum ReplyBody {
    Static(&'static [u8]),
    Pooled(Buffer),
    /// Of a response that was begun before.
    Begun,
}

impl Reply {
    const fn new(status: StatusCode, body: ReplyBody) -> Self {
        Self {
            status,
            content_type: None,
            fields: Vec::new(),
            body,
        }
    }

    /// A response without a body, or with one that follows: see [`AsyncRequest::begin`].
    #[must_use]
    pub const fn empty(status: StatusCode) -> Self {
        Self::new(status, ReplyBody::Static(b""))
    }

    /// A response with a text of the program's own.
    #[must_use]
    pub const fn text(status: StatusCode, text: &'static str) -> Self {
        Self {
            status,
            content_type: Some(FieldValue::TEXT_PLAIN),
            fields: Vec::new(),
            body: ReplyBody::Static(text.as_bytes()),
        }
    }

    /// A response with bytes that were made for it.
    #[must_use]
    pub const fn bytes(
        status: StatusCode,
        content_type: FieldValue<'static>,
        body: Buffer,
    ) -> Self {
        Self {
            status,
            content_type: Some(content_type),
            fields: Vec::new(),
            body: ReplyBody::Pooled(body),
        }
    }

    /// The same with a field that is only known at run time. A `Content-Type` replaces the one there is.
    ///
    /// # Errors
    /// A value that is not allowed in a header section.
    pub fn with_field(
        mut self,
        name: FieldName<'static>,
        value: impl Into<String>,
    ) -> Result<Self, HeadTextError> {
        let value = value.into();
        FieldValue::new(&value)?;
        if name == FieldName::CONTENT_TYPE {
            self.content_type = None;
        }
        self.fields.push((name, value));
        Ok(self)
    }

    fn send(&self, response: &mut Response<'_>) -> Result<(), SendError> {
        if self.fields.is_empty() {
            return response.send(self.status, self.content_type, self.body());
        }
        response.send_with(self.status, &self.all_fields(), self.body())
    }

    /// Begins a body with its own as the first part.
    fn start(&self, response: &mut Response<'_>, length: BodyLength) -> Result<(), WriteError> {
        response.start(self.status, &self.all_fields(), length)?;
        match self.body() {
            [] => Ok(()),
            part => response.write(part),
        }
    }

    fn body(&self) -> &[u8] {
        match &self.body {
            ReplyBody::Static(text) => text,
            ReplyBody::Pooled(buffer) => buffer,
            ReplyBody::Begun => &[],
        }
    }

    fn all_fields(&self) -> Vec<Field<'_>> {
        let content_type = self
            .content_type
            .map(|value| (FieldName::CONTENT_TYPE, value));
        let added = self.fields.iter();
        content_type
            .into_iter()
            .chain(added.map(|(name, value)| (*name, FieldValue::known(value.as_bytes()))))
            .collect()
    }
}
