use super::*;

#[test]
fn totals_are_read() {
    let text = "events: Ir\nfn=(1) main\n0 7\n\ntotals: 4215\n";
    assert_eq!(total(text), Ok(4215.0));
    assert!(total("events: Ir\n").is_err());
}
