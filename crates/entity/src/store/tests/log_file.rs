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
pub(crate) fn read(file: &[u8]) -> (Vec<Vec<u8>>, FileScan) {
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
    /// Goal: written records are read back.
    #[test]
    fn whole_files_are_whole(records in some_records()) {
        prop_assert_eq!(read(&written(&records)), (records, FileScan::default()));
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
        // Only padding at the end of a block may be flipped silently.
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
