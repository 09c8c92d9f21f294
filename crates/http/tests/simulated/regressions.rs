//! Seeds that once failed, each with what it found. A change of the clients or of the simulator
//! changes what a seed plays, so the story also has a test of its own that plays nothing else.

use crate::line::Speech;
use crate::responses::Responses;
use crate::stage::Stage;
use crate::storm;
use millpond_http::Limits;
use millpond_io::driver::sim::{FaultPlan, PeerRead, Turn};
use millpond_mempool::{Checks, PoolMode};
use std::cell::RefCell;
use std::num::NonZeroU64;
use std::rc::Rc;

/// Two connections were idle for too long in one sweep. Cutting the first left the second more time, as it should; but
/// no sweep was planned for when that time ends, so the second stayed open for as long as no other connection came. See
/// `deadlines::who_is_spared_by_a_sweep_is_swept_later`.
#[test]
fn a_spared_idle_connection_is_looked_at_again() {
    storm::play(9);
}

/// Seeds that found something over TLS. 150: an ignored body came in records of some thirty bytes, each of which
/// counted as a chunk, and its connection was closed before the next response. 334: a client's `close_notify` was
/// unread when the server closed after its last response, and the resulting reset destroyed the response.
#[test]
fn what_tls_once_lost_arrives() {
    storm::play_in(150, Speech::Tls13);
    storm::play_in(334, Speech::Tls13);
}

/// Seed 66: a service had begun a response in parts, and there was no memory to remember that by. The
/// 503 that followed stood behind a head that announced a body, and its first bytes were read as
/// that body. A response that cannot go on is cut.
#[test]
fn no_refused_allocation_puts_an_answer_into_another() {
    const VISITS: usize = 12;
    let (targets, body) = (["/out/5", "/chunks/5", "/out/5"], [0, 1, 2, 3, 4]);
    let request = |target| format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
    let requests: String = targets.map(request).concat();
    let mut harmed = 0;
    for number in 1..30 {
        let checks = Checks {
            guard_pages: false,
            fail_at: NonZeroU64::new(number),
        };
        let mode = PoolMode::Checked(checks);
        let mut stage = Stage::with_pools(number, FaultPlan::none(), Limits::default(), mode);
        let heard = visit_in_turn(&stage, VISITS, requests.clone());
        stage.play();
        for unread in heard.take() {
            let mut responses = Responses { unread };
            let mut answered = 0;
            while let Some(answer) = responses.take(false) {
                if answer.status == 200 {
                    assert_eq!(answer.body, body, "fail={number}");
                } else {
                    let is_last = answer.says_close && responses.unread.is_empty();
                    assert!(is_last, "fail={number}: {answer:?}");
                }
                answered += 1;
            }
            // The rest is the beginning of a response that was cut.
            let rest = String::from_utf8_lossy(&responses.unread).into_owned();
            let heads = rest.matches("HTTP/1.1 ").count();
            assert_eq!(
                heads,
                usize::from(!rest.is_empty()),
                "fail={number}: {rest}"
            );
            harmed += usize::from(answered < targets.len() || !rest.is_empty());
        }
    }
    assert!(harmed > 20, "{harmed} visits met a refusal");
}

/// Connects so many times, one after the other; returns what each received until the end.
fn visit_in_turn(stage: &Stage, visits: usize, requests: String) -> Rc<RefCell<Vec<Vec<u8>>>> {
    let heard: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let (hears, stop) = (Rc::clone(&heard), stage.stop_handle());
    let mut peer = None;
    stage.network.spawn(move |network| {
        let mut heard = hears.borrow_mut();
        let peer_now = peer.get_or_insert_with(|| {
            let mut peer = network.connect().unwrap();
            assert_eq!(peer.write(requests.as_bytes()), Ok(requests.len()));
            peer.finish();
            heard.push(Vec::new());
            peer
        });
        let count = heard.len();
        match peer_now.read(&mut heard[count - 1], usize::MAX) {
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
            PeerRead::Finished | PeerRead::Failed(_) if count < visits => peer = None,
            PeerRead::Finished | PeerRead::Failed(_) => {
                stop.request_stop();
                return Turn::Done;
            }
        }
        Turn::At(network.now_ns() + 1_000_000)
    });
    heard
}
