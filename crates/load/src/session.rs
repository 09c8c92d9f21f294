//! One connection's life: connecting, requests in flight in order, answers checked, starting over.
//!
//! On the path: `worker` gives it arrivals and received bytes and does its socket calls; answers go
//! to `outcome`. Absent on purpose: the driver and the schedule, so that this is a state machine;
//! and allocation per request: the queue of stamps has room for the pipeline from the start.
use crate::listener::Listener;
use crate::outcome::{InFlight, Outcome};
use crate::schedule::Arrival;
use crate::validation::{AnswerCheck, Judgement, Validator};
use crate::workload::{Asked, Requests};
use millpond_http::{ClientConnection, ClientError, ClientEvent, LastHead, Limits, Method};
use millpond_io::SocketId;
use millpond_mempool::{BlockPool, Buffer, PoolError};
use std::collections::VecDeque;

/// First wait before connecting again after a connection that answered nothing; doubles.
const BACKOFF_NS_FIRST: u64 = 10_000_000;
/// Longest wait before connecting again.
const BACKOFF_NS_MAX: u64 = 500_000_000;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Connects again from this moment on.
    Closed { retry_ns: u64 },
    /// Asked for, not up yet.
    Connecting { socket: SocketId, since_ns: u64 },
    /// Up.
    Open { socket: SocketId },
}

/// What answers are judged by and counted in; lent by the worker for one call.
pub(crate) struct Desk<'a> {
    pub(crate) requests: &'a Requests,
    /// By class.
    pub(crate) validators: &'a [Validator],
    pub(crate) outcome: &'a mut Outcome,
    pub(crate) now_ns: u64,
    pub(crate) in_window: bool,
    /// Who else looks at each answer.
    pub(crate) listener: Option<Listener<'a>>,
}

/// One connection. Invariant: `in_flight` is in the order of writing, and its last `unwritten`
/// entries are exactly the requests in `out`.
pub(crate) struct Session {
    pub(crate) state: State,
    /// Whether the first attempt to connect has ended, well or badly.
    pub(crate) has_settled: bool,
    /// Whether it stands in each of the queues of [`crate::free`].
    pub(crate) is_queued: [bool; 2],
    /// The kernel has not taken all of the last batch, or no more may be asked.
    pub(crate) is_blocked: bool,
    /// The server announced that it closes; requests behind the last answer will not be answered.
    pub(crate) is_last: bool,
    /// Since when there has been room for a request.
    pub(crate) free_since_ns: u64,
    http: ClientConnection,
    check: AnswerCheck,
    in_flight: VecDeque<InFlight>,
    out: Buffer,
    unwritten: usize,
    pipeline: usize,
    /// Requests that may still be sent on this connection, and on a fresh one.
    requests_left: u64,
    requests_max: u64,
    has_answered: bool,
    /// How long connecting took, until a request that counts has been charged with it; then 0.
    connect_ns: u64,
    /// When the head of the answer that is arriving was complete.
    head_ns: u64,
    /// Connections in a row that ended without an answer.
    failures: u32,
}

impl Session {
    /// `requests_max`: after so many requests a connection is over.
    pub(crate) fn new(pipeline: usize, requests_max: u64) -> Self {
        Self {
            state: State::Closed { retry_ns: 0 },
            has_settled: false,
            is_queued: [false; 2],
            is_blocked: false,
            is_last: false,
            free_since_ns: 0,
            http: ClientConnection::new(client_limits()),
            check: AnswerCheck::default(),
            in_flight: VecDeque::with_capacity(pipeline),
            out: Buffer::new(),
            unwritten: 0,
            pipeline,
            requests_left: requests_max,
            requests_max,
            has_answered: false,
            connect_ns: 0,
            head_ns: 0,
            failures: 0,
        }
    }

    pub(crate) fn socket(&self) -> Option<SocketId> {
        match self.state {
            State::Closed { .. } => None,
            State::Connecting { socket, .. } | State::Open { socket } => Some(socket),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    pub(crate) fn in_flight_len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether all requests that it was for are answered.
    pub(crate) fn is_used_up(&self) -> bool {
        self.requests_left == 0 && self.in_flight.is_empty()
    }

    /// Whether the next request may leave here.
    pub(crate) fn can_take(&self) -> bool {
        self.is_open() && !self.is_blocked && !self.is_last && self.in_flight.len() < self.pipeline
    }

    /// The connection stands.
    pub(crate) fn opened(&mut self, socket: SocketId, now_ns: u64) {
        self.connect_ns = match self.state {
            // At least something: 0 is for no connecting at all.
            State::Connecting { since_ns, .. } => now_ns.saturating_sub(since_ns).max(1),
            _ => 0,
        };
        self.state = State::Open { socket };
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
        let ahead = if expect_full {
            self.pipeline - self.in_flight.len()
        } else {
            1
        };
        let asked = requests.append(arrival.number, pool, &mut self.out, ahead)?;
        self.expect(arrival, &asked);
        Ok(self.unwritten == 1)
    }

    /// Appends requests that stand encoded to the next batch, one for each of `arrivals`; true if
    /// they are the first of the batch. They may be more than the pipeline has room for.
    pub(crate) fn take_encoded<'o>(
        &mut self,
        bytes: &[u8],
        arrivals: impl Iterator<Item = (&'o Arrival, Method)>,
        pool: &BlockPool,
    ) -> Result<bool, PoolError> {
        let is_first = self.unwritten == 0;
        self.out.extend_from_slice(pool, bytes)?;
        for (arrival, method) in arrivals {
            self.expect(arrival, &Asked { method, class: 0 });
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
        self.out.extend_from_slices(pool, parts)?;
        self.expect(arrival, asked);
        Ok(self.unwritten == 1)
    }

    /// A request of the next batch will be answered.
    fn expect(&mut self, arrival: &Arrival, asked: &Asked) {
        let Arrival {
            number,
            intended_ns,
            counted,
        } = *arrival;
        self.in_flight.push_back(InFlight {
            number,
            intended_ns,
            written_ns: 0,
            counted,
            class: asked.class,
        });
        self.http.expect(asked.method);
        self.unwritten += 1;
        // A script may send more at once than were left.
        self.requests_left = self.requests_left.saturating_sub(1);
        // A connection that is used up takes no more, as one whose kernel is full.
        self.is_blocked |= self.requests_left == 0;
    }

    /// The batch leaves now: stamps its requests and gives out its bytes. In a closed loop the
    /// write is the intended start.
    pub(crate) fn written(
        &mut self,
        now_ns: u64,
        is_closed_loop: bool,
        mut each: impl FnMut(&InFlight),
    ) -> Buffer {
        for request in self.in_flight.iter_mut().rev().take(self.unwritten) {
            request.written_ns = now_ns;
            if is_closed_loop {
                request.intended_ns = now_ns;
            }
            each(request);
        }
        self.unwritten = 0;
        std::mem::take(&mut self.out)
    }

    /// The kernel has taken all of the last batch.
    pub(crate) fn drained(&mut self, now_ns: u64) {
        self.is_blocked = self.requests_left == 0;
        self.free_since_ns = now_ns;
    }

    /// Takes in what arrived. After an error the connection is of no use.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        pool: &BlockPool,
        last_heads: &mut [LastHead],
        desk: &mut Desk<'_>,
    ) -> Result<(), ClientError> {
        let class = self.in_flight.front().map_or(0, |request| request.class);
        let last_head = &mut last_heads[usize::from(class)];
        let was_full = self.in_flight.len() >= self.pipeline;
        let (http, mut answers) = self.split(desk);
        let result = http.receive_like(bytes, pool, last_head, &mut |event| answers.on(&event));
        if was_full && self.in_flight.len() < self.pipeline {
            self.free_since_ns = desk.now_ns;
        }
        result
    }

    /// The peer sends nothing more; an answer that ends so is complete now.
    pub(crate) fn peer_finished(&mut self, desk: &mut Desk<'_>) -> Result<(), ClientError> {
        let (http, mut answers) = self.split(desk);
        http.peer_finished(&mut |event| answers.on(&event))
    }

    fn split<'s, 'd>(
        &'s mut self,
        desk: &'s mut Desk<'d>,
    ) -> (&'s mut ClientConnection, Answers<'s, 'd>) {
        let answers = Answers {
            in_flight: &mut self.in_flight,
            check: &mut self.check,
            is_last: &mut self.is_last,
            has_answered: &mut self.has_answered,
            connect_ns: &mut self.connect_ns,
            head_ns: &mut self.head_ns,
            desk,
        };
        (&mut self.http, answers)
    }

    /// The request that the next answer belongs to.
    pub(crate) fn oldest(&self) -> Option<InFlight> {
        self.in_flight.front().copied()
    }

    /// The oldest request's write, if it was written.
    pub(crate) fn oldest_written_ns(&self) -> Option<u64> {
        self.in_flight.front().map(|request| request.written_ns)
    }

    /// Empties the queue: the connection is over. The caller says what becomes of each.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = InFlight> + '_ {
        self.unwritten = 0;
        self.out = Buffer::new();
        self.in_flight.drain(..)
    }

    /// The connection is gone; says when to try again. One that answered is replaced at once.
    pub(crate) fn closed(&mut self, now_ns: u64) {
        debug_assert!(
            self.in_flight.is_empty(),
            "requests of a lost connection are accounted for"
        );
        let wait_ns = if self.has_answered {
            self.failures = 0;
            0
        } else {
            let wait_ns = BACKOFF_NS_FIRST << self.failures.min(8);
            self.failures = self.failures.saturating_add(1);
            wait_ns.min(BACKOFF_NS_MAX)
        };
        self.state = State::Closed {
            retry_ns: now_ns + wait_ns,
        };
        self.has_answered = false;
        self.requests_left = self.requests_max;
        self.is_blocked = false;
        self.is_last = false;
        self.http = ClientConnection::new(client_limits());
    }
}

/// A generator reads whatever a server sends; only heads are bounded.
fn client_limits() -> Limits {
    Limits {
        body_bytes_max: u64::MAX,
        ..Limits::default()
    }
}

/// The parts of a session that answers touch, apart from the parser that calls back.
struct Answers<'s, 'd> {
    in_flight: &'s mut VecDeque<InFlight>,
    check: &'s mut AnswerCheck,
    is_last: &'s mut bool,
    has_answered: &'s mut bool,
    connect_ns: &'s mut u64,
    head_ns: &'s mut u64,
    desk: &'s mut Desk<'d>,
}

impl Answers<'_, '_> {
    #[inline]
    fn on(&mut self, event: &ClientEvent<'_>) {
        match *event {
            ClientEvent::Head { status, head, .. } => {
                self.check.begin(status.code());
                *self.head_ns = self.desk.now_ns;
                if self.desk.outcome.phases.server.is_none() {
                    self.desk.outcome.phases.first_head(head);
                }
                let desk = &mut *self.desk;
                if let Some(listener) = &mut desk.listener {
                    let request = self.in_flight.front();
                    listener.head(request, head, desk.requests, desk.now_ns);
                }
            }
            ClientEvent::BodyPart(part) => self.body_part(part),
            ClientEvent::Complete {
                status,
                keep_alive,
                body_bytes,
                ..
            } => self.complete(status.code(), keep_alive, body_bytes),
        }
    }

    fn body_part(&mut self, part: &[u8]) {
        let Some(request) = self.in_flight.front() else {
            return;
        };
        if let Some(listener) = &mut self.desk.listener {
            listener.part(part);
        }
        let validator = &self.desk.validators[usize::from(request.class)];
        if !validator.looks_at_bodies() {
            return self.check.skip(part);
        }
        let expected = self.desk.requests.expected(request.number, request.class);
        self.check.part(validator, expected.as_ref(), part);
    }

    fn complete(&mut self, status: u16, keep_alive: bool, body_bytes: u64) {
        let Some(request) = self.in_flight.pop_front() else {
            return;
        };
        let desk = &mut *self.desk;
        let expected = desk.requests.expected(request.number, request.class);
        let validator = &desk.validators[usize::from(request.class)];
        let judgement = self.check.finish(validator, expected.as_ref());
        let (now_ns, in_window) = (desk.now_ns, desk.in_window);
        desk.outcome
            .answered(&request, status, judgement, now_ns, in_window);
        if request.counted {
            let phases = &mut desk.outcome.phases;
            phases.body(body_bytes);
            phases.last_answers += u64::from(!keep_alive);
            let is_exception = *self.connect_ns != 0 || *self.head_ns != now_ns;
            if is_exception && judgement == Judgement::Right {
                let connect_ns = std::mem::take(self.connect_ns);
                phases.exception(&request, connect_ns, *self.head_ns, now_ns);
            }
        }
        *self.has_answered = true;
        *self.is_last |= !keep_alive;
        if let Some(listener) = &mut desk.listener {
            listener.answered(status);
        }
    }
}
