//! An upstream that breaks off in the middle of a response whose client is slow to read.

use crate::proxied::before_one;
use crate::stage::MILLISECOND_NS;
use millpond_io::driver::sim::{Network, PeerRead, SimPeer, Turn};
use millpond_io::{Address, StopHandle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const BODY_BYTES: usize = 500_000;

/// The head of the upstream's response, with what stands before the first byte of its body.
fn answer_start(is_chunked: bool) -> String {
    match is_chunked {
        true => format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{BODY_BYTES:x}\r\n"),
        false => format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n"),
    }
}

/// Sends until no more bytes are taken, then breaks off; returns how many bytes of the body were taken.
fn upstream(network: &Network, address: &Address, is_chunked: bool, taken: &Rc<Cell<Option<u64>>>) {
    assert!(network.listen(address));
    let (address, taken) = (address.clone(), Rc::clone(taken));
    let start = answer_start(is_chunked);
    let start_bytes = start.len() as u64;
    let mut unsent = [start.as_bytes(), &[b'z'; BODY_BYTES]].concat();
    let mut peer: Option<SimPeer> = None;
    let (mut received, mut quiet_turns) = (0, 0);
    network.spawn(move |network| {
        let Some(connection) = &mut peer else {
            peer = network.accept(&address);
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        };
        let mut request = Vec::new();
        let _: PeerRead = connection.read(&mut request, 4_000);
        if received > 0 || !request.is_empty() {
            let count = connection.write(&unsent).unwrap();
            unsent.drain(..count);
        }
        quiet_turns = match connection.received() == received && received > 0 {
            true => quiet_turns + 1,
            false => 0,
        };
        received = connection.received();
        if quiet_turns < 20 {
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        }
        taken.set(Some(received - start_bytes));
        if let Some(connection) = peer.take() {
            connection.reset();
        }
        Turn::Done
    });
}

/// Asks, and reads nothing before the upstream has broken off and the proxy has had time to see it.
fn client(
    network: &Network,
    taken: &Rc<Cell<Option<u64>>>,
    heard: &Rc<RefCell<Vec<u8>>>,
    stop: StopHandle,
) {
    let (taken, heard) = (Rc::clone(taken), Rc::clone(heard));
    let mut peer = network.connect().unwrap();
    peer.set_receive_window(1_000);
    peer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut waits = 50;
    network.spawn(move |network| {
        if taken.get().is_none() || waits > 0 {
            waits -= u32::from(taken.get().is_some());
            return Turn::At(network.now_ns() + MILLISECOND_NS);
        }
        match peer.read(&mut heard.borrow_mut(), 4_000) {
            PeerRead::Bytes(_) | PeerRead::Nothing => Turn::At(network.now_ns() + MILLISECOND_NS),
            PeerRead::Finished | PeerRead::Failed(_) => {
                stop.request_stop();
                Turn::Done
            }
        }
    });
}

/// Goal: all that was received of the response reaches its client, to the last byte, and then the
/// connection ends without the response's end. It once lost what waited for the client.
#[test]
fn what_was_received_arrives_before_the_cut() {
    for is_chunked in [false, true] {
        let (taken, heard) = (Rc::default(), Rc::default());
        before_one(|network, address, stop| {
            upstream(network, address, is_chunked, &taken);
            client(network, &taken, &heard, stop);
        });
        let heard = heard.borrow();
        let letters = heard.iter().filter(|&&byte| byte == b'z').count() as u64;
        let taken: Option<u64> = taken.get();
        assert!(
            taken.is_some_and(|taken| taken > 40_000),
            "{taken:?}: some of it waited"
        );
        assert_eq!(Some(letters), taken, "chunked: {is_chunked}");
        assert!(!heard.ends_with(b"0\r\n\r\n"), "it was cut");
    }
}
