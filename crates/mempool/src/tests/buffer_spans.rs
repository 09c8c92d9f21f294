use super::*;

fn idle(ids: impl IntoIterator<Item = u16>) -> Vec<Cell<u16>> {
    ids.into_iter().map(Cell::new).collect()
}

/// Goal: spans open from the first on, the last one holds what is left, and no id comes twice.
#[test]
fn spans_share_out_the_ids() {
    let mut spans = BufferSpans::new(2, 10);
    spans.make_tables().unwrap();
    let opened: Vec<Range<u16>> = std::iter::from_fn(|| spans.open()).collect();
    assert_eq!(opened, [0..4, 4..8, 8..10]);
    assert!(spans.all_open() && spans.open_count() == 3);
}

/// Goal: only spans that are idle as a whole leave, half of what is idle and no more, in runs,
/// and what could not be given back stays open.
#[test]
fn whole_idle_spans_leave() {
    let mut spans = BufferSpans::new(1, 12);
    spans.make_tables().unwrap();
    while spans.open().is_some() {}
    // Span 2 is half idle, span 0 not at all: of 9 idle buffers 5 are to leave.
    let all_but = idle([11, 10, 9, 8, 7, 6, 5, 3, 2]);
    let mut asked = Vec::new();
    let closed_count = spans.close_idle(&all_but, |run| {
        asked.push((run.start, run.end));
        true
    });
    assert_eq!((closed_count, asked), (3, vec![(3, 6)]));
    assert!(spans.has_left(6) && spans.has_left(11) && !spans.has_left(3));
    spans.end_sweep();
    assert_eq!(spans.close_idle(&idle([2, 3]), |_| false), 0);
    assert!(!spans.has_left(2));
    spans.end_sweep();
    assert_eq!(spans.open(), Some(6..8));
    assert_eq!(spans.open_count(), 4);
}
