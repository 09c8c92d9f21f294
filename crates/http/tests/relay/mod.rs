//! The least that uses exchanges: a service that passes each request on, body and all, and reports a failure as it got
//! it.
#![allow(dead_code, reason = "each test program uses a part")]

use millpond_http::client::{
    ExchangeFailure, ExchangeReport, ExchangeWriteError, OutgoingRequest, Timeouts,
};
use millpond_http::{
    Authority, BodyLength, Client, Completions, ExchangeEvent, ExchangeId, Flow, Framing, Interest,
    Request, RequestTarget, RequestToken, Response, Service, ServiceContext, StatusCode,
    StreamEvent,
};
use millpond_io::connection_pool::{PoolKey, Target};
use millpond_mempool::{BlockPool, Buffer, Handle, PoolMode, PoolStats, Slab};
use std::sync::{Arc, Mutex};

/// How long a request for `/impatient` waits for a connection.
const IMPATIENT_NS: u64 = 100_000_000;

const UPSTREAM: Authority<'_> = Authority::from_static("upstream");

/// Events, for the test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) failures: Vec<ExchangeFailure>,
    pub(crate) reports: Vec<ExchangeReport>,
    pub(crate) informational: usize,
    pub(crate) alarms: usize,
}

pub(crate) type SharedLog = Arc<Mutex<Log>>;

/// One request on its way.
struct Run {
    token: RequestToken,
    exchange: Option<ExchangeId>,
    method: millpond_http::Method,
    path: Buffer,
    tries_left: u32,
    is_head_sent: bool,
    is_paused: bool,
    has_body: bool,
    wants_body: bool,
}

pub(crate) struct Relay {
    pub(crate) client: Client,
    pub(crate) keys: Vec<PoolKey>,
    runs: Slab<Run>,
    timeouts: Timeouts,
    retries: u32,
    log: Option<SharedLog>,
    next: usize,
}

impl Relay {
    pub(crate) fn new(client: Client, targets: Vec<Target>, mode: PoolMode) -> Self {
        let keys = targets
            .into_iter()
            .map(|target| client.add_target(target).unwrap())
            .collect();
        Self {
            client,
            keys,
            runs: Slab::new("relay_runs", mode),
            timeouts: Timeouts::default(),
            retries: 0,
            log: None,
            next: 0,
        }
    }

    pub(crate) fn logging(mut self, log: SharedLog) -> Self {
        self.log = Some(log);
        self
    }

    pub(crate) fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    pub(crate) fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    pub(crate) fn open_runs(&self) -> usize {
        self.runs.len()
    }

    /// The targets take turns.
    fn next_key(&mut self) -> PoolKey {
        self.next = (self.next + 1) % self.keys.len();
        self.keys[self.next]
    }

    fn begin(&mut self, handle: Handle<Run>, body: Framing, blocks: &BlockPool) {
        let key = self.next_key();
        let Some(run) = self.runs.get_mut(handle) else {
            return;
        };
        let target = RequestTarget::new(&*run.path).unwrap();
        let begun = OutgoingRequest::new(blocks, run.method, target, UPSTREAM, &[]);
        let mut request = begun.unwrap();
        request.body = body;
        request.may_upgrade = run.path.starts_with(b"/upgrade");
        request.needs_own_connection = run.path.starts_with(b"/alone");
        request.timeouts = self.timeouts;
        if run.path.starts_with(b"/impatient") {
            request.timeouts.connection_ns = IMPATIENT_NS;
        }
        request.user = handle.to_bits();
        run.exchange = Some(self.client.begin(key, request, blocks).unwrap());
    }

    fn end(&mut self, handle: Handle<Run>) {
        self.runs.remove(handle);
    }

    fn answer_part(&mut self, handle: Handle<Run>, part: &[u8], completions: &mut Completions<'_>) {
        let Some(run) = self.runs.get_mut(handle) else {
            return;
        };
        let (client, exchange) = (&self.client, run.exchange.unwrap());
        let is_there = completions.continue_with(run.token, |response, _| {
            response.write(part).unwrap();
            if response.room_bytes() > 16 * 1024 {
                return Flow::Pending;
            }
            client.pause(exchange);
            run.is_paused = true;
            Flow::Stream(Interest::ROOM)
        });
        assert!(is_there, "a client that goes is told of first");
    }

    fn failed(
        &mut self,
        handle: Handle<Run>,
        failure: &ExchangeFailure,
        completions: &mut Completions<'_>,
    ) {
        let Some(run) = self.runs.get_mut(handle) else {
            return;
        };
        run.exchange = None;
        if run.tries_left > 0 && !run.has_body && failure.may_repeat(run.method) {
            run.tries_left -= 1;
            let blocks = completions.pools().blocks.clone();
            return self.begin(handle, Framing::None, &blocks);
        }
        let status = match () {
            () if failure.is_local() => StatusCode::SERVICE_UNAVAILABLE,
            () if failure.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            () => StatusCode::BAD_GATEWAY,
        };
        let is_head_sent = run.is_head_sent;
        let text = format!(
            "{} reused={} arrived={} begun={}",
            failure.phase.name(),
            failure.is_reused,
            failure.may_have_arrived,
            failure.has_response_begun
        );
        completions.continue_with(run.token, |response, _| {
            if !is_head_sent {
                response.send(status, None, text.as_bytes()).unwrap();
            }
            Flow::Done
        });
        self.end(handle);
    }
}

impl Service for Relay {
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let blocks = &context.pools.blocks;
        let mut path = Buffer::new();
        path.extend_from_slice(blocks, request.path()).unwrap();
        let body = request.framing();
        let has_body = body != Framing::None;
        let run = Run {
            token: context.token,
            exchange: None,
            method: request.method,
            path,
            tries_left: self.retries,
            is_head_sent: false,
            is_paused: false,
            has_body,
            wants_body: has_body,
        };
        let Ok(handle) = self.runs.insert(run) else {
            let _ = response.send(StatusCode::SERVICE_UNAVAILABLE, None, b"");
            return Flow::Done;
        };
        context.state = handle.to_bits();
        self.begin(handle, body, blocks);
        match has_body {
            true => Flow::Stream(Interest::BODY),
            false => Flow::Pending,
        }
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        _response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let handle: Handle<Run> = Handle::from_bits(context.state);
        let blocks = &context.pools.blocks;
        let Some(run) = self.runs.get_mut(handle) else {
            return Flow::Done;
        };
        let Some(exchange) = run.exchange else {
            return Flow::Pending;
        };
        match event {
            StreamEvent::Body(part) => {
                let written = self.client.write(exchange, part, blocks);
                assert!(matches!(written, Ok(()) | Err(ExchangeWriteError::Gone)));
                run.wants_body = self.client.room_bytes(exchange) > 0;
            }
            StreamEvent::BodyEnd { .. } => {
                self.client.finish(exchange, &[], blocks).unwrap();
                run.wants_body = false;
            }
            StreamEvent::Room => {
                if std::mem::take(&mut run.is_paused) {
                    self.client.resume(exchange);
                }
            }
            StreamEvent::Resumed => {}
        }
        Flow::Stream(Interest {
            body: run.wants_body,
            room: run.is_paused,
        })
    }

    fn client(&self) -> Option<&Client> {
        Some(&self.client)
    }

    fn exchange_event(
        &mut self,
        id: ExchangeId,
        user: u64,
        event: ExchangeEvent<'_>,
        completions: &mut Completions<'_>,
    ) {
        let handle: Handle<Run> = Handle::from_bits(user);
        let run = self.runs.get_mut(handle).unwrap();
        assert_eq!(
            run.exchange,
            Some(id),
            "nothing is heard of an exchange that is over"
        );
        match event {
            ExchangeEvent::Informational(_) => {
                if let Some(log) = &self.log {
                    log.lock().unwrap().informational += 1;
                }
            }
            // Of another protocol, whose end is that of the upstream here.
            ExchangeEvent::PeerFinished => {
                let blocks = completions.pools().blocks.clone();
                self.client.finish(id, &[], &blocks).unwrap();
            }
            ExchangeEvent::Room => {
                run.wants_body = true;
                completions.continue_with(run.token, |_, _| Flow::Stream(Interest::BODY));
            }
            ExchangeEvent::Head(head) => {
                run.is_head_sent = true;
                let is_upgrade = head.status().code() == 101;
                let (status, length) = match head.framing {
                    _ if is_upgrade => (StatusCode::OK, BodyLength::Unknown),
                    Framing::Length(length) => (head.status(), BodyLength::Known(length)),
                    Framing::None => (head.status(), BodyLength::Known(0)),
                    Framing::Chunked | Framing::UntilClose => (head.status(), BodyLength::Unknown),
                };
                let token = run.token;
                if is_upgrade {
                    let blocks = &completions.pools().blocks;
                    self.client.write(id, b"ping", blocks).unwrap();
                }
                completions.continue_with(token, |response, _| {
                    response.start(status, &[], length).unwrap();
                    Flow::Pending
                });
            }
            ExchangeEvent::Body(part) => self.answer_part(handle, part, completions),
            ExchangeEvent::Whole { .. } => panic!("nobody asked for whole responses"),
            ExchangeEvent::End { report, .. } => {
                if let Some(log) = &self.log {
                    log.lock().unwrap().reports.push(*report);
                }
                let token = run.token;
                completions.continue_with(token, |response, _| {
                    let _ = response.finish();
                    Flow::Done
                });
                self.end(handle);
            }
            ExchangeEvent::Failed { failure, report } => {
                if let Some(log) = &self.log {
                    let mut log = log.lock().unwrap();
                    log.failures.push(failure.clone());
                    log.reports.push(*report);
                }
                self.failed(handle, failure, completions);
            }
        }
    }

    fn alarm(&mut self, _completions: &mut Completions<'_>) {
        if let Some(log) = &self.log {
            log.lock().unwrap().alarms += 1;
        }
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        let run = self.runs.remove(Handle::from_bits(state));
        if let Some(exchange) = run.and_then(|run| run.exchange) {
            self.client.abort(exchange);
        }
    }

    fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        visit(self.runs.stats());
        self.client.visit_pool_stats(visit);
    }

    fn trim_pools(&mut self) -> usize {
        self.runs.trim() + self.client.trim_pools()
    }
}
