//! An upstream that has much to say before its response, to a client that reads nothing of it.

use crate::proxied::before_one;
use crate::stage::MILLISECOND_NS;
use millpond_io::driver::sim::{Network, PeerRead, SimPeer, Turn};
use millpond_io::{Address, StopHandle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const HINT: &str = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload; as=style\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// Says all there is to be said, as fast as it is taken.
fn upstream(network: &Network, address: &Address, hints: usize, is_said: &Rc<Cell<bool>>) {
    assert!(network.listen(address));
    let (address, is_said) = (address.clone(), Rc::clone(is_said));
    let mut unsent = [HINT.repeat(hints), ANSWER.to_owned()]
        .concat()
        .into_bytes();
    let (mut peer, mut request): (Option<SimPeer>, _) = (None, Vec::new());
    network.spawn(move |network| {
        let Some(connection) = &mut peer else {
            peer = network.accept(&address);
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        };
        let read = connection.read(&mut request, 4_000);
        if !request.is_empty() && !unsent.is_empty() {
            let count = connection.write(&unsent).unwrap();
            unsent.drain(..count);
        }
        is_said.set(unsent.is_empty() && connection.unreceived() == 0);
        match read {
            PeerRead::Finished | PeerRead::Failed(_) => Turn::Done,
            PeerRead::Bytes(_) | PeerRead::Nothing => Turn::At(network.now_ns() + MILLISECOND_NS),
        }
    });
}

/// Asks, and reads nothing before the upstream has said all.
fn client(
    network: &Network,
    is_said: &Rc<Cell<bool>>,
    heard: &Rc<RefCell<Vec<u8>>>,
    stop: StopHandle,
) {
    let (is_said, heard) = (Rc::clone(is_said), Rc::clone(heard));
    let mut peer = network.connect().unwrap();
    peer.set_receive_window(1_000);
    peer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    network.spawn(move |network| {
        if !is_said.get() {
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        }
        let heard = &mut *heard.borrow_mut();
        let read = peer.read(heard, 1 << 20);
        if heard.ends_with(b"\r\n\r\nhello")
            || matches!(read, PeerRead::Finished | PeerRead::Failed(_))
        {
            stop.request_stop();
            return Turn::Done;
        }
        Turn::At(network.now_ns() + MILLISECOND_NS)
    });
}

/// Bytes such a client gets after so many hints.
fn heard(hints: usize) -> String {
    let (is_said, heard) = (Rc::default(), Rc::<RefCell<Vec<u8>>>::default());
    before_one(|network, address, stop| {
        upstream(network, address, hints, &is_said);
        client(network, &is_said, &heard, stop);
    });
    String::from_utf8(heard.take()).unwrap()
}

/// No upstream is paused before its response, and its earlier bytes were kept for its client without limit: megabytes
/// for one that reads nothing. Goal: the bytes such a client gets are whole, the response included; a block of hints is
/// all there for it, and of a flood no more is kept than of a response.
#[test]
fn hints_that_nobody_reads_are_not_kept() {
    for (hints, is_flood) in [(0, false), (1, false), (100, false), (40_000, true)] {
        let heard = heard(hints);
        let mut parts: Vec<&str> = heard.split("\r\n\r\n").collect();
        assert_eq!(parts.pop(), Some("hello"), "{hints}");
        assert!(parts.pop().unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
        let is_hint = |part: &&str| part.starts_with("HTTP/1.1 103 Early Hints\r\nLink: <");
        assert!(parts.iter().all(is_hint), "{hints}");
        match is_flood {
            false => assert_eq!(parts.len(), hints),
            true => assert!(heard.len() < 128 << 10, "{} bytes were kept", heard.len()),
        }
    }
}
