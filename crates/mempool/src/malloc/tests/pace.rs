use super::*;

/// Goal: a sweep is due after a second, in a huge heap later; and at once when more than half of
/// what was lent is not lent any more.
#[test]
fn due_by_the_clock_and_by_shrinking() {
    let (small, huge) = (16, 512_000);
    let (small_bytes, huge_bytes) = (small * CHUNK_BYTES, huge * CHUNK_BYTES);
    let rows = [
        // chunks, bytes out, of which came back, and were lent again, ms later, due
        (small, small_bytes, 0, 0, 999, false),
        (small, small_bytes, 0, 0, 1000, true),
        (small, small_bytes, SHRUNK_BYTES_MIN, 0, 999, false),
        (small, 4 * small_bytes, 2 * small_bytes, 0, 999, false),
        (small, 4 * small_bytes, 2 * small_bytes + 1, 0, 0, true),
        (small, 4 * small_bytes, 2 * small_bytes + 1, 1, 0, false),
        (huge, huge_bytes, 0, 0, 3999, false),
        (huge, huge_bytes, 0, 0, 4000, true),
        (huge, huge_bytes, huge_bytes / 2, 0, 0, false),
        (huge, huge_bytes, huge_bytes / 2 + 1, 0, 0, true),
    ];
    for row in rows {
        let (chunk_count, out_bytes, spilled_bytes, filled_bytes, later_ms, is_due) = row;
        let mut pace = Pace::new();
        pace.note_filled(2 * out_bytes);
        pace.note_spilled(out_bytes);
        pace.begin(10_000, chunk_count);
        pace.note_spilled(spilled_bytes);
        pace.note_filled(filled_bytes);
        assert_eq!(pace.is_due(10_000 + later_ms), is_due, "{row:?}");
    }
}

/// Goal: a heap is hollow below the share of its chunks that the constant says.
#[test]
fn hollow_by_share() {
    for (lent_percent, is_hollow) in [(LENT_PERCENT_MIN - 1, true), (LENT_PERCENT_MIN + 1, false)] {
        let mut pace = Pace::new();
        pace.begin(0, 100);
        pace.note_filled(lent_percent * CHUNK_BYTES);
        assert_eq!(pace.is_hollow(), is_hollow, "{lent_percent}");
    }
}
