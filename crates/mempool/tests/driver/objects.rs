//! Operations on pools of objects of several shapes.
use super::input::Input;
use super::ledger::Ledger;
use super::may_fail;
use millpond_mempool::{Pool, PoolError, PoolMode, Pooled, flush_remote_frees};
use std::thread;

/// Object lent by a pool of these: made of a number that can be read back.
trait Object: Send + 'static {
    fn new(number: u64) -> Self;
    fn number(&self) -> Option<u64>;
}

struct Nothing;
struct Small(u64);
struct Odd([u64; 5]);
#[repr(align(256))]
struct OverAligned([u64; 33]);
struct Huge([u64; 5000]);
struct Owner(Box<u64>);

impl Object for Nothing {
    fn new(_number: u64) -> Self {
        Self
    }
    fn number(&self) -> Option<u64> {
        None
    }
}

impl Object for Small {
    fn new(number: u64) -> Self {
        Self(number)
    }
    fn number(&self) -> Option<u64> {
        Some(self.0)
    }
}

impl Object for Odd {
    fn new(number: u64) -> Self {
        Self([number; 5])
    }
    fn number(&self) -> Option<u64> {
        assert_eq!(self.0, [self.0[0]; 5]);
        Some(self.0[0])
    }
}

impl Object for OverAligned {
    fn new(number: u64) -> Self {
        Self([number; 33])
    }
    fn number(&self) -> Option<u64> {
        assert_eq!(self.0, [self.0[0]; 33]);
        Some(self.0[0])
    }
}

impl Object for Huge {
    fn new(number: u64) -> Self {
        Self([number; 5000])
    }
    fn number(&self) -> Option<u64> {
        assert_eq!(self.0, [self.0[0]; 5000]);
        Some(self.0[0])
    }
}

impl Object for Owner {
    fn new(number: u64) -> Self {
        Self(Box::new(number))
    }
    fn number(&self) -> Option<u64> {
        Some(*self.0)
    }
}

pub(super) fn run(input: &mut Input, mode: PoolMode) {
    match input.byte() % 8 {
        0 => run_with::<Nothing>(input, mode),
        1 | 2 => run_with::<Small>(input, mode),
        3 => run_with::<Odd>(input, mode),
        4 => run_with::<OverAligned>(input, mode),
        5 => run_with::<Huge>(input, mode),
        _ => run_with::<Owner>(input, mode),
    }
}

fn check<T: Object>(object: &T, number: u64) {
    assert!(object.number().is_none_or(|found| found == number));
}

struct Model<T> {
    pool: Pool<T>,
    mode: PoolMode,
    limit_bytes: usize,
    lent: Vec<(u64, Pooled<T>)>,
    orphans: Vec<(u64, Pooled<T>)>,
    ledger: Ledger,
    away_count: u64,
    number: u64,
}

fn run_with<T: Object>(input: &mut Input, mode: PoolMode) {
    let limit_bytes = match input.byte() {
        0..=199 => usize::MAX,
        wanted => (usize::from(wanted) - 199) * 32 * 1024,
    };
    let mut model = Model::<T> {
        pool: Pool::with_budget("sequence", mode, limit_bytes),
        mode,
        limit_bytes,
        lent: Vec::new(),
        orphans: Vec::new(),
        ledger: Ledger::default(),
        away_count: 0,
        number: 0,
    };
    while !input.is_empty() {
        model.step(input);
        let stats = model.pool.stats();
        let live_objects = model.lent.len() as u64;
        assert!(stats.identity_holds(), "{stats:?}");
        assert!((live_objects..=live_objects + model.away_count).contains(&stats.live_objects));
    }
    model.finish();
}

impl<T: Object> Model<T> {
    fn step(&mut self, input: &mut Input) {
        match input.byte() % 16 {
            0..=5 => self.insert(),
            6..=8 if !self.lent.is_empty() => {
                let index = input.index(self.lent.len());
                let (number, object) = self.lent.swap_remove(index);
                self.note_back(number, &object);
                drop(object);
            }
            9 if !self.lent.is_empty() => {
                let index = input.index(self.lent.len());
                let (number, object) = self.lent.swap_remove(index);
                self.note_back(number, &object);
                check(&object.into_inner(), number);
            }
            10 if !self.lent.is_empty() => {
                let index = input.index(self.lent.len());
                self.number += 1;
                let (number, object) = &mut self.lent[index];
                *number = self.number;
                **object = T::new(self.number);
            }
            11 if !self.lent.is_empty() => self.free_elsewhere(input),
            12 => {
                self.pool.drain_remote();
                self.away_count = 0;
            }
            13 => {
                self.pool.trim();
                self.away_count = 0;
            }
            14 if input.byte().is_multiple_of(4) => {
                self.orphans.append(&mut self.lent);
                self.pool = Pool::with_budget("next", self.mode, self.limit_bytes);
                self.away_count = 0;
            }
            15 => {
                if let Some((number, object)) = self.orphans.pop() {
                    self.note_back(number, &object);
                }
            }
            _ => {}
        }
    }

    fn insert(&mut self) {
        self.number += 1;
        match self.pool.insert(T::new(self.number)) {
            Ok(object) => {
                let start: *const T = &raw const *object;
                assert!(start.is_aligned());
                self.ledger.lend(start.cast(), size_of::<T>());
                self.lent.push((self.number, object));
            }
            Err(error) => {
                let is_poor = self.limit_bytes < usize::MAX
                    && matches!(error, PoolError::BudgetExhausted { .. });
                assert!(is_poor || may_fail(self.mode), "{error}");
            }
        }
    }

    fn note_back(&mut self, number: u64, object: &Pooled<T>) {
        check(&**object, number);
        let start: *const T = &raw const **object;
        self.ledger.take_back(start.cast(), size_of::<T>());
    }

    fn free_elsewhere(&mut self, input: &mut Input) {
        let count = 1 + input.index(self.lent.len().min(80));
        let leaving = self.lent.split_off(self.lent.len() - count);
        for (number, object) in &leaving {
            self.note_back(*number, object);
        }
        self.away_count += count as u64;
        let work = move || {
            for (number, object) in &leaving {
                check(&**object, *number);
            }
        };
        thread::spawn(work).join().unwrap();
    }

    fn finish(mut self) {
        for (number, object) in std::mem::take(&mut self.lent) {
            self.note_back(number, &object);
        }
        self.pool.drain_remote();
        assert_eq!(self.pool.stats().live_objects, 0);
        self.pool.verify();
        for (number, object) in std::mem::take(&mut self.orphans) {
            self.note_back(number, &object);
        }
        flush_remote_frees();
    }
}
