use super::STYLE;

/// Goal: paper wins over the screens' rules. While its rules came first, printed tables kept their
/// scroll bars and were cut at the edge of the sheet.
#[test]
fn the_rules_for_paper_come_last() {
    let last = STYLE.rfind("@media").map(|start| &STYLE[start..]);
    assert!(last.is_some_and(|rules| rules.starts_with("@media print {")));
}
