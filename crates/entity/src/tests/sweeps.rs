use super::*;

/// Goal: one sweep a second while there is use, and after it until nothing comes back.
#[test]
fn sweeps_follow_use_until_nothing_is_left() {
    let mut sweeps = Sweeps::default();
    let mut now = Instant::now();
    let mut idle_bytes = vec![0, 8, 4, 0];
    let mut swept = Vec::new();
    sweeps.sweep_if_due(now, || panic!("nothing was used"));
    sweeps.note_use(now);
    sweeps.sweep_if_due(now, || panic!("too early"));
    while let Some(due) = sweeps.deadline() {
        assert_eq!(due - now, INTERVAL);
        now = due;
        sweeps.sweep_if_due(now, || {
            swept.push(idle_bytes.remove(0));
            swept[swept.len() - 1]
        });
    }
    assert_eq!(swept, [0, 8, 4, 0]);
    sweeps.note_use(now);
    assert_eq!(sweeps.deadline(), Some(now + INTERVAL));
}
