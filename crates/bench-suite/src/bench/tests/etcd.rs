use super::*;

/// Goal: the rate is found, and a run with errors is none.
#[test]
fn the_rate_of_etcd_is_read() {
    let text = "\nSummary:\n  Total:\t1.0 secs.\n  Requests/sec:\t8123.5000\n";
    assert_eq!(rate(text), Ok(8123.5));
    assert!(rate(&format!("{text}Error distribution:\n  [1] x\n")).is_err());
}
