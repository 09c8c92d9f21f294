//! Sets of status codes.
//!
//! On the path: every answer's status is looked up in one. Absent on purpose: codes from 640 on, which
//! no server should send and no set holds.

/// Status codes a set can hold: 0..640.
const STATUS_CODES: usize = 640;

/// Which status codes are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatusSet {
    words: [u64; STATUS_CODES / 64],
}

impl StatusSet {
    /// Exactly these.
    pub fn of(codes: &[u16]) -> Self {
        let mut set = Self {
            words: [0; STATUS_CODES / 64],
        };
        codes.iter().for_each(|&code| set.insert(code));
        set
    }

    /// All from `first` to `last`.
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::of(&[]);
        (first..=last).for_each(|code| set.insert(code));
        set
    }

    fn insert(&mut self, code: u16) {
        if let Some(word) = self.words.get_mut(usize::from(code) / 64) {
            *word |= 1 << (code % 64);
        }
    }

    /// Whether `code` is right.
    pub fn contains(&self, code: u16) -> bool {
        self.words
            .get(usize::from(code) / 64)
            .is_some_and(|word| word >> (code % 64) & 1 == 1)
    }
}
