use super::*;

/// Goal: chunks are aligned, zeroed, usable to the last byte, and never overlap, also when the
/// kernel would have placed them off the boundary.
#[test]
fn chunks_are_aligned_zeroed_and_apart() {
    let nudge = map_pages(4096).unwrap();
    let chunks: Vec<Chunk> = (1..9)
        .map(|count| Chunk::map_long(count * CHUNK_BYTES).unwrap())
        .collect();
    for (mark, chunk) in (1..).zip(&chunks) {
        assert!(chunk.start().addr().get().is_multiple_of(CHUNK_BYTES));
        // SAFETY: the range is the chunk's own and no reference to it exists.
        unsafe {
            let last = chunk.start().add(chunk.size_bytes() - 1);
            assert_eq!((chunk.start().read(), last.read()), (0, 0));
            chunk.start().write_bytes(mark, chunk.size_bytes());
        }
    }
    for (mark, chunk) in (1_u8..).zip(&chunks) {
        // SAFETY: the loop above initialised all of it.
        let last = unsafe { chunk.start().add(chunk.size_bytes() - 1).read() };
        assert_eq!(last, mark);
    }
    unmap_pages(nudge, 4096);
}

/// Goal: discarded pages are gone, their neighbours are not, and the range is usable again; a refusal is reported and
/// changes nothing.
#[test]
fn discarded_pages_are_gone() {
    let chunk = Chunk::map_long(2 * CHUNK_BYTES).unwrap();
    // SAFETY: the chunk is this test's; the second range is no whole pages, which the system
    // refuses.
    unsafe {
        chunk.start().write_bytes(7, 2 * CHUNK_BYTES);
        let second = chunk.start().add(CHUNK_BYTES);
        assert!(discard(second, CHUNK_BYTES));
        assert_eq!((second.sub(1).read(), second.read()), (7, 0));
        second.write(8);
        assert!(cfg!(miri) || !discard(second.add(1), 4096));
        assert_eq!(second.read(), 8);
    }
}

/// Goal: a size the system cannot give is an error, not a crash.
#[test]
fn impossible_size_is_refused() {
    let requested_bytes = 1 << 62;
    assert_eq!(
        Chunk::map_long(requested_bytes).err(),
        Some(PoolError::OutOfMemory { requested_bytes })
    );
}
