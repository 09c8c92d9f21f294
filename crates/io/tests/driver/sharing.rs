//! How those share a shard that are all served.

use crate::harness::{Pond, buffer};
use crate::world::World;
use millpond_io::{Driver, Event, SocketId};
use std::collections::HashMap;
use std::io::{Read, Write};

/// 500 that sent 1.2 KiB each at once found fewer buffers than that. Those without one were served six per tick, the
/// last one first: some waited for 250 ms where the mean was 5 ms. Goal: no socket waits for more than some rounds of
/// all others. That is two rounds, seen here, or 13 where the kernel receives whenever it likes (without deferred task
/// work), so that buffers are used again before a waiting socket's turn.
pub(crate) fn regulars_are_served_in_turn<W: World>(world: &W) {
    const REGULARS: usize = 300;
    const MESSAGE_BYTES: usize = 3_000;
    const SERVED: usize = 40 * REGULARS;
    let (mut pond, address) = Pond::listening(world);
    let mut peers = Vec::new();
    let mut numbers: HashMap<SocketId, usize> = HashMap::new();
    for number in 0..REGULARS {
        peers.push(world.connect(&address).unwrap());
        numbers.insert(pond.accept(), number);
    }
    let message = vec![b'x'; MESSAGE_BYTES];
    let mut received = vec![0; REGULARS];
    // How many had been served when each asked; `None`: it is to ask.
    let mut asked: Vec<Option<usize>> = vec![None; REGULARS];
    let (mut served, mut longest) = (0, 0);
    while served < SERVED {
        for (peer, asked) in peers.iter_mut().zip(&mut asked) {
            if asked.is_none() {
                peer.write_all(&message).unwrap();
                *asked = Some(served);
            }
        }
        pond.seen.clear();
        pond.tick(0, &mut |driver, pools, event| {
            let Event::Received { socket, bytes } = event else {
                return;
            };
            let number = numbers[socket];
            received[number] += bytes.len();
            if received[number] == MESSAGE_BYTES {
                received[number] = 0;
                longest = longest.max(asked[number].map_or(0, |before| served - before));
                served += 1;
                let _ = driver.send(*socket, buffer(pools, b"ok"));
            }
        });
        let mut answer = [0; 2];
        for (peer, asked) in peers.iter_mut().zip(&mut asked) {
            if asked.is_some() && peer.read(&mut answer).is_ok() {
                *asked = None;
            }
        }
    }
    // A socket that was never served has waited longest of all.
    let waiting = asked.iter().flatten().map(|before| served - before);
    longest = longest.max(waiting.max().unwrap_or_default());
    assert!(
        longest <= 16 * REGULARS,
        "one waited while {longest} were served: {:?}",
        pond.driver.counters()
    );
}
