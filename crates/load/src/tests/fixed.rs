use super::*;
use millpond_mempool::PoolMode;

/// Goal: however many are asked for at once, and however long a request is, the bytes are those of
/// so many single requests.
#[test]
fn many_are_as_many_single_ones() {
    let pool = BlockPool::new("test", PoolMode::On);
    for (request_bytes, pipeline) in [(1, 3), (50, 16), (9_000, 8), (40_000, 4)] {
        let wire: Vec<u8> = (0..request_bytes).map(|place| place as u8).collect();
        let request = FixedRequest::new(Method::Get, &wire, pipeline);
        for count in 1..=pipeline {
            let many = request.batch(count, &pool).unwrap();
            let mut single = Buffer::new();
            for _ in 0..count {
                request.append(&pool, &mut single, 1).unwrap();
            }
            assert_eq!(
                many.as_slice(),
                wire.repeat(count),
                "{count} of {request_bytes}"
            );
            assert_eq!(many.as_slice(), single.as_slice());
        }
    }
}
