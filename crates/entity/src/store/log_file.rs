//! Records in RocksDB's log format: what its write-ahead logs and its MANIFEST consist of.
//!
//! A file is a sequence of blocks of 32 KiB. A record lies in one piece (FULL) or in several (FIRST, MIDDLE, LAST), none
//! of which crosses a block; each piece has a header of checksum, length and type (RocksDB, `db/log_format.h`). Read here
//! so that a directory can be judged before an engine changes it: the engine stops at the first piece that does not
//! match its checksum, and does not say whether anything whole lies behind.

use std::io::{self, Read};

const BLOCK_BYTES: usize = 32 << 10;
const HEADER_BYTES: usize = 7;
/// Of pieces that may stand in a file that is written over, the number of the log behind the type.
const RECYCLABLE_HEADER_BYTES: usize = 11;

/// What a file holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Scan {
    /// Where the first piece begins that cannot be read, or the record that is not complete at the end.
    pub damaged_at: Option<u64>,
    /// Whole records behind that place.
    pub records_behind: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Piece {
    Full,
    First,
    Middle,
    Last,
    /// None of a record's: a mark of later versions.
    Mark,
}

/// Reads `file` to its end. `visit` gets every whole record, and whether it lies behind damage.
///
/// # Errors
/// If the file cannot be read. Damage is no error.
pub(super) fn scan(mut file: impl Read, visit: &mut dyn FnMut(&[u8], bool)) -> io::Result<Scan> {
    let mut records = Records::default();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut offset = 0;
    loop {
        block.clear();
        let mut of_block = file.by_ref().take(BLOCK_BYTES as u64);
        let count = of_block.read_to_end(&mut block)?;
        if count == 0 {
            break;
        }
        records.read_block(&block, offset, visit);
        offset += count as u64;
    }
    if records.begun_at.is_some() {
        records.damaged(offset);
    }
    Ok(records.scan)
}

/// What was read so far.
#[derive(Debug, Default)]
struct Records {
    scan: Scan,
    /// The record whose last piece has not come yet.
    record: Vec<u8>,
    begun_at: Option<u64>,
}

impl Records {
    /// The pieces of one block, `offset` bytes into the file.
    fn read_block(&mut self, block: &[u8], offset: u64, visit: &mut dyn FnMut(&[u8], bool)) {
        let mut at = 0;
        // What is shorter than a header at the end of a block is padding.
        while block.len() - at >= HEADER_BYTES {
            let place = offset + at as u64;
            let Some((piece, data, next)) = piece_at(block, at) else {
                self.damaged(place);
                // The length may be what is damaged: nothing behind it in this block can be found for sure.
                return;
            };
            match data {
                Some(data) => self.take(piece, data, place, visit),
                None => self.damaged(place),
            }
            at = next;
        }
        if at < block.len() && block.len() < BLOCK_BYTES {
            self.damaged(offset + at as u64);
        }
    }

    fn take(&mut self, piece: Piece, data: &[u8], place: u64, visit: &mut dyn FnMut(&[u8], bool)) {
        match piece {
            Piece::Mark => {}
            Piece::Full | Piece::First => {
                if self.begun_at.is_some() {
                    self.damaged(place);
                }
                self.record.clear();
                self.record.extend_from_slice(data);
                self.begun_at = Some(place);
            }
            Piece::Middle | Piece::Last => {
                // Without a first piece: it was lost, and is counted as damage already, or never written.
                if self.begun_at.is_none() {
                    self.damaged(place);
                    return;
                }
                self.record.extend_from_slice(data);
            }
        }
        if matches!(piece, Piece::Full | Piece::Last) {
            let is_behind = self.scan.damaged_at.is_some();
            self.scan.records_behind += u64::from(is_behind);
            visit(&self.record, is_behind);
            self.begun_at = None;
        }
    }

    /// The first place counts; a record that was begun ends there.
    fn damaged(&mut self, place: u64) {
        let place = self.begun_at.take().unwrap_or(place);
        self.scan.damaged_at.get_or_insert(place);
    }
}

/// The piece that begins at `at`: its kind, its bytes if they match their checksum, and where the next one begins.
/// `None`: no piece can begin so.
fn piece_at(block: &[u8], at: usize) -> Option<(Piece, Option<&[u8]>, usize)> {
    let header = block.get(at..at + HEADER_BYTES)?;
    let checksum = u32::from_le_bytes(header[..4].try_into().ok()?);
    let len = usize::from(u16::from_le_bytes(header[4..6].try_into().ok()?));
    let (piece, header_bytes) = match header[6] {
        1 => (Piece::Full, HEADER_BYTES),
        2 => (Piece::First, HEADER_BYTES),
        3 => (Piece::Middle, HEADER_BYTES),
        4 => (Piece::Last, HEADER_BYTES),
        5 => (Piece::Full, RECYCLABLE_HEADER_BYTES),
        6 => (Piece::First, RECYCLABLE_HEADER_BYTES),
        7 => (Piece::Middle, RECYCLABLE_HEADER_BYTES),
        8 => (Piece::Last, RECYCLABLE_HEADER_BYTES),
        9 | 10 | 128.. => (Piece::Mark, HEADER_BYTES),
        11 => (Piece::Mark, RECYCLABLE_HEADER_BYTES),
        _ => return None,
    };
    let next = at + header_bytes + len;
    let data = block.get(at + header_bytes..next)?;
    // It covers the type and all behind it.
    let is_whole = masked(crc32c::crc32c(block.get(at + 6..next)?)) == checksum;
    Some((piece, is_whole.then_some(data), next))
}

/// As RocksDB stores a checksum (`util/crc32c.h`): a checksum of data that holds checksums would be weak.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A file of these records, as the engine writes them.
    pub(crate) fn written(records: &[Vec<u8>]) -> Vec<u8> {
        let mut file: Vec<u8> = Vec::new();
        for record in records {
            let mut rest = &record[..];
            let mut is_first = true;
            loop {
                let left = BLOCK_BYTES - file.len() % BLOCK_BYTES;
                if left < HEADER_BYTES {
                    file.resize(file.len() + left, 0);
                    continue;
                }
                let len = rest.len().min(left - HEADER_BYTES);
                let is_last = len == rest.len();
                let kind = match (is_first, is_last) {
                    (true, true) => 1,
                    (true, false) => 2,
                    (false, false) => 3,
                    (false, true) => 4,
                };
                let covered = [&[kind], &rest[..len]].concat();
                file.extend_from_slice(&masked(crc32c::crc32c(&covered)).to_le_bytes());
                file.extend_from_slice(&(len as u16).to_le_bytes());
                file.extend_from_slice(&covered);
                rest = &rest[len..];
                is_first = false;
                if is_last {
                    break;
                }
            }
        }
        file
    }

    /// The records in front of any damage, and what the scan says.
    pub(crate) fn read(file: &[u8]) -> (Vec<Vec<u8>>, Scan) {
        let mut records = Vec::new();
        let scan = scan(file, &mut |record, is_behind| {
            if !is_behind {
                records.push(record.to_vec());
            }
        });
        (records, scan.unwrap())
    }

    fn some_records() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let lens = prop_oneof![0..200_usize, 32_000..33_000_usize, 60_000..100_000_usize];
        let record = (lens, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
        prop::collection::vec(record, 1..12)
    }

    proptest! {
        /// Goal: what was written is read.
        #[test]
        fn whole_files_are_whole(records in some_records()) {
            prop_assert_eq!(read(&written(&records)), (records, Scan::default()));
        }

        /// Goal: of a file that ends early all records in front of that are there, and it is damaged unless it ends
        /// behind a record.
        #[test]
        fn cut_files_end_in_damage(records in some_records(), cut in 1..100_000_usize) {
            let file = written(&records);
            let left = file.len().saturating_sub(cut);
            let (found, scan) = read(&file[..left]);
            prop_assert_eq!(&records[..found.len()], &found[..]);
            let whole = written(&found).len();
            prop_assert!(whole <= left);
            // Padding in front of the next record is no damage.
            let padding = BLOCK_BYTES - whole % BLOCK_BYTES;
            let is_padding = left > whole && left - whole <= padding && padding < HEADER_BYTES;
            if !is_padding || left == whole {
                prop_assert_eq!(scan.damaged_at.is_some(), left > whole);
            }
            prop_assert_eq!(scan.records_behind, 0);
        }

        /// Goal: no flipped bit passes, records in front of it are there, and whole ones in later blocks are counted.
        #[test]
        fn flipped_bits_are_found(records in some_records(), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut file = written(&records);
            let at = place.index(file.len());
            file[at] ^= 1 << bit;
            let (found, scan) = read(&file);
            prop_assert!(found.len() <= records.len());
            prop_assert_eq!(&records[..found.len()], &found[..]);
            // Only padding at the end of a block may be flipped without a word.
            if found.len() < records.len() || scan.damaged_at.is_some() {
                prop_assert!(scan.damaged_at.is_some_and(|damaged| damaged <= at as u64));
            }
        }

        /// Goal: any bytes are survived.
        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let _ = read(&bytes);
        }
    }
}
