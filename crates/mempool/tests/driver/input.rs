//! Bytes read as numbers.

/// The rest of an input. Past its end there are zeroes.
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Whether there is another operation.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    pub(super) fn word(&mut self) -> usize {
        usize::from(self.byte()) << 8 | usize::from(self.byte())
    }

    /// A place in something of that length, which is not 0.
    pub(super) fn index(&mut self, len: usize) -> usize {
        self.word() % len
    }

    /// Small ones often; around the border to what is no block; large ones seldom.
    pub(super) fn size_bytes(&mut self) -> usize {
        match self.byte() % 16 {
            0..=5 => usize::from(self.byte()),
            6..=10 => self.word() % 9_000,
            11..=13 => self.word() % 33_000,
            14 => 32_000 + self.word() % 1_500,
            _ => self.word() * 2,
        }
    }

    /// 1 to 64 KiB.
    pub(super) fn align_bytes(&mut self) -> usize {
        1 << (self.byte() % 17)
    }
}
