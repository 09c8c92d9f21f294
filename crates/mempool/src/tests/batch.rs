use super::*;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;

/// Blocks of the given sizes at addresses that are multiples of 8 and no more.
struct Blocks(Vec<(NonNull<u8>, Layout)>);

impl Blocks {
    fn new(sizes: &[usize]) -> Self {
        let blocks = sizes.iter().map(|&size_bytes| {
            let layout = Layout::from_size_align(size_bytes + 8, 16).unwrap();
            // SAFETY: the layout's size is not 0; the block is 8 bytes further in.
            let block = unsafe { NonNull::new(alloc(layout)).unwrap().add(8) };
            (block, layout)
        });
        Self(blocks.collect())
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (block, layout) in &self.0 {
            // SAFETY: made by `new`, 8 bytes before the block.
            unsafe { dealloc(block.sub(8).as_ptr(), *layout) };
        }
    }
}

/// Sends all blocks in batches on one list, as `remote_free` does, and takes the list.
fn sent_and_returned(blocks: &Blocks, sizes: &[usize]) -> (Vec<usize>, ReturnedBlocks) {
    let (mut growing, mut list, mut counts) = (GrowingBatch::new(), ptr::null_mut(), vec![]);
    let mut send = |batch: Batch| {
        batch.put_onto(list);
        list = batch.first();
        counts.push(batch.block_count());
    };
    for (index, (&(block, _), &size_bytes)) in blocks.0.iter().zip(sizes).enumerate() {
        // SAFETY: the blocks are as large and exclusive.
        if unsafe { growing.add(block, size_bytes, index as u16) } {
            send(growing.take().unwrap());
        }
    }
    if let Some(rest) = growing.take() {
        send(rest);
    }
    // SAFETY: all batches are whole and handed over.
    (counts, unsafe { ReturnedBlocks::new(list, 65) })
}

/// Goal: every block comes back once with its tag, for all sizes alone and mixed, whatever the
/// taker does to a block the moment it has it.
#[test]
fn every_block_comes_back_once() {
    let mixed = [16, 24, 4096, 40, 16, 32_768, 520, 8_000, 16, 64];
    let rows: [&[usize]; 8] = [
        &[16],
        &[24],
        &[32],
        &[64],
        &[512],
        &[528],
        &[32_768],
        &mixed,
    ];
    for row in rows {
        let counts: &[usize] = if cfg!(miri) {
            &[1, 3, 65]
        } else {
            &[1, 2, 3, 63, 64, 65, 200]
        };
        for &count in counts {
            let sizes: Vec<usize> = row.iter().copied().cycle().take(count).collect();
            let blocks = Blocks::new(&sizes);
            let (counts, returned) = sent_and_returned(&blocks, &sizes);
            assert_eq!(counts.iter().sum::<usize>(), count);
            let mut seen = BTreeMap::new();
            for (block, tag) in returned {
                let size_bytes = sizes[usize::from(tag)];
                // SAFETY: it is back, so it is ours to write to.
                unsafe { block.write_bytes(0xA5, size_bytes.min(4096)) };
                assert_eq!(seen.insert(tag, block), None, "block {tag} came twice");
            }
            let expected = blocks.0.iter().map(|&(block, _)| block);
            assert!(seen.into_values().eq(expected), "{count} of {row:?}");
        }
    }
}

/// Goal: a batch is full at 64 blocks or 64 KiB, whichever comes first.
#[test]
fn batches_are_bounded() {
    for (size_bytes, expected) in [(16, 64), (1024, 64), (1040, 64), (1600, 41), (32_768, 2)] {
        let sizes = vec![size_bytes; 3 * expected];
        let blocks = Blocks::new(&sizes);
        let (counts, _) = sent_and_returned(&blocks, &sizes);
        assert_eq!(counts, [expected; 3], "{size_bytes} bytes");
    }
}

/// Goal: a batch can be made without a thread's outbox, and an empty one is none.
#[test]
fn smallest_batches() {
    assert!(GrowingBatch::new().take().is_none());
    let blocks = Blocks::new(&[16]);
    // SAFETY: the block is ours.
    let batch = unsafe { Batch::of_one(blocks.0[0].0, u16::MAX) };
    batch.put_onto(ptr::null_mut());
    // SAFETY: handed over whole.
    let mut returned = unsafe { ReturnedBlocks::new(batch.first(), 65) };
    assert_eq!(returned.next(), Some((blocks.0[0].0, u16::MAX)));
    assert_eq!((returned.next(), returned.next()), (None, None));
}
