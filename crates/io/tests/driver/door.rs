//! Which clients are accepted while others send without end.

use crate::harness::{Pond, Seen};
use crate::world::World;
use millpond_io::Driver;
use std::io::Write;

/// Sixteen that sent without end beside a regular had every turn that regulars leave to others, so the
/// listener had none: a hundred newcomers waited for as long as the flood went on. Goal: newcomers are
/// let in, one per turn of the others at least.
pub(crate) fn floods_leave_the_door_open<W: World>(world: &W) {
    const FLOODERS: usize = 16;
    const NEWCOMERS: usize = 8;
    const ROUNDS_MAX: usize = 400;
    let (mut pond, address) = Pond::listening(world);
    let mut peer = world.connect(&address).unwrap();
    let regular = pond.accept();
    let mut flooders: Vec<_> = (0..FLOODERS)
        .map(|_| {
            let flooder = world.connect(&address).unwrap();
            pond.accept();
            flooder
        })
        .collect();
    let flood = vec![b'x'; 64 << 10];
    let (mut newcomers, mut let_in) = (Vec::new(), 0);
    for round in 0.. {
        assert!(
            round < ROUNDS_MAX,
            "{let_in} let in {:?}",
            pond.driver.counters()
        );
        for other in &mut flooders {
            while other.write(&flood).is_ok() {}
        }
        // Not before the regular is known as one.
        if round > 2 && newcomers.len() < NEWCOMERS {
            newcomers.push(world.connect(&address).unwrap());
        }
        pond.answers(&mut peer, regular);
        let is_new = |seen: &&Seen| matches!(seen, Seen::Accepted(_));
        let_in += pond.seen.iter().filter(is_new).count();
        if let_in == NEWCOMERS {
            return;
        }
    }
}
