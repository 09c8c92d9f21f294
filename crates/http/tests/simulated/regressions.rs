//! Seeds that once failed, each with what it found. A change of the clients or of the simulator
//! changes what a seed plays, so the story also has a test of its own that plays nothing else.

use crate::storm;

/// Two connections were idle for too long in one sweep. Cutting the first left the second more
/// time, as it should; but no sweep was planned for when that time ends, so the second stayed open
/// for as long as nobody else came. See `deadlines::who_is_spared_by_a_sweep_is_swept_later`.
#[test]
fn a_spared_idle_connection_is_looked_at_again() {
    storm::play(9);
}
