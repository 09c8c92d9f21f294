//! Operations on the pools as malloc.
use super::input::Input;
use super::ledger::{Ledger, check, fill};
use millpond_mempool::malloc;
use std::thread;

struct Lent {
    start: *mut u8,
    /// As many as the holder may use.
    len: usize,
    mark: u8,
}

// SAFETY: the block's memory is its holder's, on whatever thread.
unsafe impl Send for Lent {}

impl Lent {
    fn new(start: *mut u8, mark: u8, size_bytes: usize) -> Self {
        assert!(!start.is_null(), "the system has memory");
        // SAFETY: just lent.
        let len = unsafe { malloc::usable_bytes(start) };
        assert!(len >= size_bytes, "{len} bytes for {size_bytes}");
        // SAFETY: this many bytes are ours.
        unsafe { fill(start, len, mark) };
        Self { start, len, mark }
    }

    fn check(&self, kept_len: usize) {
        // SAFETY: filled by `new`; it is not freed meanwhile.
        unsafe { check(self.start, self.len, kept_len, self.mark) };
    }

    fn free(self) {
        self.check(self.len);
        // SAFETY: lent, and given up here.
        unsafe { malloc::free(self.start) };
    }
}

#[derive(Default)]
struct Model {
    lent: Vec<Lent>,
    ledger: Ledger,
    mark: u8,
}

pub(super) fn run(input: &mut Input) {
    let mut model = Model::default();
    while !input.is_empty() {
        model.step(input);
        let stats = malloc::stats();
        let parts_bytes = stats.live_bytes + stats.cached_bytes + stats.waste_bytes;
        assert_eq!(stats.heap_chunk_bytes, parts_bytes, "{stats:?}");
    }
    for lent in model.lent {
        lent.free();
    }
}

/// Mostly blocks; runs of chunks; now and then a mapping.
fn size_bytes(input: &mut Input) -> usize {
    match input.byte() {
        0..=7 => input.word() * 16,
        8 | 9 => 3_900_000 + input.word() * 16,
        10..=20 => 0,
        _ => input.size_bytes(),
    }
}

impl Model {
    fn step(&mut self, input: &mut Input) {
        match input.byte() % 32 {
            0..=9 => {
                let size_bytes = size_bytes(input);
                self.note_lent(malloc::allocate(size_bytes), size_bytes, 16);
            }
            10 | 11 => self.allocate_zeroed(input),
            12..=14 => {
                let (size_bytes, align_bytes) = (size_bytes(input), 1 << (input.byte() % 24));
                let start = malloc::allocate_aligned(align_bytes, size_bytes);
                self.note_lent(start, size_bytes, align_bytes);
            }
            15..=18 if !self.lent.is_empty() => self.reallocate(input),
            19..=26 if !self.lent.is_empty() => {
                let index = input.index(self.lent.len());
                let lent = self.take_back(index);
                lent.free();
            }
            27 | 28 if !self.lent.is_empty() => {
                let count = 1 + input.index(self.lent.len().min(80));
                let leaving: Vec<Lent> = (0..count).map(|_| self.take_back(0)).collect();
                let work = move || leaving.into_iter().for_each(Lent::free);
                thread::spawn(work).join().unwrap();
            }
            29 | 30 => self.inherit(input),
            31 => {
                malloc::trim();
            }
            _ => {}
        }
    }

    fn note_lent(&mut self, start: *mut u8, size_bytes: usize, align_bytes: usize) {
        self.mark = self.mark.wrapping_add(1);
        let lent = Lent::new(start, self.mark, size_bytes);
        assert!(start.addr().is_multiple_of(align_bytes));
        self.ledger.lend(lent.start, lent.len);
        self.lent.push(lent);
    }

    fn allocate_zeroed(&mut self, input: &mut Input) {
        let size_bytes = size_bytes(input);
        let start = malloc::allocate_zeroed(size_bytes);
        assert!(!start.is_null(), "the system has memory");
        // SAFETY: this many bytes are ours and initialised.
        let bytes = unsafe { std::slice::from_raw_parts(start, size_bytes) };
        assert!(bytes.iter().all(|&byte| byte == 0), "zeroed memory is zero");
        self.note_lent(start, size_bytes, 16);
    }

    /// Bytes within both sizes stay.
    fn reallocate(&mut self, input: &mut Input) {
        let index = input.index(self.lent.len());
        let old = self.take_back(index);
        let size_bytes = size_bytes(input);
        // SAFETY: lent, and only the result is used from here on.
        let start = unsafe { malloc::reallocate(old.start, size_bytes) };
        assert!(!start.is_null(), "the system has memory");
        Lent { start, ..old }.check(old.len.min(size_bytes));
        self.note_lent(start, size_bytes, 16);
    }

    fn take_back(&mut self, index: usize) -> Lent {
        let lent = self.lent.swap_remove(index);
        self.ledger.take_back(lent.start, lent.len);
        lent
    }

    /// Blocks of a thread that ends: its heap is the next thread's.
    fn inherit(&mut self, input: &mut Input) {
        let sizes: Vec<usize> = (0..input.byte() % 40).map(|_| input.size_bytes()).collect();
        let mark = self.mark.wrapping_add(1);
        let work = move || -> Vec<Lent> {
            let lend =
                |size_bytes: usize| Lent::new(malloc::allocate(size_bytes), mark, size_bytes);
            let mut lent: Vec<Lent> = sizes.into_iter().map(lend).collect();
            // Some stay free in the heap it leaves.
            lent.split_off(lent.len() / 2)
                .into_iter()
                .for_each(Lent::free);
            lent
        };
        for lent in thread::spawn(work).join().unwrap() {
            self.ledger.lend(lent.start, lent.len);
            self.lent.push(lent);
        }
        self.mark = mark;
    }
}
