//! What answers change of a session: which requests are on their way, and what is known of the answer
//! that is arriving.
//!
//! On the path: the parser's events come in here, are judged and are counted in `outcome`.
//! Absent on purpose: the parser, which calls back, and all that sending changes.
use crate::flights::{Flight, Flights};
use crate::listener::{Answered, Listener};
use crate::outcome::Outcome;
use crate::shared::Shared;
use crate::validation::{AnswerCheck, Judgement};
use millpond_http::{AlikeResponses, ClientEvent};

/// What answers are judged by and counted in; lent by the worker for one call.
pub(crate) struct Desk<'a> {
    pub(crate) shared: &'a Shared<'a>,
    pub(crate) outcome: &'a mut Outcome,
    pub(crate) now_ns: u64,
    pub(crate) in_window: bool,
    /// Nobody looks at more of an answer than its status.
    pub(crate) wants_status_only: bool,
    /// Who else looks at each answer.
    pub(crate) listener: Option<Listener<'a>>,
}

/// The answers' side of a session.
#[derive(Debug)]
pub(super) struct Answering {
    pub(super) flights: Flights,
    check: AnswerCheck,
    /// The server announced that it closes.
    pub(super) is_last: bool,
    pub(super) has_answered: bool,
    /// How long connecting took, until a request that counts has been charged with it; then 0.
    pub(super) connect_ns: u64,
    /// When the head of the answer that is arriving was complete.
    head_ns: u64,
}

impl Answering {
    pub(super) fn new(pipeline: usize) -> Self {
        Self {
            flights: Flights::with_capacity(pipeline),
            check: AnswerCheck::default(),
            is_last: false,
            has_answered: false,
            connect_ns: 0,
            head_ns: 0,
        }
    }

    pub(super) fn on(&mut self, event: &ClientEvent<'_>, desk: &mut Desk<'_>) {
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

    fn head(&mut self, status: u16, head: &[u8], desk: &mut Desk<'_>) {
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

    fn body_part(&mut self, part: &[u8], desk: &mut Desk<'_>) {
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

    fn complete(&mut self, status: u16, keep_alive: bool, body_bytes: u64, desk: &mut Desk<'_>) {
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

    /// Whole answers, of which nobody wants to know more than the status.
    #[inline]
    pub(super) fn alike(&mut self, alike: &AlikeResponses, desk: &mut Desk<'_>) {
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

    /// Answers to requests that were written together are complete, all now. False: too late, whether
    /// or not anybody had looked for them in the meantime.
    #[inline]
    fn count(
        &mut self,
        flight: &Flight,
        status: u16,
        judgement: Judgement,
        body_bytes: u64,
        desk: &mut Desk<'_>,
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
                // its body is of one answer.
                let connect_ns = std::mem::take(&mut self.connect_ns);
                let phases = &mut outcome.phases;
                phases.exception(&flight.request, connect_ns, self.head_ns, now_ns);
            }
        }
        true
    }
}
