//! Trailers through the proxy, cut anywhere: on their way to the upstream and on their way back.

use crate::proxied::before_one;
use crate::stage::MILLISECOND_NS;
use millpond_io::driver::sim::{Cuts, Network, PeerRead, SimPeer, Turn};
use millpond_io::{Address, StopHandle};
use std::cell::RefCell;
use std::rc::Rc;

const REQUEST: &str = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                       4\r\nbody\r\n0\r\nX-Sum:7\r\nSet_Cookie: a\r\nX-Last: 8\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nDate: d\r\nTransfer-Encoding: chunked\r\n\r\n\
                      5\r\nhello\r\n0\r\nVia: x\r\nX-Sum: 9\r\n\r\n";

type EventOwner = Rc<RefCell<Vec<u8>>>;

/// Reads until the end of a request with trailers, responds, and waits for the end.
fn upstream(network: &Network, address: &Address, heard: &EventOwner, cuts: &Cuts) {
    assert!(network.listen(address));
    let (address, heard, cuts) = (address.clone(), Rc::clone(heard), cuts.clone());
    let mut peer: Option<SimPeer> = None;
    let mut is_answered = false;
    network.spawn(move |network| {
        let Some(connection) = &mut peer else {
            peer = network.accept(&address);
            if let Some(peer) = &mut peer {
                peer.set_cuts(cuts.clone());
            }
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        };
        let mut heard = heard.borrow_mut();
        match connection.read(&mut heard, 4_000) {
            PeerRead::Bytes(_) | PeerRead::Nothing => {}
            PeerRead::Finished | PeerRead::Failed(_) => return Turn::Done,
        }
        if heard.ends_with(b"8\r\n\r\n") && !is_answered {
            is_answered = true;
            assert_eq!(connection.write(ANSWER.as_bytes()), Ok(ANSWER.len()));
        }
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

fn client(network: &Network, heard: &EventOwner, cuts: Cuts, stop: StopHandle) {
    let heard = Rc::clone(heard);
    let mut peer = network.connect().unwrap();
    peer.set_cuts(cuts);
    assert_eq!(peer.write(REQUEST.as_bytes()), Ok(REQUEST.len()));
    peer.finish();
    network.spawn(
        move |network| match peer.read(&mut heard.borrow_mut(), 4_000) {
            PeerRead::Bytes(_) | PeerRead::Nothing => Turn::At(network.now_ns() + MILLISECOND_NS),
            PeerRead::Finished | PeerRead::Failed(_) => {
                stop.request_stop();
                Turn::Done
            }
        },
    );
}

/// Bytes the upstream and the client got after the heads.
fn play(request_cuts: Cuts, answer_cuts: &Cuts) -> [String; 2] {
    let heard = [EventOwner::default(), EventOwner::default()];
    before_one(|network, address, stop| {
        upstream(network, address, &heard[0], answer_cuts);
        client(network, &heard[1], request_cuts, stop);
    });
    heard.map(|heard| {
        let text = String::from_utf8(heard.take()).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").expect("a head");
        body.to_owned()
    })
}

/// The chunks of a body joined, and what is behind them.
fn joined(mut body: &str) -> (String, &str) {
    let mut data = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return (data, rest);
        }
        data += &rest[..size];
        body = rest[size..].strip_prefix("\r\n").unwrap();
    }
}

/// Goal: wherever a request or its response is cut, byte by byte too, the other side gets the same body,
/// and behind it the same fields, those that may pass.
#[test]
fn a_cut_changes_no_trailer() {
    let check = |request_cuts: Cuts, answer_cuts: &Cuts| {
        let case = format!("{request_cuts:?} {answer_cuts:?}");
        let [request, answer] = play(request_cuts, answer_cuts);
        let expected = ("body".to_owned(), "X-Sum: 7\r\nX-Last: 8\r\n\r\n");
        assert_eq!(joined(&request), expected, "{case}");
        let expected = ("hello".to_owned(), "X-Sum: 9\r\n\r\n");
        assert_eq!(joined(&answer), expected, "{case}");
    };
    for at in 0..REQUEST.len().max(ANSWER.len()) as u64 {
        check(Cuts::At(vec![at]), &Cuts::At(vec![at]));
    }
    check(Cuts::EveryByte, &Cuts::EveryByte);
}
