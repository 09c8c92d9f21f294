//! The service of the simulated server: responses that can be predicted from the request alone, some of them given
//! later by a back office that is a script of the network.

use crate::streams::Streams;
use millpond_http::{
    Completions, FieldValue, Flow, Request, RequestToken, Response, Service, ServiceContext,
    StatusCode, StreamEvent,
};
use millpond_io::Waker;
use millpond_io::driver::sim::{Network, Turn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Longest that a late response takes.
const OFFICE_NS_MAX: u64 = 50_000_000;

/// Responses are `METHOD target\n` and the request's body; see [`answer_to`] for the exceptions.
pub(crate) struct TestService {
    desk: Rc<RefCell<ResponseContext>>,
    streams: Streams,
}

/// A request, and its response; none if it is to be resumed.
type Asked = (RequestToken, Option<Vec<u8>>);

/// State between the service and its back office.
#[derive(Default)]
struct ResponseContext {
    asked: VecDeque<Asked>,
    done: Vec<Asked>,
    /// Responses for connections that were gone.
    lost: u64,
}

/// Responds to requests for `/late` after a while, in any order.
#[derive(Clone)]
pub(crate) struct BackOffice {
    desk: Rc<RefCell<ResponseContext>>,
    waker: Waker,
}

impl BackOffice {
    pub(crate) fn new(waker: Waker) -> Self {
        Self {
            desk: Rc::default(),
            waker,
        }
    }

    /// Works for as long as the network lives; sleeps while nothing is asked.
    pub(crate) fn script(&self) -> impl FnMut(&Network) -> Turn + 'static {
        let office = self.clone();
        let mut working: Vec<(u64, Asked)> = Vec::new();
        move |network| {
            let now_ns = network.now_ns();
            let mut desk = office.desk.borrow_mut();
            while let Some(asked) = desk.asked.pop_front() {
                let due_ns = now_ns + network.random_below(OFFICE_NS_MAX);
                working.push((due_ns, asked));
            }
            let (due, later): (Vec<_>, Vec<_>) =
                working.drain(..).partition(|(due_ns, _)| *due_ns <= now_ns);
            working = later;
            if !due.is_empty() {
                desk.done.extend(due.into_iter().map(|(_, asked)| asked));
                office.waker.wake();
            }
            let pause_ns_max = match working.is_empty() {
                true => 2 * OFFICE_NS_MAX,
                false => OFFICE_NS_MAX / 10,
            };
            Turn::At(now_ns + 1 + network.random_below(pause_ns_max))
        }
    }
}

impl TestService {
    pub(crate) fn new(office: &BackOffice) -> Self {
        Self {
            desk: Rc::clone(&office.desk),
            streams: Streams::default(),
        }
    }

    /// Exchanges in parts that are neither over nor abandoned.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.open_count()
    }
}

/// The response's body, by method, target and the request's body.
pub(crate) fn answer_to(method: &str, target: &str, body: &[u8]) -> Vec<u8> {
    let mut words = target.split('/').skip(1);
    match (words.next(), words.next()) {
        (Some("large" | "out" | "chunks"), Some(len)) => large_body(len.parse().unwrap_or(0)),
        (Some("echo"), _) => body.to_vec(),
        (Some("early"), _) => b"early".to_vec(),
        _ => [method.as_bytes(), b" ", target.as_bytes(), b"\n", body].concat(),
    }
}

/// Bytes that differ from place to place, so that a lost or doubled one shows.
pub(crate) fn large_body(len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at % 251) as u8 ^ (at / 251) as u8)
        .collect()
}

impl Service for TestService {
    fn takes_body_in_parts(&mut self, request: &Request<'_>) -> bool {
        Streams::takes(std::str::from_utf8(request.target().as_bytes()).unwrap())
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        self.streams.go_on(event, response, context.state)
    }

    fn abandoned(&mut self, _token: RequestToken, state: u64) {
        self.streams.abandoned(state);
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let method = std::str::from_utf8(request.method_token()).unwrap();
        let target = std::str::from_utf8(request.target().as_bytes()).unwrap();
        if target.starts_with("/forgotten") {
            return Flow::Done;
        }
        if let Some(flow) = self.streams.begin(request, response, context) {
            if target.starts_with("/held/") {
                let mut desk = self.desk.borrow_mut();
                desk.asked.push_back((context.token, None));
            }
            return flow;
        }
        let answer = answer_to(method, target, request.body());
        if target.starts_with("/late") {
            let mut desk = self.desk.borrow_mut();
            desk.asked.push_back((context.token, Some(answer)));
            return Flow::Pending;
        }
        if target.starts_with("/last") {
            response.close_after();
        }
        let text = context.pools.arena.copy_in(&answer);
        // Without memory nothing is sent, which becomes 503.
        if let Ok(text) = text {
            let _ = response.send(StatusCode::OK, Some(FieldValue::OCTET_STREAM), text);
        }
        Flow::Done
    }

    fn on_wake(&mut self, completions: &mut Completions<'_>) {
        let mut desk = self.desk.borrow_mut();
        for (token, answer) in std::mem::take(&mut desk.done) {
            let Some(answer) = answer else {
                desk.lost += u64::from(!completions.resume(token));
                continue;
            };
            let is_there = completions.respond(token, |response, _| {
                let _ = response.send(StatusCode::OK, None, &answer);
            });
            desk.lost += u64::from(!is_there);
            assert!(
                !completions.respond(token, |_, _| panic!("answered twice")),
                "a token answers once"
            );
        }
    }
}
