//! The trace's table of mapped regions, read from outside the process that it is in.

use std::mem::offset_of;
use std::ops::Range;
use std::path::Path;

use millpond_preload_shared::region_table::{MAGIC, REGIONS, Region, RegionTable, SYMBOL};

use crate::elf::Elf;
use crate::presence::image::Image;

/// The process runs on: a table that is written just then is read again, so often.
const ATTEMPTS: usize = 20;

/// Who mapped what, in order of address.
#[derive(Debug, Default)]
pub(super) struct Regions {
    list: Vec<Region>,
    /// Changes that the table lacks.
    pub(super) missed: u64,
}

impl Regions {
    /// The table of the process behind `image`; an empty one if `trace` is not there, or is never at rest.
    pub(super) fn read(image: &Image, trace: &Path) -> Self {
        let address = || {
            let mapping = image.mappings.iter().find(|one| one.file == trace)?;
            let elf = Elf::read(trace).ok()??;
            let bias = elf.load_bias(mapping.start, mapping.file_offset)?;
            Some(bias.wrapping_add(elf.address_of(SYMBOL)?))
        };
        let Some(address) = address() else {
            return Self::default();
        };
        let found = (0..ATTEMPTS).find_map(|_| Self::read_once(image, address));
        found.unwrap_or_else(|| Self {
            list: Vec::new(),
            missed: 1,
        })
    }

    /// `None` if it was written meanwhile.
    fn read_once(image: &Image, address: u64) -> Option<Self> {
        let sequence_at = address + offset_of!(RegionTable, sequence) as u64;
        let sequence = image.word(sequence_at).filter(|word| word % 2 == 0)?;
        let head = image.bytes(address, offset_of!(RegionTable, regions))?;
        let count = word_at(&head, offset_of!(RegionTable, count))?;
        let count = usize::try_from(count).ok()?.min(REGIONS);
        let list_at = address + offset_of!(RegionTable, regions) as u64;
        let bytes = image.bytes(list_at, count * size_of::<Region>())?;
        if word_at(&head, 0)? != MAGIC || image.word(sequence_at)? != sequence {
            return None;
        }
        let regions = bytes.chunks_exact(size_of::<Region>()).map(|region| {
            Some(Region {
                start: word_at(region, offset_of!(Region, start))?,
                end: word_at(region, offset_of!(Region, end))?,
                caller: word_at(region, offset_of!(Region, caller))?,
            })
        });
        Some(Self {
            list: regions.collect::<Option<Vec<Region>>>()?,
            missed: word_at(&head, offset_of!(RegionTable, missed))?,
        })
    }

    /// Those that have a part of `range`.
    pub(super) fn within(&self, range: Range<u64>) -> &[Region] {
        let first = self.list.partition_point(|one| one.end <= range.start);
        let last = self.list.partition_point(|one| one.start < range.end);
        self.list.get(first..last).unwrap_or_default()
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + size_of::<u64>())?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}
