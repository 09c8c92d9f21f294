//! Operations on a pool of blocks.
use super::input::Input;
use super::ledger::{Ledger, check, fill};
use super::may_fail;
use millpond_mempool::{Block, BlockPool, PoolError, PoolMode, flush_remote_frees};
use std::thread;

struct Lent {
    block: Block,
    asked_bytes: u64,
    mark: u8,
}

impl Lent {
    fn start(&mut self) -> *mut u8 {
        self.block.as_uninit_mut().as_mut_ptr().cast()
    }

    /// Its holder's last check of it.
    fn check(&mut self) {
        let len = self.block.capacity();
        // SAFETY: the block is this long and was filled when it was lent.
        unsafe { check(self.start(), len, len, self.mark) };
    }
}

struct Model {
    pool: BlockPool,
    mode: PoolMode,
    limit_bytes: usize,
    lent: Vec<Lent>,
    /// Blocks of pools that are closed.
    orphans: Vec<Lent>,
    ledger: Ledger,
    /// Freed elsewhere and perhaps not drained yet: how many, and how many bytes.
    away: (u64, u64),
    mark: u8,
}

pub(super) fn run(input: &mut Input, mode: PoolMode) {
    let limit_bytes = match input.byte() {
        0..=199 => usize::MAX,
        wanted => (usize::from(wanted) - 199) * 32 * 1024,
    };
    let mut model = Model {
        pool: BlockPool::with_budget("sequence", mode, limit_bytes),
        mode,
        limit_bytes,
        lent: Vec::new(),
        orphans: Vec::new(),
        ledger: Ledger::default(),
        away: (0, 0),
        mark: 0,
    };
    while !input.is_empty() {
        model.step(input);
        model.check_figures();
    }
    model.finish();
}

impl Model {
    fn step(&mut self, input: &mut Input) {
        match input.byte() % 32 {
            0..=9 => {
                let size_bytes = input.size_bytes();
                let block = self.pool.allocate(size_bytes);
                self.note_lent(block, size_bytes, 16);
            }
            10..=13 => {
                let (size_bytes, align_bytes) = (input.size_bytes(), input.align_bytes());
                let block = self.pool.allocate_aligned(size_bytes, align_bytes);
                self.note_lent(block, size_bytes, align_bytes.max(16));
            }
            14..=21 if !self.lent.is_empty() => {
                let index = input.index(self.lent.len());
                let gone = self.lent.swap_remove(index);
                self.take_back(gone);
            }
            22 | 23 if !self.lent.is_empty() => self.free_elsewhere(input),
            24 | 25 => {
                self.pool.drain_remote();
                self.away = (0, 0);
            }
            26 => {
                self.pool.trim();
                self.away = (0, 0);
            }
            27 => flush_remote_frees(),
            28 => {
                let clone = self.pool.clone();
                self.pool = clone;
            }
            29 if input.byte().is_multiple_of(4) => {
                self.orphans.append(&mut self.lent);
                self.pool = BlockPool::with_budget("next", self.mode, self.limit_bytes);
                self.away = (0, 0);
            }
            30 if !self.orphans.is_empty() => {
                let index = input.index(self.orphans.len());
                let gone = self.orphans.swap_remove(index);
                self.take_back(gone);
            }
            31 => self.pool.verify(),
            _ => {}
        }
    }

    fn note_lent(
        &mut self,
        block: Result<Block, PoolError>,
        size_bytes: usize,
        align_bytes: usize,
    ) {
        let block = match block {
            Ok(block) => block,
            Err(error) => {
                let is_poor = self.limit_bytes < usize::MAX
                    && matches!(error, PoolError::BudgetExhausted { .. });
                assert!(is_poor || may_fail(self.mode), "{error}");
                return;
            }
        };
        assert!(block.capacity() >= size_bytes);
        let asked_bytes = size_bytes.max(16) as u64;
        self.mark = self.mark.wrapping_add(1);
        let mut lent = Lent {
            block,
            asked_bytes,
            mark: self.mark,
        };
        let (start, len) = (lent.start(), lent.block.capacity());
        assert!(start.addr().is_multiple_of(align_bytes));
        self.ledger.lend(start, len);
        // SAFETY: the block is this long and ours.
        unsafe { fill(start, len, self.mark) };
        self.lent.push(lent);
    }

    fn take_back(&mut self, mut gone: Lent) {
        gone.check();
        self.ledger.take_back(gone.start(), gone.block.capacity());
        drop(gone.block);
    }

    /// Drops some blocks on a thread that ends.
    fn free_elsewhere(&mut self, input: &mut Input) {
        let count = 1 + input.index(self.lent.len().min(80));
        let mut leaving = self.lent.split_off(self.lent.len() - count);
        for gone in &mut leaving {
            self.away.0 += 1;
            self.away.1 += gone.asked_bytes;
            self.ledger.take_back(gone.start(), gone.block.capacity());
        }
        let work = move || leaving.iter_mut().for_each(Lent::check);
        thread::spawn(work).join().unwrap();
    }

    fn check_figures(&self) {
        let stats = self.pool.stats();
        let live_objects = self.lent.len() as u64;
        let live_bytes: u64 = self.lent.iter().map(|lent| lent.asked_bytes).sum();
        assert!(stats.identity_holds(), "{stats:?}");
        assert!((live_objects..=live_objects + self.away.0).contains(&stats.live_objects));
        assert!((live_bytes..=live_bytes + self.away.1).contains(&stats.live_bytes));
        let is_checked = matches!(self.mode, PoolMode::Checked(_));
        assert!(is_checked || stats.reserved_bytes <= self.limit_bytes as u64);
    }

    fn finish(mut self) {
        for gone in std::mem::take(&mut self.lent) {
            self.take_back(gone);
        }
        self.pool.drain_remote();
        let stats = self.pool.stats();
        assert_eq!((stats.live_objects, stats.live_bytes), (0, 0));
        self.pool.verify();
        while self.mode == PoolMode::On && self.pool.stats().reserved_bytes > 0 {
            let before_bytes = self.pool.stats().reserved_bytes;
            // Memory used since the last sweep is kept for one more interval.
            self.pool.trim();
            self.pool.trim();
            assert!(
                self.pool.stats().reserved_bytes < before_bytes,
                "idle memory stays"
            );
        }
        for gone in std::mem::take(&mut self.orphans) {
            self.take_back(gone);
        }
        flush_remote_frees();
    }
}
