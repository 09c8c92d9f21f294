use super::*;

#[repr(align(16))]
struct Cell(#[expect(dead_code, reason = "only its bytes are used")] [u8; 64]);

/// Goal: whatever is cut out of the middle, nothing is lost and all keeps its order.
#[test]
fn cutting_out_keeps_the_rest() {
    for (skip_count, count) in (1..7).flat_map(|skip| (0..7).map(move |count| (skip, count))) {
        let mut cells: Vec<Cell> = (0..5).map(|_| Cell([0; 64])).collect();
        let blocks: Vec<NonNull<u8>> = cells
            .iter_mut()
            .map(|cell| NonNull::from(cell).cast())
            .collect();
        let mut list = FreeList::new();
        for block in blocks.iter().rev() {
            // SAFETY: the cells outlive the list and are not accessed elsewhere.
            unsafe { list.push(*block) };
        }
        let mut taken = list.cut_out(skip_count, count);
        let taken: Vec<NonNull<u8>> = std::iter::from_fn(|| taken.pop()).collect();
        let kept: Vec<NonNull<u8>> = std::iter::from_fn(|| list.pop()).collect();
        let from = skip_count.min(5);
        let to = (from + count).min(5);
        assert_eq!(taken, blocks[from..to]);
        assert_eq!(kept, [&blocks[..from], &blocks[to..]].concat());
    }
}

/// Goal: last in, first out, and splitting keeps order and number wherever the cut is.
#[test]
fn newest_first_and_split_keeps_order() {
    for keep_count in 0..7 {
        let mut cells: Vec<Cell> = (0..5).map(|_| Cell([0; 64])).collect();
        let blocks: Vec<NonNull<u8>> = cells
            .iter_mut()
            .map(|cell| NonNull::from(cell).cast())
            .collect();
        let mut list = FreeList::new();
        for block in &blocks {
            // SAFETY: the cells outlive the list and are not accessed elsewhere.
            unsafe { list.push(*block) };
        }
        let mut rest = list.split_off(keep_count);
        assert_eq!(list.count(), keep_count.min(5));
        assert_eq!(rest.count(), 5 - keep_count.min(5));
        assert_eq!(rest.is_empty(), keep_count >= 5);
        let popped: Vec<NonNull<u8>> = std::iter::from_fn(|| list.pop())
            .chain(std::iter::from_fn(|| rest.pop()))
            .collect();
        assert!(popped.iter().eq(blocks.iter().rev()));
    }
}
