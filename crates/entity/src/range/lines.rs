//! A turn of a range read as lines of JSON: encoded as the output has room, a block at a time.

use millpond_http::Response;

use super::{BROKEN, Progress};
use crate::counters::ShardCounters;
use crate::ndjson::{Line, LinePlace, ROOM_BYTES_MIN};
use crate::record::Head;
use crate::scanner::{KEY_LENGTH_BYTES, LENGTH_BYTES, ValuePlace};

/// What is encoded at once: on the stack, and a chunk of the answer.
const BLOCK_BYTES: usize = 8 << 10;

/// What a turn still has to show.
pub(super) struct Lines<'a> {
    pub(super) records: &'a [u8],
    /// Where the last of them has its value.
    pub(super) value: ValuePlace,
    /// The line behind the last record, if this turn is the last.
    pub(super) last: Option<Line<'a>>,
    /// Of the record at hand.
    pub(super) at: &'a mut usize,
    /// Within its line.
    pub(super) place: &'a mut LinePlace,
    /// Counts what is written.
    pub(super) written_bytes: &'a mut u64,
}

impl<'a> Lines<'a> {
    pub(super) fn write(
        &mut self,
        response: &mut Response<'_>,
        counters: &ShardCounters,
    ) -> Progress {
        let mut block = [0; BLOCK_BYTES];
        loop {
            let room_bytes = response.room_bytes().min(BLOCK_BYTES);
            if room_bytes < ROOM_BYTES_MIN {
                return Progress::NeedsRoom;
            }
            let Some((filled_bytes, is_all)) = self.fill(&mut block[..room_bytes], counters) else {
                return BROKEN;
            };
            counters.range_bytes.add(filled_bytes as u64);
            *self.written_bytes += filled_bytes as u64;
            if filled_bytes > 0 && response.write(&block[..filled_bytes]).is_err() {
                return BROKEN;
            }
            match (is_all, self.last) {
                (false, _) => {}
                (true, None) => return Progress::TurnWritten,
                (true, Some(_)) if response.finish().is_err() => return BROKEN,
                (true, Some(_)) => return Progress::Complete,
            }
        }
    }

    /// Encodes what fits; returns how many bytes, and whether it is all of the turn. `None`: a record is none.
    fn fill(&mut self, room: &mut [u8], counters: &ShardCounters) -> Option<(usize, bool)> {
        let mut filled_bytes = 0;
        loop {
            let (line, entry_bytes) = match self.record()? {
                Some(found) => found,
                None => match self.last.filter(|_| !self.place.is_complete()) {
                    Some(last) => (last, 0),
                    None => return Some((filled_bytes, true)),
                },
            };
            filled_bytes += self.place.fill(&line, &mut room[filled_bytes..]);
            if !self.place.is_complete() {
                return Some((filled_bytes, false));
            }
            // The last line stays marked as complete.
            if entry_bytes > 0 {
                let is_record = !matches!(line, Line::Rest { .. });
                counters.range_records.add(u64::from(is_record));
                *self.at += entry_bytes;
                *self.place = LinePlace::default();
            }
        }
    }

    /// The line of the record at hand, and how long it is in the turn.
    fn record(&self) -> Option<Option<(Line<'a>, usize)>> {
        let rest = self.records.get(*self.at..)?;
        if let ValuePlace::Follows { left_bytes } = self.value {
            let line = Line::Rest {
                value: rest,
                is_end: left_bytes == 0,
            };
            return Some((!rest.is_empty()).then_some((line, rest.len())));
        }
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Some(None);
        };
        // Of one whose value is behind it, all that is left of the turn.
        let length_bytes = (u64::from_le_bytes(*length) as usize).min(rest.len());
        let (key_length, rest) = rest
            .get(..length_bytes)?
            .split_first_chunk::<KEY_LENGTH_BYTES>()?;
        let (id, record) = rest.split_at_checked(u16::from_le_bytes(*key_length).into())?;
        let entry_bytes = LENGTH_BYTES + length_bytes;
        let is_last = *self.at + entry_bytes == self.records.len();
        let line = match self.value {
            ValuePlace::Behind if is_last => Line::Begun {
                id,
                head: Head::of(record).ok()?,
            },
            _ => Line::of(id, record).ok()?,
        };
        Some(Some((line, entry_bytes)))
    }
}
