use super::*;

/// Goal: first in, first out, around the ring's end, and never more than either bound.
#[test]
fn oldest_leaves_first_and_bounds_hold() {
    let mut quarantine = Quarantine::new();
    quarantine.reserve().unwrap();
    let mut next_out = 0;
    for address in 0..5 * QUARANTINE_BLOCKS_MAX {
        // Late ones are so large that the bytes bind.
        let bytes = if address < 3 * QUARANTINE_BLOCKS_MAX {
            1
        } else {
            QUARANTINE_BYTES_MAX / 10
        };
        quarantine.push(address, bytes);
        while quarantine.is_over() {
            assert_eq!(quarantine.pop(), Some(next_out));
            next_out += 1;
        }
        assert!(
            quarantine.len() <= QUARANTINE_BLOCKS_MAX && quarantine.bytes <= QUARANTINE_BYTES_MAX
        );
        if address == 3 * QUARANTINE_BLOCKS_MAX - 1 {
            assert_eq!(quarantine.len(), QUARANTINE_BLOCKS_MAX);
        }
    }
    assert_eq!(quarantine.len(), 10);
    while quarantine.pop().is_some() {
        next_out += 1;
    }
    assert_eq!((next_out, quarantine.bytes), (5 * QUARANTINE_BLOCKS_MAX, 0));
    quarantine.push(7, QUARANTINE_BYTES_MAX + 1);
    assert!(quarantine.is_over());
}
