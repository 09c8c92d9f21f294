//! Deadlines to the granule, in virtual time: minutes of waiting cost nothing here, and no slow machine can make one
//! expire early.

use crate::stage::{MILLISECOND_NS, SECOND_NS, Stage};
use millpond_http::counters::HttpCounters;
use millpond_http::{LimitValues, Limits};
use millpond_io::driver::sim::{FaultPlan, PeerRead, Turn};
use millpond_io::timer_wheel::GRANULE_NS;
use std::cell::RefCell;
use std::rc::Rc;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// How often a client checks for received bytes.
const LOOK_NS: u64 = 4 * MILLISECOND_NS;

/// How late a deadline may be noticed: the wheel's granule, the client's check, and a tick.
const SLACK_NS: u64 = GRANULE_NS + LOOK_NS + MILLISECOND_NS;

/// Longer than anything here takes.
const PATIENCE_NS: u64 = 1_000 * SECOND_NS;

enum Step {
    Send(Vec<u8>),
    /// Reads nothing from here on.
    StopReading,
    ReadAgain,
    Leave,
}

/// Events of a client, in times since it connected.
#[derive(Debug, Default)]
struct Saw {
    /// Bytes with the time they were read at.
    heard: Vec<(u64, Vec<u8>)>,
    /// When the connection ended, and whether by a reset.
    ended: Option<(u64, bool)>,
}

impl Saw {
    fn text(&self) -> String {
        let bytes: Vec<u8> = self
            .heard
            .iter()
            .flat_map(|(_, bytes)| bytes.clone())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn first_heard_ns(&self) -> u64 {
        self.heard.first().expect("nothing was heard").0
    }

    /// Ended by a FIN, at this time and not before.
    fn assert_ended_at(&self, expected_ns: u64) {
        let (ended_ns, is_reset) = self.ended.expect("the connection did not end");
        assert!(!is_reset, "{self:?}");
        assert_time(ended_ns, expected_ns);
    }
}

fn assert_time(found_ns: u64, expected_ns: u64) {
    let is_exact = (expected_ns..expected_ns + SLACK_NS).contains(&found_ns);
    assert!(is_exact, "at {found_ns} instead of {expected_ns} ns");
}

/// A server and its visitors; stops when the last one is gone.
struct Scene {
    stage: Stage,
    visitors: Rc<RefCell<usize>>,
}

impl Scene {
    fn new(limits: Limits) -> Self {
        Self::with_plan(FaultPlan::none(), limits)
    }

    fn with_plan(plan: FaultPlan, limits: Limits) -> Self {
        Self {
            stage: Stage::new(1, plan, limits),
            visitors: Rc::default(),
        }
    }

    /// A client that connects at `from_ns` and then does these things at these times.
    fn visitor(&mut self, from_ns: u64, steps: Vec<(u64, Step)>) -> Rc<RefCell<Saw>> {
        let saw: Rc<RefCell<Saw>> = Rc::default();
        let network = &self.stage.network;
        let start_ns = network.now_ns() + from_ns;
        *self.visitors.borrow_mut() += 1;
        let (visitors, stop) = (Rc::clone(&self.visitors), self.stage.stop_handle());
        let seen = Rc::clone(&saw);
        let (mut peer, mut steps, mut reads) = (None, steps.into_iter().peekable(), true);
        network.spawn(move |network| {
            let now_ns = network.now_ns();
            if now_ns < start_ns {
                return Turn::At(start_ns);
            }
            let peer = peer.get_or_insert_with(|| network.connect().ok());
            let mut saw = seen.borrow_mut();
            let since_ns = now_ns - start_ns;
            assert!(since_ns < PATIENCE_NS, "a visitor waits for ever");
            while let Some((_, step)) = steps.next_if(|(at_ns, _)| *at_ns <= since_ns) {
                match (step, peer.as_mut()) {
                    (Step::Send(bytes), Some(peer)) => {
                        // A connection that is over refuses them.
                        let _ = peer.write(&bytes);
                    }
                    (Step::StopReading, _) => reads = false,
                    (Step::ReadAgain, _) => reads = true,
                    (Step::Leave, _) => *peer = None,
                    (Step::Send(_), None) => {}
                }
            }
            let is_over = match peer.as_mut() {
                None => true,
                Some(_) if !reads => false,
                Some(peer) => {
                    let mut bytes = Vec::new();
                    match peer.read(&mut bytes, usize::MAX) {
                        PeerRead::Bytes(_) => {
                            saw.heard.push((since_ns, bytes));
                            false
                        }
                        PeerRead::Nothing => false,
                        PeerRead::Finished => saw.ended.replace((since_ns, false)).is_none(),
                        PeerRead::Failed(_) => saw.ended.replace((since_ns, true)).is_none(),
                    }
                }
            };
            if !is_over {
                return Turn::At(now_ns + LOOK_NS);
            }
            *peer = None;
            *visitors.borrow_mut() -= 1;
            if *visitors.borrow() == 0 {
                stop.request_stop();
            }
            Turn::Done
        });
        saw
    }

    fn play(&mut self) -> &HttpCounters {
        self.stage.play()
    }
}

fn send(bytes: impl AsRef<[u8]>) -> Step {
    Step::Send(bytes.as_ref().to_vec())
}

/// Goal: a head has its time from its first byte on, however many bytes keep coming, also the
/// second head of a connection.
#[test]
fn a_head_has_its_time_in_total() {
    let mut scene = Scene::new(Limits::default());
    let trickle =
        |from_ns: u64| (0..40).map(move |index| (from_ns + index * SECOND_NS / 2, send(&GET[..1])));
    let fresh = scene.visitor(0, trickle(3 * SECOND_NS).collect());
    let mut second = vec![(0, send(GET))];
    second.extend(trickle(20 * SECOND_NS));
    let second = scene.visitor(0, second);
    let in_time = scene.visitor(
        0,
        vec![
            (0, send(&GET[..10])),
            (9_900 * MILLISECOND_NS, send(&GET[10..])),
            (10_100 * MILLISECOND_NS, Step::Leave),
        ],
    );
    scene.play();
    let fresh = fresh.borrow();
    assert!(fresh.text().starts_with("HTTP/1.1 408 "), "{fresh:?}");
    assert_time(fresh.first_heard_ns(), 13 * SECOND_NS);
    let second = second.borrow();
    assert!(second.text().starts_with("HTTP/1.1 200 "), "{second:?}");
    let (refused_ns, refusal) = &second.heard[1];
    assert!(refusal.starts_with(b"HTTP/1.1 408 "), "{second:?}");
    assert_time(*refused_ns, 30 * SECOND_NS);
    assert!(in_time.borrow().text().starts_with("HTTP/1.1 200 "));
}

/// Goal: an idle connection is closed silently, one that never sent a byte as well as one with a response, each counted
/// from when it became idle.
#[test]
fn idle_connections_have_their_time() {
    let mut scene = Scene::new(Limits::default());
    let silent = scene.visitor(0, Vec::new());
    let used = scene.visitor(0, vec![(20 * SECOND_NS, send(GET))]);
    let late = scene.visitor(
        0,
        vec![(
            30 * SECOND_NS,
            send("GET /late/1 HTTP/1.1\r\nHost: a\r\n\r\n"),
        )],
    );
    let counters = scene.play();
    assert_eq!(counters.requests, 2);
    silent.borrow().assert_ended_at(75 * SECOND_NS);
    assert!(silent.borrow().heard.is_empty());
    for (saw, asked_ns) in [(&used, 20 * SECOND_NS), (&late, 30 * SECOND_NS)] {
        let saw = saw.borrow();
        let answered_ns = saw.first_heard_ns();
        assert!(answered_ns >= asked_ns);
        let (ended_ns, is_reset) = saw.ended.unwrap();
        let idle_ns = ended_ns - answered_ns;
        assert!(!is_reset);
        assert!(
            (75 * SECOND_NS - LOOK_NS..75 * SECOND_NS + SLACK_NS).contains(&idle_ns),
            "{idle_ns}"
        );
    }
}

/// Goal: as connections fill, those idle for too long go; the first to go leaves the others more time, and when that is
/// over they go too, although no connection comes any more.
#[test]
fn who_is_spared_by_a_sweep_is_swept_later() {
    let mut scene = Scene::new(
        LimitValues {
            connections_max: 4,
            idle_timeout_ns: 100 * SECOND_NS,
            idle_timeout_min_ns: SECOND_NS,
            ..LimitValues::default()
        }
        .checked()
        .unwrap(),
    );
    let visitors: Vec<_> = (0..4).map(|_| scene.visitor(0, Vec::new())).collect();
    scene.play();
    let mut ends: Vec<u64> = visitors
        .iter()
        .map(|saw| saw.borrow().ended.unwrap().0)
        .collect();
    ends.sort_unstable();
    // The emptier, the longer; the last one alone has nearly the full time.
    assert!(ends[0] < ends[3], "{ends:?}");
    assert!(ends[3] <= 100 * SECOND_NS + SLACK_NS, "{ends:?}");
}

/// Goal: a body slower than the least rate is refused when its credit is used up; one that is a
/// little faster may take minutes.
#[test]
fn a_body_has_a_least_rate() {
    let limits = Limits::default();
    let (grace_ns, rate) = (limits.body_grace_ns, limits.body_rate_bytes_per_s_min);
    let upload = |bytes_per_s: u64, seconds: u64| {
        let length = bytes_per_s * seconds;
        let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let mut steps = vec![(0, send(head))];
        steps.extend((1..=seconds).map(|second| {
            let piece = vec![b'x'; usize::try_from(bytes_per_s).unwrap()];
            (second * SECOND_NS, send(piece))
        }));
        steps.push(((seconds + 1) * SECOND_NS, Step::Leave));
        steps
    };
    let mut scene = Scene::new(limits);
    let slow = scene.visitor(0, upload(rate / 2, 100));
    let stuck = scene.visitor(
        0,
        vec![(
            0,
            send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"),
        )],
    );
    let steady = scene.visitor(0, upload(rate + 10, 120));
    scene.play();
    assert!(slow.borrow().text().starts_with("HTTP/1.1 408 "));
    // t seconds have brought t/2 seconds of credit, on top of the grace.
    let used_up_ns = 2 * grace_ns;
    let refused_ns = slow.borrow().first_heard_ns();
    assert!(
        (used_up_ns - SECOND_NS..used_up_ns + SECOND_NS).contains(&refused_ns),
        "{refused_ns}"
    );
    assert!(stuck.borrow().text().starts_with("HTTP/1.1 408 "));
    assert_time(stuck.borrow().first_heard_ns(), grace_ns);
    assert!(steady.borrow().text().starts_with("HTTP/1.1 200 "));
    assert_time(steady.borrow().first_heard_ns(), 120 * SECOND_NS);
}

/// Goal: a client that does not read its response is disconnected after the stall limit and the time that a legitimate
/// slow reader needs; one that reads again before that gets everything.
#[test]
fn a_write_has_its_time() {
    const BODY_BYTES: u64 = 400_000;
    let limits = Limits::default();
    let request = format!("GET /large/{BODY_BYTES} HTTP/1.1\r\nHost: a\r\n\r\n");
    let allowed_ns =
        limits.write_stall_ns + BODY_BYTES * SECOND_NS / limits.write_rate_bytes_per_s_min;
    let mut scene = Scene::new(limits);
    let deaf = scene.visitor(
        0,
        vec![
            (0, Step::StopReading),
            (0, send(&request)),
            (allowed_ns + SECOND_NS, Step::ReadAgain),
        ],
    );
    let slow = scene.visitor(
        0,
        vec![
            (0, Step::StopReading),
            (0, send(&request)),
            (allowed_ns - SECOND_NS, Step::ReadAgain),
            (allowed_ns + 2 * SECOND_NS, Step::Leave),
        ],
    );
    scene.play();
    let bytes = |saw: &Saw| {
        saw.heard
            .iter()
            .map(|(_, bytes)| bytes.len() as u64)
            .sum::<u64>()
    };
    assert!(bytes(&deaf.borrow()) < BODY_BYTES, "it was cut");
    assert!(bytes(&slow.borrow()) > BODY_BYTES, "head and body");
    assert!(slow.borrow().ended.is_none(), "and it could have gone on");
}

/// Goal: a stop closes idle connections at once, completes requests under way, and cuts the unfinished ones at the
/// drain's deadline.
#[test]
fn a_drain_has_its_time() {
    let mut scene = Scene::new(
        LimitValues {
            drain_timeout_ns: 7 * SECOND_NS,
            ..LimitValues::default()
        }
        .checked()
        .unwrap(),
    );
    let idle = scene.visitor(0, vec![(0, send(GET))]);
    let begun = scene.visitor(
        0,
        vec![(0, send(&GET[..9])), (13 * SECOND_NS, send(&GET[9..]))],
    );
    let upload = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n";
    let mut steps = vec![(0, send(upload))];
    steps.extend((0..60).map(|second| (second * SECOND_NS, send([b'x'; 1000]))));
    let endless = scene.visitor(5 * SECOND_NS, steps);
    let stop = scene.stage.stop_handle();
    let start_ns = scene.stage.network.now_ns();
    let stop_ns = start_ns + 8 * SECOND_NS;
    scene.stage.network.spawn(move |network| {
        if network.now_ns() < stop_ns {
            return Turn::At(stop_ns);
        }
        stop.request_stop();
        Turn::Done
    });
    scene.play();
    idle.borrow().assert_ended_at(8 * SECOND_NS);
    // The head's own deadline comes before the drain's.
    assert!(begun.borrow().text().starts_with("HTTP/1.1 408 "));
    // The server ends with the connection it cuts.
    assert!(endless.borrow().heard.is_empty());
    assert_time(scene.stage.network.now_ns() - start_ns, 15 * SECOND_NS);
}

/// Goal: without descriptors the connection idle for longest makes room, and the newcomer is served; while none is
/// idle, the newcomer is reset at once instead of being left to hang.
#[test]
fn a_newcomer_gets_the_place_of_the_idlest() {
    let plan = FaultPlan {
        descriptors_max: 2,
        ..FaultPlan::none()
    };
    let mut scene = Scene::with_plan(plan, Limits::default());
    let idlest = scene.visitor(0, vec![(0, send(GET))]);
    let idle = scene.visitor(
        0,
        vec![(SECOND_NS, send(GET)), (20 * SECOND_NS, Step::Leave)],
    );
    let newcomer = scene.visitor(
        5 * SECOND_NS,
        vec![(0, send(GET)), (10 * SECOND_NS, Step::Leave)],
    );
    let counters = scene.play();
    assert_eq!((counters.connections_shed, counters.requests), (1, 3));
    idlest.borrow().assert_ended_at(5 * SECOND_NS);
    assert!(idle.borrow().ended.is_none());
    assert!(newcomer.borrow().text().starts_with("HTTP/1.1 200 "));

    let plan = FaultPlan {
        descriptors_max: 1,
        ..FaultPlan::none()
    };
    let mut scene = Scene::with_plan(plan, Limits::default());
    let busy = scene.visitor(
        0,
        vec![(0, send(&GET[..5])), (6 * SECOND_NS, send(&GET[5..]))],
    );
    let newcomer = scene.visitor(
        SECOND_NS,
        vec![(0, send(GET)), (9 * SECOND_NS, Step::Leave)],
    );
    scene.play();
    assert!(busy.borrow().text().starts_with("HTTP/1.1 200 "));
    let newcomer = newcomer.borrow();
    assert!(newcomer.text().is_empty(), "{newcomer:?}");
    let (ended_ns, is_reset) = newcomer.ended.expect("it was refused");
    assert!(is_reset, "{newcomer:?}");
    assert_time(ended_ns, 0);
}
