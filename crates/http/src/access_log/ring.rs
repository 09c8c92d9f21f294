//! A bounded queue of records between one shard and the writer: one puts in, one takes out.
//!
//! `shard_log` pushes a record as a header and up to six texts; `writer` pops it. Positions only grow and never wrap:
//! `head - tail` is the number of words in between.
//!
//! A record that finds no room is refused, and a pop finds nothing; waking the other side is left to the callers. Locks
//! and `unsafe` are absent too: the memory is atomic words, which cost a shard no more than plain ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_BYTES: usize = 8;

/// Texts of a record.
pub(super) const TEXTS: usize = 6;

/// Lengths of texts in one word.
const LENGTHS_PER_WORD: usize = 4;

/// Words with the lengths of the texts.
pub(super) const LENGTH_WORDS: usize = TEXTS.div_ceil(LENGTHS_PER_WORD);

/// Words in front of each record's texts.
pub(super) const HEADER_WORDS: usize = 8 + LENGTH_WORDS;

/// A record's header. The last words are the ring's: the lengths of the texts.
pub(super) type Header = [u64; HEADER_WORDS];

/// One position alone in its cache line: two threads write the two of them all the time.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Position(AtomicU64);

/// Invariant: `tail <= head <= tail + words.len()`; words from `tail` to `head` belong to the
/// reader, the others to the writer. Publishing a position hands the words before it over.
#[derive(Debug)]
struct Ring {
    words: Box<[AtomicU64]>,
    mask: u64,
    head: Position,
    tail: Position,
}

/// A ring for at least `capacity_bytes`, rounded up to a power of two.
pub(super) fn ring(capacity_bytes: usize) -> (RingWriter, RingReader) {
    let word_count = capacity_bytes
        .div_ceil(WORD_BYTES)
        .next_power_of_two()
        .max(1024);
    let ring = Arc::new(Ring {
        words: (0..word_count).map(|_| AtomicU64::new(0)).collect(),
        mask: word_count as u64 - 1,
        head: Position::default(),
        tail: Position::default(),
    });
    let writer = RingWriter {
        ring: Arc::clone(&ring),
        head: 0,
        tail_seen: 0,
    };
    (writer, RingReader { ring, tail: 0 })
}

impl Ring {
    #[inline]
    fn word(&self, position: u64) -> &AtomicU64 {
        &self.words[(position & self.mask) as usize]
    }
}

/// The shard's end.
#[derive(Debug)]
pub(super) struct RingWriter {
    ring: Arc<Ring>,
    head: u64,
    /// Last position read from the reader: reading its current position costs a cache miss.
    tail_seen: u64,
}

impl RingWriter {
    /// Puts a record in; false when it does not fit, which leaves the ring as it was. Each text is
    /// at most 64 KiB long.
    pub(super) fn push(&mut self, header: &Header, texts: [&[u8]; TEXTS]) -> bool {
        let text_words: usize = texts.iter().map(|t| t.len().div_ceil(WORD_BYTES)).sum();
        let word_count = (HEADER_WORDS + text_words) as u64;
        let capacity = self.ring.mask + 1;
        if self.head + word_count > self.tail_seen + capacity {
            self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
            if self.head + word_count > self.tail_seen + capacity {
                return false;
            }
        }
        let mut at = self.head;
        let mut put = |word: u64| {
            self.ring.word(at).store(word, Ordering::Relaxed);
            at += 1;
        };
        header[..HEADER_WORDS - LENGTH_WORDS]
            .iter()
            .for_each(|&word| put(word));
        for texts in texts.chunks(LENGTHS_PER_WORD) {
            let lengths = texts.iter().rev();
            put(lengths.fold(0, |lengths, text| lengths << 16 | text.len() as u64));
        }
        for text in texts {
            let (words, rest) = text.as_chunks::<WORD_BYTES>();
            words.iter().for_each(|&word| put(u64::from_le_bytes(word)));
            if !rest.is_empty() {
                let mut word = [0; WORD_BYTES];
                word[..rest.len()].copy_from_slice(rest);
                put(u64::from_le_bytes(word));
            }
        }
        self.head = at;
        self.ring.head.0.store(at, Ordering::Release);
        true
    }

    /// Whether more than half of the room is used.
    pub(super) fn is_crowded(&mut self) -> bool {
        let half = self.ring.words.len() as u64 / 2;
        if self.head - self.tail_seen <= half {
            return false;
        }
        self.tail_seen = self.ring.tail.0.load(Ordering::Acquire);
        self.head - self.tail_seen > half
    }
}

/// The writer thread's end.
#[derive(Debug)]
pub(super) struct RingReader {
    ring: Arc<Ring>,
    tail: u64,
}

/// A record taken out; its memory is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) header: Header,
    bytes: Vec<u8>,
    ends: [usize; TEXTS],
}

impl Record {
    pub(super) fn text(&self, index: usize) -> &[u8] {
        let start = match index {
            0 => 0,
            _ => self.ends[index - 1].next_multiple_of(WORD_BYTES),
        };
        &self.bytes[start..self.ends[index]]
    }
}

impl RingReader {
    /// Takes the oldest record out; false when there is none.
    pub(super) fn pop(&mut self, record: &mut Record) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut at = self.tail;
        let mut take = || {
            let word = self.ring.word(at).load(Ordering::Relaxed);
            at += 1;
            word
        };
        record.header.iter_mut().for_each(|word| *word = take());
        record.bytes.clear();
        for (index, end) in record.ends.iter_mut().enumerate() {
            let lengths = record.header[HEADER_WORDS - LENGTH_WORDS + index / LENGTHS_PER_WORD];
            let length = (lengths >> (16 * (index % LENGTHS_PER_WORD))) as usize & 0xFFFF;
            *end = record.bytes.len() + length;
            for _ in 0..length.div_ceil(WORD_BYTES) {
                record.bytes.extend_from_slice(&take().to_le_bytes());
            }
        }
        self.tail = at;
        self.ring.tail.0.store(at, Ordering::Release);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ring.head.0.load(Ordering::Acquire) == self.tail
    }
}

#[cfg(test)]
#[path = "tests/ring.rs"]
mod tests;
