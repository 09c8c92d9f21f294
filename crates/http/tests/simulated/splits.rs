//! A request may arrive in any two pieces, or byte by byte: the responses are the same.

use crate::responses::{Answer, Responses};
use crate::stage::Stage;
use millpond_http::{LimitValues, Limits};
use millpond_io::StopHandle;
use millpond_io::driver::sim::{Cuts, FaultPlan, Network, PeerRead, Turn};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes a client sends on one connection, and the methods of its requests as far as they matter.
struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    /// Responses to HEAD requests, by their place.
    heads: &'static [usize],
    statuses: &'static [u16],
}

fn case(
    name: &'static str,
    bytes: impl AsRef<[u8]>,
    heads: &'static [usize],
    statuses: &'static [u16],
) -> Case {
    let bytes = bytes.as_ref().to_vec();
    Case {
        name,
        bytes,
        heads,
        statuses,
    }
}

const POST: &str = "POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello world";
const CHUNKED: &str = "PUT /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                       5;x=\"y\\\"z\"\r\nhello\r\n6\r\n world\r\n0\r\nTrailer: t\r\n\r\n";

fn well_formed() -> Vec<Case> {
    let get = "GET /a?b=c HTTP/1.1\r\nHost: example.com:80\r\nAccept: */*\r\n\r\n";
    let pipeline = format!("{get}{POST}HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n{CHUNKED}{get}");
    let late = "GET /late/1 HTTP/1.1\r\nHost: a\r\n\r\nGET /late/2 HTTP/1.1\r\nHost: a\r\n\r\n";
    vec![
        case("get", get, &[], &[200]),
        case("post", POST, &[], &[200]),
        case("chunked", CHUNKED, &[], &[200]),
        case("pipeline", pipeline, &[2], &[200; 5]),
        case("late", late, &[], &[200; 2]),
        case("empty lines", format!("\r\n{get}\r\n{get}"), &[], &[200; 2]),
        case(
            "old",
            "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
            &[],
            &[200; 2],
        ),
        case(
            "close",
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            &[],
            &[200],
        ),
        case(
            "empty body",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            &[],
            &[200],
        ),
        case(
            "absolute",
            "GET http://h/x HTTP/1.1\r\nHost: h\r\n\r\n",
            &[],
            &[200],
        ),
    ]
}

/// Each ends in a refusal; earlier requests get responses.
fn malformed() -> Vec<Case> {
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let chunked = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut cases = vec![
        case(
            "method",
            format!("{get}G@T / HTTP/1.1\r\n\r\n"),
            &[],
            &[200, 400],
        ),
        case("version", "GET / HTTP/2.0\r\n\r\n", &[], &[505]),
        case("host", "GET / HTTP/1.1\r\n\r\n", &[], &[400]),
        case("bare LF", "GET / HTTP/1.1\nHost: a\n\n", &[], &[400]),
        case(
            "forgotten",
            "GET /forgotten HTTP/1.1\r\nHost: a\r\n\r\n",
            &[],
            &[503],
        ),
        case(
            "two lengths",
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            &[],
            &[400],
        ),
        case(
            "both framings",
            format!(
                "{get}PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
                     Content-Length: 4\r\n\r\n0\r\n\r\n"
            ),
            &[],
            &[200, 400],
        ),
        case(
            "chunk size",
            format!("{chunked}5x\r\nhello\r\n0\r\n\r\n"),
            &[],
            &[400],
        ),
        case(
            "chunk end",
            format!("{chunked}5\r\nhelloX\r\n0\r\n\r\n"),
            &[],
            &[400],
        ),
    ];
    let body = "x".repeat(300);
    cases.push(case(
        "long body",
        format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 300\r\n\r\n{body}"),
        &[],
        &[413],
    ));
    cases.push(case(
        "long line",
        format!("GET /{body} HTTP/1.1\r\nHost: a\r\n\r\n"),
        &[],
        &[414],
    ));
    cases.push(case(
        "long head",
        format!("GET / HTTP/1.1\r\nHost: a\r\nX: {body}\r\nY: {body}\r\n\r\n"),
        &[],
        &[431],
    ));
    cases
}

fn limits() -> Limits {
    LimitValues {
        request_line_bytes_max: 200,
        head_bytes_max: 400,
        body_bytes_max: 200,
        ..LimitValues::default()
    }
    .checked()
    .unwrap()
}

/// Sends all of `case` in pieces that end at the cuts, finishes, reads to the end.
fn visit(
    network: &Network,
    stop: &StopHandle,
    case: &Case,
    cuts: Vec<Cuts>,
) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let received = Rc::new(RefCell::new(vec![Vec::new(); cuts.len()]));
    let left = Rc::new(RefCell::new(cuts.len()));
    for (index, cuts) in cuts.into_iter().enumerate() {
        let mut peer = network.connect().unwrap();
        peer.set_cuts(cuts);
        assert_eq!(peer.write(&case.bytes), Ok(case.bytes.len()));
        peer.finish();
        let (received, left, stop) = (Rc::clone(&received), Rc::clone(&left), stop.clone());
        network.spawn(move |_| {
            let mut received = received.borrow_mut();
            match peer.read(&mut received[index], usize::MAX) {
                PeerRead::Finished => {
                    *left.borrow_mut() -= 1;
                    if *left.borrow() == 0 {
                        stop.request_stop();
                    }
                    Turn::Done
                }
                PeerRead::Bytes(_) | PeerRead::Nothing => Turn::Soon,
                PeerRead::Failed(error) => panic!("cuts {index}: {error}"),
            }
        });
    }
    received
}

fn answers(case: &Case, bytes: &[u8]) -> Vec<Answer> {
    let mut responses = Responses {
        unread: bytes.to_vec(),
    };
    let mut answers = Vec::new();
    while let Some(answer) = responses.take(case.heads.contains(&answers.len())) {
        answers.push(answer);
    }
    assert!(responses.unread.is_empty(), "{}: a cut response", case.name);
    answers
}

/// Every way to cut the case once, then byte by byte; under `plan`.
fn check(case: &Case, plan: &FaultPlan, seed: u64) {
    let mut stage = Stage::new(seed, plan.clone(), limits());
    let mut cuts: Vec<Cuts> = (0..case.bytes.len() as u64)
        .map(|at| Cuts::At(vec![at]))
        .collect();
    cuts.push(Cuts::EveryByte);
    let received = visit(&stage.network, &stage.stop_handle(), case, cuts);
    stage.play();
    let received = received.borrow();
    let whole = answers(case, &received[0]);
    let statuses: Vec<u16> = whole.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, case.statuses, "{}", case.name);
    for (at, bytes) in received.iter().enumerate() {
        assert_eq!(answers(case, bytes), whole, "{}, cut at {at}", case.name);
    }
}

/// Goal: wherever a request is cut, it gets the responses it gets whole.
#[test]
fn a_cut_changes_no_answer() {
    for case in well_formed().iter().chain(&malformed()) {
        check(case, &FaultPlan::none(), 1);
    }
}

/// Goal: the same while sends are short or late, receives burst and completions are reordered.
#[test]
fn a_cut_changes_no_answer_under_faults() {
    for (seed, case) in (0..).zip(well_formed().iter().chain(&malformed())) {
        let plan = FaultPlan {
            bursts: 0.7,
            delays: 0.3,
            reorders: true,
            short_sends: 0.5,
            late_sends: if seed % 2 == 0 { 0.7 } else { 0.0 },
            ..FaultPlan::none()
        };
        check(case, &plan, seed);
    }
}
