//! One connection's life: connecting, requests in flight in order, responses checked, starting over.
//!
//! `worker` gives it arrivals and received bytes and does its socket calls; responses go to
//! `outcome`.

use millpond_http::{
    ClientConnection, ClientError, ClientEvent, IdenticalResponses, LastHead, Limits, Method,
};
use millpond_io::SocketId;
use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::connection_plan::AddressChoice;
use crate::listener::{Answered, Listener};
use crate::listener::{Flight, Flights};
use crate::outcome::{InFlight, Outcome};
use crate::schedule::{Arrival, Run};
use crate::shared::Shared;
use crate::validation::{Judgement, ResponseCheck};
use crate::workload::{Asked, Requests};

/// First wait before reconnecting after a connection without any response; doubles.
const BACKOFF_NS_FIRST: u64 = 10_000_000;
/// Longest wait before connecting again.
const BACKOFF_NS_MAX: u64 = 500_000_000;
/// The same in a run that measures how long its target is away.
pub(crate) const BACKOFF_NS_MAX_OF_OUTAGES: u64 = 20_000_000;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConnectionState {
    /// Connects again from this moment on.
    Closed { retry_ns: u64 },
    /// Asked for, not up yet.
    Connecting { socket: SocketId, since_ns: u64 },
    /// Up.
    Open { socket: SocketId },
}

/// One connection. Invariant: the requests on their way that are not written yet are those in `out`.
pub(crate) struct Session {
    pub(crate) state: ConnectionState,
    /// Whether the first attempt to connect has ended, well or badly.
    pub(crate) has_settled: bool,
    /// Whether it has ever been up.
    pub(crate) has_opened: bool,
    /// Which of the target's addresses it uses.
    pub(crate) address: AddressChoice,
    /// Whether it stands in each of the queues of [`crate::schedule`].
    pub(crate) is_queued: [bool; 2],
    /// The kernel has not taken all of the last batch, or no more may be asked.
    pub(crate) is_blocked: bool,
    /// Since when there has been room for a request.
    pub(crate) free_since_ns: u64,
    http: ClientConnection,
    answering: Answering,
    out: Buffer,
    pipeline: usize,
    /// Requests that may still be sent on this connection, and on a fresh one.
    requests_left: u64,
    requests_max: u64,
    /// Connections in a row that ended without a response.
    failures: u32,
    backoff_ns_max: u64,
}

impl Session {
    /// `requests_max`: after so many requests a connection ends.
    pub(crate) fn new(pipeline: usize, requests_max: u64, limits: Limits) -> Self {
        Self {
            state: ConnectionState::Closed { retry_ns: 0 },
            has_settled: false,
            has_opened: false,
            address: AddressChoice::default(),
            is_queued: [false; 2],
            is_blocked: false,
            free_since_ns: 0,
            http: ClientConnection::new(limits),
            answering: Answering::new(pipeline),
            out: Buffer::new(),
            pipeline,
            requests_left: requests_max,
            requests_max,
            failures: 0,
            backoff_ns_max: BACKOFF_NS_MAX,
        }
    }

    /// Waits no longer than this before it connects again.
    pub(crate) fn with_backoff_max(mut self, backoff_ns_max: u64) -> Self {
        self.backoff_ns_max = backoff_ns_max;
        self
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        match self.state {
            ConnectionState::Closed { .. } => None,
            ConnectionState::Connecting { socket, .. } | ConnectionState::Open { socket } => {
                Some(socket)
            }
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, ConnectionState::Open { .. })
    }

    #[inline]
    pub(crate) fn in_flight_len(&self) -> usize {
        self.answering.flights.len()
    }

    /// Responses on this connection so far.
    pub(crate) fn answered_count(&self) -> u64 {
        let taken = self.requests_max - self.requests_left;
        taken.saturating_sub(self.answering.flights.len() as u64)
    }

    /// Whether all requests that it was for have their response.
    pub(crate) fn is_used_up(&self) -> bool {
        self.requests_left == 0 && self.answering.flights.is_empty()
    }

    /// The server announced that it closes; requests behind the last response will get none.
    #[inline]
    pub(crate) fn is_last(&self) -> bool {
        self.answering.is_last
    }

    /// Whether the next request may leave here.
    #[inline]
    pub(crate) fn can_take(&self) -> bool {
        self.is_open()
            && !self.is_blocked
            && !self.is_last()
            && self.answering.flights.len() < self.pipeline
    }

    /// How many more may, if any may.
    #[inline]
    pub(crate) fn room(&self) -> u64 {
        let room = self.pipeline.saturating_sub(self.answering.flights.len()) as u64;
        room.min(self.requests_left)
    }

    /// The connection stands.
    pub(crate) fn opened(&mut self, socket: SocketId, now_ns: u64) {
        self.answering.connect_ns = match self.state {
            // At least something: 0 is for no connecting at all.
            ConnectionState::Connecting { since_ns, .. } => now_ns.saturating_sub(since_ns).max(1),
            _ => 0,
        };
        self.state = ConnectionState::Open { socket };
        self.has_opened = true;
        self.address.succeeded();
        self.free_since_ns = now_ns;
    }

    /// Appends a request to the next batch; true if it is the first of the batch.
    pub(crate) fn take(
        &mut self,
        arrival: &Arrival,
        requests: &Requests,
        pool: &BlockPool,
        expect_full: bool,
    ) -> Result<bool, PoolError> {
        debug_assert!(self.can_take());
        let is_first = !self.answering.flights.has_unwritten();
        let ahead = if expect_full {
            self.pipeline - self.answering.flights.len()
        } else {
            1
        };
        let asked = requests.append(arrival.number, pool, &mut self.out, ahead)?;
        self.expect(arrival, &asked, 1);
        Ok(is_first)
    }

    /// A run of requests leaves by itself, now; nothing is in the next batch.
    #[inline]
    pub(crate) fn expect_run(&mut self, run: &Run, asked: &Asked, now_ns: u64) {
        debug_assert!(self.can_take() && run.count <= self.room() && self.out.is_empty());
        self.expect(&run.first, asked, run.count);
        self.answering.flights.written(now_ns, true, |_| {});
    }

    /// Appends requests that stand encoded to the next batch, one for each of `arrivals`; true if
    /// they are the first of the batch. They may be more than the pipeline has room for.
    pub(crate) fn take_encoded<'o>(
        &mut self,
        bytes: &[u8],
        arrivals: impl Iterator<Item = (&'o Arrival, Method)>,
        pool: &BlockPool,
    ) -> Result<bool, PoolError> {
        let is_first = !self.answering.flights.has_unwritten();
        self.out.extend_from_slice(pool, bytes)?;
        for (arrival, method) in arrivals {
            self.expect(arrival, &Asked { method, class: 0 }, 1);
        }
        Ok(is_first)
    }

    /// Appends a request that stands encoded, in parts; true if it is the first of the batch.
    pub(crate) fn take_parts<const COUNT: usize>(
        &mut self,
        parts: [&[u8]; COUNT],
        arrival: &Arrival,
        asked: &Asked,
        pool: &BlockPool,
    ) -> Result<bool, PoolError> {
        debug_assert!(self.can_take());
        let is_first = !self.answering.flights.has_unwritten();
        self.out.extend_from_slices(pool, parts)?;
        self.expect(arrival, asked, 1);
        Ok(is_first)
    }

    /// Requests of the next batch that will get a response.
    #[inline]
    fn expect(&mut self, first: &Arrival, asked: &Asked, count: u64) {
        let Arrival {
            number,
            intended_ns,
            counted,
        } = *first;
        let request = InFlight {
            number,
            intended_ns,
            written_ns: 0,
            counted,
            class: asked.class,
        };
        self.answering.flights.push(Flight {
            request,
            count: count as usize,
        });
        self.http.expect_many(asked.method, count as usize);
        // A script may send more at once than were left.
        self.requests_left = self.requests_left.saturating_sub(count);
        // A connection that is used up takes no more, as one whose kernel is full.
        self.is_blocked |= self.requests_left == 0;
    }

    /// The batch leaves now: stamps its requests and gives out its bytes. In a closed loop the
    /// write is the intended start.
    #[inline]
    pub(crate) fn written(
        &mut self,
        now_ns: u64,
        is_closed_loop: bool,
        each: impl FnMut(&Flight),
    ) -> Buffer {
        self.answering.flights.written(now_ns, is_closed_loop, each);
        std::mem::take(&mut self.out)
    }

    /// The kernel has taken all of the last batch.
    pub(crate) fn drained(&mut self, now_ns: u64) {
        self.is_blocked = self.requests_left == 0;
        self.free_since_ns = now_ns;
    }

    /// Takes in what arrived if it is nothing but whole responses like the last one, and of responses
    /// nothing but the status matters; says how many. `None`: nothing is done.
    #[inline]
    pub(crate) fn receive_alike(
        &mut self,
        bytes: &[u8],
        last_heads: &[LastHead],
        desk: &mut ResponseContext<'_>,
    ) -> Option<usize> {
        let class = self.answering.flights.oldest()?.class;
        let last_head = &last_heads[usize::from(class)];
        let was_full = self.answering.flights.len() >= self.pipeline;
        let alike = self.http.receive_alike(bytes, last_head)?;
        self.answering.alike(&alike, desk);
        if was_full {
            self.free_since_ns = desk.now_ns;
        }
        Some(alike.count)
    }

    /// Takes in what arrived. After an error the connection is of no use.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last_heads: &mut [LastHead],
        desk: &mut ResponseContext<'_>,
    ) -> Result<(), ClientError> {
        let class = self
            .answering
            .flights
            .oldest()
            .map_or(0, |request| request.class);
        let last_head = &mut last_heads[usize::from(class)];
        let was_full = self.answering.flights.len() >= self.pipeline;
        let (now_ns, wants_status_only) = (desk.now_ns, desk.wants_status_only);
        let answering = &mut self.answering;
        let mut on = |event: ClientEvent<'_>| answering.on(&event, desk);
        let result = if wants_status_only {
            self.http.receive_counted(bytes, pool, last_head, &mut on)
        } else {
            self.http.receive_like(bytes, pool, last_head, &mut on)
        };
        if was_full && self.answering.flights.len() < self.pipeline {
            self.free_since_ns = now_ns;
        }
        result
    }

    /// The peer sends nothing more; a response that ends so is complete now.
    pub(crate) fn peer_finished(
        &mut self,
        desk: &mut ResponseContext<'_>,
    ) -> Result<(), ClientError> {
        let answering = &mut self.answering;
        self.http
            .peer_finished(&mut |event| answering.on(&event, desk))
    }

    /// The request that the next response belongs to.
    pub(crate) fn oldest(&self) -> Option<InFlight> {
        self.answering.flights.oldest().copied()
    }

    /// The oldest request's write, if it was written.
    pub(crate) fn oldest_written_ns(&self) -> Option<u64> {
        self.answering
            .flights
            .oldest()
            .map(|request| request.written_ns)
    }

    /// Empties the queue: the connection has ended. The caller decides the outcome of each.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = InFlight> + '_ {
        self.out = Buffer::new();
        // As if they had never been taken: nothing is asked on this connection any more.
        let unanswered = self.answering.flights.len() as u64;
        self.requests_left = self
            .requests_left
            .saturating_add(unanswered)
            .min(self.requests_max);
        self.answering.flights.drain()
    }

    /// The connection is gone; returns when to try again. One that had a response is replaced at once.
    pub(crate) fn closed(&mut self, now_ns: u64) {
        debug_assert!(
            self.answering.flights.is_empty(),
            "requests of a lost connection are accounted for"
        );
        let wait_ns = if self.answering.has_answered {
            self.failures = 0;
            0
        } else {
            let wait_ns = BACKOFF_NS_FIRST << self.failures.min(8);
            self.failures = self.failures.saturating_add(1);
            wait_ns.min(self.backoff_ns_max)
        };
        self.state = ConnectionState::Closed {
            retry_ns: now_ns + wait_ns,
        };
        self.answering.has_answered = false;
        self.answering.is_last = false;
        self.requests_left = self.requests_max;
        self.is_blocked = false;
        self.http = self.http.renewed();
    }
}

// The part of a session that responses change: which requests are on their way, and the state of the arriving response.

/// The rules and counters of responses; lent by the worker for one call.
pub(crate) struct ResponseContext<'a> {
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) outcome: &'a mut Outcome,
    pub(crate) now_ns: u64,
    pub(crate) in_window: bool,
    /// Only the status of a response is used.
    pub(crate) wants_status_only: bool,
    /// Another reader of each response.
    pub(crate) listener: Option<Listener<'a>>,
}

/// The responses' side of a session.
#[derive(Debug)]
struct Answering {
    flights: Flights,
    check: ResponseCheck,
    /// The server announced that it closes.
    is_last: bool,
    has_answered: bool,
    /// How long connecting took, until a request that counts has been charged with it; then 0.
    connect_ns: u64,
    /// When the head of the response that is arriving was complete.
    head_ns: u64,
}

impl Answering {
    fn new(pipeline: usize) -> Self {
        Self {
            flights: Flights::with_capacity(pipeline),
            check: ResponseCheck::default(),
            is_last: false,
            has_answered: false,
            connect_ns: 0,
            head_ns: 0,
        }
    }

    fn on(&mut self, event: &ClientEvent<'_>, desk: &mut ResponseContext<'_>) {
        match *event {
            ClientEvent::Alike(alike) => self.alike(&alike, desk),
            ClientEvent::Head { status, head, .. } => self.head(status.code(), head, desk),
            ClientEvent::BodyPart(part) => self.body_part(part, desk),
            ClientEvent::Complete {
                status,
                keep_alive,
                body_bytes,
                ..
            } => self.complete(status.code(), keep_alive, body_bytes, desk),
        }
    }

    fn head(&mut self, status: u16, head: &[u8], desk: &mut ResponseContext<'_>) {
        self.check.begin(status);
        self.head_ns = desk.now_ns;
        if desk.outcome.phases.server.is_none() {
            desk.outcome.phases.first_head(head);
        }
        let shared = desk.shared;
        if let Some(listener) = &mut desk.listener {
            let request = self.flights.oldest();
            listener.head(request, head, &shared.requests, desk.now_ns);
        }
    }

    fn body_part(&mut self, part: &[u8], desk: &mut ResponseContext<'_>) {
        let Some(request) = self.flights.oldest() else {
            return;
        };
        if let Some(listener) = &mut desk.listener {
            listener.part(part);
        }
        let shared = desk.shared;
        let validator = &shared.validators[usize::from(request.class)];
        if !validator.looks_at_bodies() {
            return self.check.skip(part);
        }
        let expected = shared.requests.expected(request.number, request.class);
        self.check.part(validator, expected.as_ref(), part);
    }

    fn complete(
        &mut self,
        status: u16,
        keep_alive: bool,
        body_bytes: u64,
        desk: &mut ResponseContext<'_>,
    ) {
        let Some(flight) = self.flights.take(1) else {
            return;
        };
        let Flight { request, .. } = flight;
        let shared = desk.shared;
        let expected = shared.requests.expected(request.number, request.class);
        let validator = &shared.validators[usize::from(request.class)];
        let judgement = self.check.finish(validator, expected.as_ref());
        if request.counted {
            desk.outcome.phases.last_answers += u64::from(!keep_alive);
        }
        self.is_last |= !keep_alive;
        let connect_ns = self.connect_ns;
        let is_in_time = self.count(&flight, status, judgement, body_bytes, desk);
        if let Some(listener) = &mut desk.listener {
            listener.answered(&Answered {
                request: &request,
                status,
                is_right: is_in_time && judgement == Judgement::Right,
                connect_ns,
                head_ns: self.head_ns,
                now_ns: desk.now_ns,
                next_written_ns: self.flights.oldest().map(|next| next.written_ns),
            });
        }
    }

    /// Whole responses, of which only the status is used.
    #[inline]
    fn alike(&mut self, alike: &IdenticalResponses, desk: &mut ResponseContext<'_>) {
        let status = alike.status.code();
        self.head_ns = desk.now_ns;
        let mut left = alike.count;
        while left > 0
            && let Some(flight) = self.flights.take(left)
        {
            left -= flight.count;
            let validator = &desk.shared.validators[usize::from(flight.request.class)];
            let judgement = validator.judge_status(status);
            self.count(&flight, status, judgement, alike.body_bytes, desk);
        }
    }

    /// Responses to requests that were written together are complete, all now. False: too late, whether or not a sweep
    /// ran in the meantime.
    #[inline]
    fn count(
        &mut self,
        flight: &Flight,
        status: u16,
        judgement: Judgement,
        body_bytes: u64,
        desk: &mut ResponseContext<'_>,
    ) -> bool {
        let (now_ns, in_window) = (desk.now_ns, desk.in_window);
        let outcome = &mut *desk.outcome;
        self.has_answered = true;
        if now_ns.saturating_sub(flight.request.written_ns) >= desk.shared.config.timeout_ns {
            outcome.too_late(flight, now_ns);
            return false;
        }
        outcome.answered(flight, status, judgement, now_ns, in_window);
        if flight.request.counted {
            outcome.phases.bodies(body_bytes, flight.count as u64);
            let is_exception = self.connect_ns != 0 || self.head_ns != now_ns;
            if is_exception && judgement == Judgement::Right {
                // A connection was opened for the first of them alone, and a head that came before
                // its body belongs to one response.
                let connect_ns = std::mem::take(&mut self.connect_ns);
                let phases = &mut outcome.phases;
                phases.exception(&flight.request, connect_ns, self.head_ns, now_ns);
            }
        }
        true
    }
}
