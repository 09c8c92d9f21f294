use super::*;
use crate::memory::Malloc;

/// Goal: a tenth of the connections is under way, what was asked for is counted exactly, and all
/// of it is given back.
#[test]
fn what_is_asked_for_is_counted() {
    let plan = Plan {
        iterations: 1,
        seed: 3,
        idle_seconds: 0,
        on_idle: || {},
    };
    let mut server = Server::<Malloc>::new(&plan);
    server.open_all();
    let of_objects = server.asked_bytes;
    assert_eq!(of_objects, 3_200_000);
    server.serve(2_500);
    assert_eq!(server.under_way.len(), UNDER_WAY_COUNT);
    assert_eq!(
        server.is_busy.iter().filter(|&&busy| busy).count(),
        UNDER_WAY_COUNT
    );
    assert!(server.asked_bytes > of_objects + 5_000 * UNDER_WAY_COUNT as u64);
    server.finish_all();
    assert_eq!(server.asked_bytes, of_objects);
    server.close_all();
    assert!(server.connections.iter().all(Option::is_none));
}
