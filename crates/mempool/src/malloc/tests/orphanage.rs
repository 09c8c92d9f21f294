use super::*;

/// Goal: several heaps fit a chunk, so a thread costs pages, not chunks.
#[test]
fn heaps_are_small() {
    assert!(
        size_of::<ThreadHeap>() <= 16 * 1024,
        "{}",
        size_of::<ThreadHeap>()
    );
    assert!(CHUNK_BYTES.is_multiple_of(align_of::<ThreadHeap>()));
}
