use super::*;

/// Goal: however much there is, the shares are no more than that, and none is too small to work.
#[test]
fn shares_fit_into_the_whole() {
    for memory_bytes in [MEMORY_BYTES_MIN, 20_000_001, MEMORY_BYTES_DEFAULT, 1 << 40] {
        let budget = MemoryBudget::split(memory_bytes);
        assert!(budget.sum_bytes() <= memory_bytes, "{budget:?}");
        assert!(budget.sum_bytes() > memory_bytes / 16 * 15, "{budget:?}");
        assert!(budget.memtable_bytes >= 3 << 20, "{budget:?}");
        assert!(budget.batch_bytes_max >= 256 << 10, "{budget:?}");
    }
}
