use super::*;

#[test]
fn what_perf_lost() {
    let errors = "Warning:\nProcessed 80742 events and lost 12 chunks!\n\nCheck IO/CPU overload!";
    assert_eq!(lost_chunks(errors), 12);
    assert_eq!(lost_chunks("nothing was lost"), 0);
}
