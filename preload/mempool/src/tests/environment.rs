use super::*;

/// Goal: the longest line there can be is whole.
#[test]
fn longest_line_fits() {
    let most = usize::MAX;
    let stats = MallocStats {
        heap_count: most,
        abandoned_count: most,
        live_count: most,
        live_bytes: most,
        cached_bytes: most,
        waste_bytes: most,
        chunk_bytes: most,
        heap_chunk_bytes: most,
        dirty_bytes: most,
        reserved_bytes: most,
        mapped_count: most,
        mapped_bytes: most,
    };
    let mut line = [0; 1024];
    let text = describe(&stats, &mut line);
    assert!(text.starts_with(b"mempool: heaps=18446744073709551615 "));
    assert!(text.ends_with(b" mapped_bytes=18446744073709551615\n"));
}
