//! The heap of the C library of GNU by its own accounts, read in the memory of a running process.
//!
//! Its arenas are plain structures (`struct malloc_state`, `struct _heap_info` of malloc/arena.c), but no symbol says
//! where. They are found by their unique pattern: 127 bins, of which every empty one points to itself, and around them
//! a ring of arenas. The distances within have been the same from version 2.26 to 2.43; the one that changed (from an
//! arena's beginning to its bins) is taken from the ring. The process is not stopped, so each figure is checked against
//! another one: the bytes of an arena against the sum of its heaps, its last chunk against the end of its heap, the
//! ring against the heaps that are mapped. What does not fit is read again, and in the end reported as a reason, never
//! as a number.
//!
//! Free blocks inside the heap are not counted: their lists change while they are followed.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use millpond_measure::process::Mapping;
use serde::Serialize;

/// `HEAP_MAX_SIZE`: where heaps of threads begin, and how long they can be.
const HEAP_BYTES_MAX: u64 = 64 << 20;
/// `struct _heap_info`, without and with the page size that version 2.35 added: the arena follows in its first heap.
const HEAP_INFO_BYTES: [u64; 2] = [32, 48];
const WORD_BYTES: u64 = 8;
/// `NBINS - 1`: pairs of pointers, forward and back.
const BIN_COUNT: usize = 127;
/// Chunks of large sizes are rare: that many bins are empty in any heap.
const EMPTY_BINS_MIN: usize = 8;
/// From the beginning of an arena to its bins: 104 in version 2.26, 112 later, less without fast bins.
const BINS_AT_BYTES_MAX: u64 = 160;
/// Behind the bins: the map of bins is two words.
const NEXT_AT: usize = BIN_COUNT * 2 + 2;
const ATTACHED_AT: usize = NEXT_AT + 2;
const SYSTEM_AT: usize = NEXT_AT + 3;
const SYSTEM_MAX_AT: usize = NEXT_AT + 4;
const STATE_WORDS: usize = SYSTEM_MAX_AT + 1;
/// More threads than a process has.
const ATTACHED_MAX: u64 = 1 << 22;
/// Flags in the size of a chunk.
const CHUNK_FLAGS: u64 = 7;
const CHUNK_ALIGN_BYTES: u64 = 16;
/// Longer data of a program is not searched.
const DATA_BYTES_MAX: u64 = 64 << 20;
/// `DEFAULT_MMAP_MAX`, by which the parameters are recognised.
const MAPPED_COUNT_MAX: u64 = 65_536;
const LOOKS_MAX: u32 = 8;
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The memory that the C library's malloc has from the system.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct GlibcHeap {
    /// The main one first.
    pub arenas: Vec<Arena>,
    /// Blocks that have a mapping of their own; `None` where they could not be found.
    pub mapped: Option<MappedBlocks>,
    /// Settings as they are in force; `None` where they could not be found, or the version is not known.
    pub parameters: Option<Parameters>,
}

/// A heap that threads share.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Arena {
    /// From the system, handed out or not.
    pub system_bytes: u64,
    /// The most that ever was.
    pub system_bytes_max: u64,
    /// Of `system_bytes`: free in one piece at the end.
    pub free_at_end_bytes: u64,
}

/// Blocks above the threshold, mapped one by one.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct MappedBlocks {
    /// How many there are.
    pub count: u64,
    /// Their mappings together.
    pub bytes: u64,
}

/// Settings of malloc.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Parameters {
    /// Larger blocks are mapped one by one.
    pub mmap_threshold: u64,
    /// More than so much free at the end of the main heap goes back to the system.
    pub trim_threshold: u64,
    /// Both move with what is freed.
    pub thresholds_move: bool,
    /// How many arenas there may be; 0: eight for each CPU.
    pub arena_max: u64,
}

impl GlibcHeap {
    /// From the system, mapped blocks included.
    #[must_use]
    pub fn system_bytes(&self) -> u64 {
        let arenas: u64 = self.arenas.iter().map(|arena| arena.system_bytes).sum();
        arenas + self.mapped.map_or(0, |mapped| mapped.bytes)
    }

    /// Free in one piece at the end of each arena.
    #[must_use]
    pub fn free_at_end_bytes(&self) -> u64 {
        self.arenas
            .iter()
            .map(|arena| arena.free_at_end_bytes)
            .sum()
    }
}

/// The heap, from the C library's data in `file`: the library's, or that of a program with the library in it.
/// `mappings` are read again for every attempt. The error is a reason.
pub(super) fn read(
    file: &str,
    version: Option<(u32, u32)>,
    mappings: impl Fn() -> Result<Vec<Mapping>, String>,
    bytes: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Result<GlibcHeap, String> {
    let mut looks = 1;
    loop {
        let view = View {
            mappings: merged(mappings()?),
            bytes: &bytes,
        };
        match view.heap(file, version) {
            Err(_) if looks < LOOKS_MAX => thread::sleep(LOOK_INTERVAL),
            found => return found.map_err(str::to_owned),
        }
        looks += 1;
    }
}

/// Neighbours of one kind as one: advice to the kernel (huge pages, say) cuts a heap into several.
fn merged(mappings: Vec<Mapping>) -> Vec<Mapping> {
    let mut merged: Vec<Mapping> = Vec::with_capacity(mappings.len());
    for one in mappings {
        match merged.last_mut() {
            Some(last)
                if last.end == one.start
                    && !one.has_file()
                    && last.name == one.name
                    && last.is_writable == one.is_writable
                    && last.is_shared == one.is_shared =>
            {
                last.end = one.end;
            }
            _ => merged.push(one),
        }
    }
    merged
}

/// One attempt.
struct View<'a> {
    mappings: Vec<Mapping>,
    bytes: &'a dyn Fn(u64, usize) -> Option<Vec<u8>>,
}

/// A stretch of memory that one arena grows in.
#[derive(Clone, Copy, Debug)]
struct Heap {
    start: u64,
    arena: u64,
    bytes: u64,
}

/// The data around the bins.
#[derive(Clone, Copy, Debug)]
struct ArenaState {
    bins: u64,
    next: u64,
    arena: Arena,
    /// The end of the last chunk; `None` before the first.
    end: Option<u64>,
}

impl View<'_> {
    fn heap(&self, file: &str, version: Option<(u32, u32)>) -> Result<GlibcHeap, &'static str> {
        let heaps = self.heaps();
        let mut states: BTreeMap<u64, ArenaState> = BTreeMap::new();
        for heap in heaps.iter().filter(|heap| heap.is_first()) {
            let state = self
                .state_of(heap.arena)
                .ok_or("an arena has a layout that is not known")?;
            states.insert(heap.arena, state);
        }
        let data = self.data(file);
        let (main, state) = self.main(&data, &states)?;
        let heap_end = self.heap_end(main, &state)?;
        Self::check_ring(main, &state, &states)?;
        check_sums(&heaps, &states)?;
        let parameters = self.parameters(&data, heap_end, version);
        let mut arenas = vec![state.arena];
        arenas.extend(states.values().map(|state| state.arena));
        Ok(GlibcHeap {
            arenas,
            mapped: parameters.map(|(mapped, _)| mapped),
            parameters: parameters.and_then(|(_, parameters)| parameters),
        })
    }

    fn words(&self, at: u64, count: usize) -> Option<Vec<u64>> {
        let bytes = (self.bytes)(at, count * 8)?;
        let words = bytes.chunks_exact(8);
        words
            .map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
            .collect()
    }

    /// The mapping of private, writable memory that an address is in.
    fn writable(&self, address: u64) -> Option<&Mapping> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.get(after)?;
        let is_it = mapping.start <= address && mapping.is_writable && !mapping.is_shared;
        is_it.then_some(mapping)
    }

    /// Whatever begins at a multiple of a heap's size and describes itself as one.
    fn heaps(&self) -> Vec<Heap> {
        let nameless = self.mappings.iter().filter(|one| {
            let is_plain = one.is_nameless() && !one.is_shared;
            is_plain && one.is_writable
        });
        nameless
            .flat_map(|mapping| {
                let first = mapping.start.next_multiple_of(HEAP_BYTES_MAX);
                let starts = (first..mapping.end).step_by(HEAP_BYTES_MAX as usize);
                starts.filter_map(|start| self.heap_at(start, mapping.end))
            })
            .collect()
    }

    fn heap_at(&self, start: u64, mapping_end: u64) -> Option<Heap> {
        let &[arena, previous, bytes, accessible_bytes] = &self.words(start, 4)?[..] else {
            return None;
        };
        let page_bytes = rustix::param::page_size() as u64;
        let is_size = |bytes: u64| bytes > 0 && bytes.is_multiple_of(page_bytes);
        let fits = bytes <= accessible_bytes
            && accessible_bytes <= HEAP_BYTES_MAX
            && start + accessible_bytes <= mapping_end;
        let is_heap = is_size(bytes) && is_size(accessible_bytes) && fits;
        let heap = Heap {
            start,
            arena,
            bytes,
        };
        let is_linked = previous.is_multiple_of(HEAP_BYTES_MAX)
            && (previous == 0) == heap.is_first()
            && arena.is_multiple_of(WORD_BYTES);
        (is_heap && is_linked).then_some(heap)
    }

    /// The arena at an address, by its bins, wherever they begin in it.
    fn state_of(&self, arena: u64) -> Option<ArenaState> {
        let words_in_front = (BINS_AT_BYTES_MAX / WORD_BYTES) as usize;
        let words = self.words(arena, words_in_front + STATE_WORDS)?;
        let mut found =
            (2..=words_in_front).filter_map(|at| self.state_at(&words, at, arena + at as u64 * 8));
        let state = found.next()?;
        found.next().is_none().then_some(state)
    }

    /// The state whose bins begin at `words[at]`, which is at the address `bins` of the process.
    fn state_at(&self, words: &[u64], at: usize, bins: u64) -> Option<ArenaState> {
        let state = words.get(at..at + STATE_WORDS)?;
        let mut empty = 0;
        for (pair, own) in state[..BIN_COUNT * 2].chunks_exact(2).zip(0_u64..) {
            // A bin is a chunk of which only the pointers are there.
            let own = bins + own * 16 - 16;
            match pair {
                [forward, back] if *forward == own && *back == own => empty += 1,
                // One that is filled just now is half of each.
                [forward, back] if *forward == own || *back == own => return None,
                [forward, back] if self.is_chunk(*forward) && self.is_chunk(*back) => {}
                _ => return None,
            }
        }
        let attached = state[ATTACHED_AT];
        let (system_bytes, system_bytes_max) = (state[SYSTEM_AT], state[SYSTEM_MAX_AT]);
        let next = state[NEXT_AT];
        let is_sound = empty >= EMPTY_BINS_MIN
            && attached <= ATTACHED_MAX
            && system_bytes <= system_bytes_max
            && next != 0
            && next.is_multiple_of(WORD_BYTES);
        if !is_sound {
            return None;
        }
        let (free_at_end_bytes, end) = self.last_chunk(*words.get(at - 2)?, bins)?;
        let arena = Arena {
            system_bytes,
            system_bytes_max,
            free_at_end_bytes,
        };
        (free_at_end_bytes <= system_bytes).then_some(ArenaState {
            bins,
            next,
            arena,
            end,
        })
    }

    fn is_chunk(&self, address: u64) -> bool {
        let mapping = self.writable(address);
        let is_heap = mapping.is_some_and(|mapping| !mapping.has_file());
        address.is_multiple_of(CHUNK_ALIGN_BYTES) && is_heap
    }

    /// The bytes of the chunk at the end, and where it ends.
    fn last_chunk(&self, top: u64, bins: u64) -> Option<(u64, Option<u64>)> {
        // Before the first block it is a bin.
        if top == bins - 16 {
            return Some((0, None));
        }
        if !self.is_chunk(top) {
            return None;
        }
        let bytes = self.words(top + WORD_BYTES, 1)?.first()? & !CHUNK_FLAGS;
        let end = top.checked_add(bytes)?;
        let fits = bytes >= CHUNK_ALIGN_BYTES && end <= self.writable(top)?.end;
        fits.then_some((bytes, Some(end)))
    }

    /// The writable data of a file, as words with their address.
    fn data(&self, file: &str) -> Vec<(u64, Vec<u64>)> {
        let of_file = self.mappings.iter().filter(|one| {
            let is_data = one.is_writable && !one.is_shared;
            is_data && one.name == file && one.end - one.start <= DATA_BYTES_MAX
        });
        of_file
            .filter_map(|one| {
                let count = usize::try_from((one.end - one.start) / WORD_BYTES).ok()?;
                Some((one.start, self.words(one.start, count)?))
            })
            .collect()
    }

    /// The arena in the C library's data: its address, and what it has.
    fn main(
        &self,
        data: &[(u64, Vec<u64>)],
        others: &BTreeMap<u64, ArenaState>,
    ) -> Result<(u64, ArenaState), &'static str> {
        let mut distances = others.iter().map(|(arena, state)| state.bins - arena);
        let distance = distances.next();
        if distances.any(|other| Some(other) != distance) {
            return Err("its arenas have different layouts");
        }
        let mut found = Vec::new();
        for (start, words) in data {
            for at in 2..words.len().saturating_sub(STATE_WORDS) {
                let bins = start + at as u64 * WORD_BYTES;
                let Some(state) = self.state_at(words, at, bins) else {
                    continue;
                };
                // With no other arena the ring is this one alone.
                let main = distance.map_or(state.next, |distance| bins - distance);
                let is_close = main < bins && bins - main <= BINS_AT_BYTES_MAX;
                if is_close && (state.next == main || others.contains_key(&state.next)) {
                    found.push((main, state));
                }
            }
        }
        match found[..] {
            [one] => Ok(one),
            [] => Err(
                "its main arena was not found: it is not in use, or of a version that is not known",
            ),
            _ => Err("its main arena could not be distinguished from other data"),
        }
    }

    /// The end of the heap segment, after the main arena was checked against the mappings.
    fn heap_end(&self, main: u64, state: &ArenaState) -> Result<Option<u64>, &'static str> {
        let segment = self.mappings.iter().rfind(|one| one.name == "[heap]");
        let anonymous = self.mappings.iter().filter(|one| {
            let has_no_file = one.is_nameless() || one.name == "[heap]";
            has_no_file && one.is_writable && !one.is_shared
        });
        let mapped: u64 = anonymous.map(|one| one.end - one.start).sum();
        if state.arena.system_bytes > mapped {
            return Err("its main arena claims more than is mapped");
        }
        let is_used = state.end.is_some();
        if is_used != (state.arena.system_bytes > 0) || main == 0 {
            return Err("its main arena does not fit its heap");
        }
        Ok(segment.map(|segment| segment.end))
    }

    fn check_ring(
        main: u64,
        state: &ArenaState,
        others: &BTreeMap<u64, ArenaState>,
    ) -> Result<(), &'static str> {
        let mut at = state.next;
        for passed in 0..=others.len() {
            if at == main {
                return match passed == others.len() {
                    true => Ok(()),
                    false => Err("there are more arenas in memory than in its list"),
                };
            }
            at = others
                .get(&at)
                .ok_or("there are fewer arenas in memory than in its list")?
                .next;
        }
        Err("its list of arenas does not end")
    }

    /// `struct malloc_par`, found by the beginning of the heap that it has and by its limits.
    fn parameters(
        &self,
        data: &[(u64, Vec<u64>)],
        heap_end: Option<u64>,
        version: Option<(u32, u32)>,
    ) -> Option<(MappedBlocks, Option<Parameters>)> {
        let segment = self.mappings.iter().find(|one| one.name == "[heap]")?;
        let range = segment.start..heap_end?;
        let nameless = self.mappings.iter().filter(|one| one.is_nameless());
        let mapped_max = nameless.map(|one| one.end - one.start).sum();
        let mut found = data.iter().flat_map(|(_, words)| {
            let places = words
                .iter()
                .enumerate()
                .filter(|(_, word)| range.contains(word));
            places.filter_map(|(at, _)| {
                let mapped = mapped_blocks(words, at, mapped_max)?;
                Some((
                    mapped,
                    version.and_then(|version| settings(words, at, version)),
                ))
            })
        });
        let one = found.next()?;
        found.next().is_none().then_some(one)
    }
}

impl Heap {
    /// The arena itself lies in its first heap.
    fn is_first(&self) -> bool {
        HEAP_INFO_BYTES.contains(&self.arena.wrapping_sub(self.start))
    }
}

/// Each arena has as much from the system as its heaps are long, and ends where the last of them does.
fn check_sums(heaps: &[Heap], states: &BTreeMap<u64, ArenaState>) -> Result<(), &'static str> {
    for (arena, state) in states {
        let own = || heaps.iter().filter(|heap| heap.arena == *arena);
        let bytes: u64 = own().map(|heap| heap.bytes).sum();
        let ends_there = |heap: &Heap| Some(heap.start + heap.bytes) == state.end;
        if bytes != state.arena.system_bytes || !own().any(ends_there) {
            return Err(
                "an arena does not fit its heaps: the process allocates too fast to be read",
            );
        }
    }
    Ok(())
}

/// The lower and the upper half of a word, which are numbers of their own.
const fn halves(word: u64) -> (u64, u64) {
    (word & 0xffff_ffff, word >> 32)
}

/// Mapped blocks, if the word at `at` is the beginning of the heap in the parameters.
fn mapped_blocks(words: &[u64], at: usize, mapped_max: u64) -> Option<MappedBlocks> {
    let &[before, limits, rest, bytes, bytes_max] = words.get(at.checked_sub(5)?..at)? else {
        return None;
    };
    // Until version 2.34 the four numbers begin a word; later one stands in front of them.
    let (count, count_max) = match (halves(before), halves(limits), halves(rest)) {
        (_, (count, MAPPED_COUNT_MAX), (count_max, _)) => (count, count_max),
        ((_, count), (MAPPED_COUNT_MAX, count_max), _) => (count, count_max),
        _ => return None,
    };
    let page_bytes = rustix::param::page_size() as u64;
    let is_sound = count <= count_max
        && bytes <= bytes_max
        && bytes <= mapped_max
        && bytes.is_multiple_of(page_bytes)
        && count.checked_mul(page_bytes)? <= bytes
        && (count == 0) == (bytes == 0);
    is_sound.then_some(MappedBlocks { count, bytes })
}

/// The settings in front, which versions have added to.
fn settings(words: &[u64], at: usize, version: (u32, u32)) -> Option<Parameters> {
    let words_in_front = match version {
        (2, 26..=34) => 9,
        (2, 35..=41) => 12,
        (2, 43) => 13,
        _ => return None,
    };
    let &[trim_threshold, _, mmap_threshold, _, arena_max] =
        words.get(at.checked_sub(words_in_front)?..)?.get(..5)?
    else {
        return None;
    };
    let (first, second) = halves(*words.get(at.checked_sub(3)?)?);
    let is_fixed = if version < (2, 35) { second } else { first };
    (is_fixed <= 1).then_some(Parameters {
        mmap_threshold,
        trim_threshold,
        thresholds_move: is_fixed == 0,
        arena_max,
    })
}

#[cfg(test)]
#[path = "tests/arenas.rs"]
mod tests;
