//! The holders of a target's private memory: malloc, a runtime's heap, an allocator inside the program, or others.
//!
//! Read in the heap pass, while the trace stands in front of malloc. The trace notes which code calls `mmap`
//! (`Regions`), and samples the blocks that live: what code of an allocator mapped, or what lies in the heap segment, in
//! an arena of the C library or around a living block, is malloc's. Everything else is named by the object that mapped
//! it.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::ops::Range;
use std::path::{Path, PathBuf};

use millpond_measure::process;
use millpond_measure::process::{Mapping, PagesInUse};
use millpond_measure::record::{Held, Holder, Reach};
use millpond_preload_shared::region_table::{MAGIC, REGIONS, Region, RegionTable, SYMBOL};

use crate::allocator::{family_by_symbol, name_of_library};
use crate::elf::Elf;
use crate::presence::Image;
use crate::trace::{HeapReading, Trace};

/// An arena of the C library begins at a multiple of this (`HEAP_MAX_SIZE` of glibc's malloc/arena.c).
const ARENA_BYTES: u64 = 64 << 20;
/// In front of the stack of a thread nothing may be touched, for so many bytes at most.
const GUARD_BYTES_MAX: u64 = 64 << 10;
/// Without a living block in it, nameless memory of this size is not malloc's.
const BLOCKLESS_BYTES: u64 = 1 << 20;

/// Adds what holds the memory of `pids` to `reach`; nothing if none of them could be read.
pub fn add_holders(reach: &mut Reach, pids: &[u32], heap: &HeapReading, trace: &Trace) {
    let mut objects = Objects::default();
    let blocks = heap.block_addresses();
    let mut sums: BTreeMap<Holder, u64> = BTreeMap::new();
    for &pid in pids {
        // One that ends meanwhile holds nothing any more.
        let Some(one) = Process::read(pid, &blocks, trace) else {
            continue;
        };
        reach.unnoted += one.regions.missed;
        for (index, mapping) in one.mappings.iter().enumerate() {
            if one.is_ours(mapping) {
                continue;
            }
            if !mapping.is_shared {
                reach.file_bytes += mapping.file_bytes();
            }
            for (holder, bytes) in one.holders(index, &mut objects) {
                *sums.entry(holder).or_default() += bytes;
            }
        }
    }
    let mut held: Vec<Held> = sums
        .into_iter()
        .filter(|&(_, bytes)| bytes > 0)
        .map(|(holder, bytes)| Held { holder, bytes })
        .collect();
    held.sort_by_key(|one| std::cmp::Reverse(one.bytes));
    reach.held = held;
}

/// The visible data of one process.
struct Process<'a> {
    pid: u32,
    mappings: Vec<Mapping>,
    image: Image,
    regions: Regions,
    /// Addresses of living blocks, in order.
    blocks: &'a [u64],
    trace: &'a Trace,
}

impl<'a> Process<'a> {
    fn read(pid: u32, blocks: &'a [u64], trace: &'a Trace) -> Option<Self> {
        let image = Image::open(i32::try_from(pid).ok()?).ok()?;
        Some(Self {
            pid,
            mappings: process::layout(pid).ok()?,
            regions: Regions::read(&image, trace.object()),
            blocks,
            image,
            trace,
        })
    }

    /// The trace itself is not the target's memory.
    fn is_ours(&self, mapping: &Mapping) -> bool {
        let path = Path::new(&mapping.name);
        path == self.trace.object() || path == self.trace.counters()
    }

    /// The holders of the mapping at `index`, and how much each.
    fn holders(&self, index: usize, objects: &mut Objects) -> Vec<(Holder, u64)> {
        let Some(mapping) = self.mappings.get(index) else {
            return Vec::new();
        };
        if mapping.is_shared {
            // A mapped file is no private memory, but one that lives in memory alone is.
            let is_in_memory = [
                "/dev/shm/",
                "/dev/zero",
                "/memfd:",
                "/SYSV",
                "/anon_hugepage",
            ]
            .iter()
            .any(|place| mapping.name.starts_with(place));
            let bytes = if is_in_memory { mapping.pss_bytes } else { 0 };
            return vec![(Holder::Shared, bytes)];
        }
        let bytes = mapping.private_bytes();
        if bytes == 0 {
            return Vec::new();
        }
        if !mapping.is_nameless() {
            return vec![(of_named(mapping), bytes)];
        }
        let noted = self.regions.within(mapping.start..mapping.end);
        let (first, last) = (noted.first(), noted.last());
        let is_whole = first.is_some_and(|one| one.start <= mapping.start)
            && last.is_some_and(|one| one.end >= mapping.end);
        let mut callers: Vec<u64> = noted.iter().map(|one| one.caller).collect();
        callers.dedup();
        match callers.as_slice() {
            [] => vec![(self.of_nameless(index, mapping.start..mapping.end), bytes)],
            [caller] if is_whole => vec![(objects.holder(&self.image, *caller), bytes)],
            _ => self.divided(index, objects),
        }
    }

    /// A mapping that several have a part of: the kernel makes one of neighbours with equal rights. Each part has the
    /// bytes of its own pages.
    fn divided(&self, index: usize, objects: &mut Objects) -> Vec<(Holder, u64)> {
        let Some(mapping) = self.mappings.get(index) else {
            return Vec::new();
        };
        let pages =
            |from: u64, to: u64| process::pages_in_use(self.pid, from..to).unwrap_or_default();
        let bytes = PageBytes::of(mapping, pages(mapping.start, mapping.end));
        let mut parts = Vec::new();
        let mut from = mapping.start;
        for region in self.regions.within(mapping.start..mapping.end) {
            let (start, end) = (region.start.max(mapping.start), region.end.min(mapping.end));
            if from < start {
                parts.push((
                    self.of_nameless(index, from..start),
                    bytes.of_pages(pages(from, start)),
                ));
            }
            parts.push((
                objects.holder(&self.image, region.caller),
                bytes.of_pages(pages(start, end)),
            ));
            from = end;
        }
        if from < mapping.end {
            let rest = from..mapping.end;
            parts.push((
                self.of_nameless(index, rest),
                bytes.of_pages(pages(from, mapping.end)),
            ));
        }
        parts
    }

    /// Memory that no noted call mapped, in `range` of the mapping at `index`: the C library's own, or a system call's.
    fn of_nameless(&self, index: usize, range: Range<u64>) -> Holder {
        let before = index.checked_sub(1).and_then(|at| self.mappings.get(at));
        let before = before.filter(|before| before.end == range.start);
        if before.is_some_and(|before| before.has_file() && before.is_writable) {
            return Holder::Variables;
        }
        let has_block = {
            let from = self.blocks.partition_point(|&block| block < range.start);
            self.blocks
                .get(from)
                .is_some_and(|&block| block < range.end)
        };
        if has_block {
            return Holder::Malloc;
        }
        let is_guard = |before: &Mapping| {
            before.is_nameless()
                && !before.is_accessible
                && before.end - before.start <= GUARD_BYTES_MAX
        };
        // An arena of the C library's begins at a multiple of its size, and what it does not use yet is inaccessible. A
        // stack may begin there by chance.
        let is_arena = range.start.is_multiple_of(ARENA_BYTES);
        let after = self.mappings.get(index + 1);
        let has_rest = after.is_some_and(|after| {
            after.start == range.end && after.is_nameless() && !after.is_accessible
        });
        if is_arena && has_rest {
            return Holder::Malloc;
        }
        if before.is_some_and(is_guard) {
            return Holder::Stacks;
        }
        if is_arena {
            return Holder::Malloc;
        }
        if range.end - range.start >= BLOCKLESS_BYTES {
            return Holder::Unknown;
        }
        Holder::Malloc
    }
}

/// The bytes that a page of a mapping counts as. A page that forks share counts in each of them by its part alone, so
/// that the pages one process wrote are not paid by those it shares.
#[derive(Clone, Copy, Debug)]
struct PageBytes {
    exclusive: f64,
    shared: f64,
    swapped: f64,
}

impl PageBytes {
    /// Of a `mapping` without a file, all of whose pages in use are `all`.
    fn of(mapping: &Mapping, all: PagesInUse) -> Self {
        let (pss, page) = (mapping.pss_bytes as f64, rustix::param::page_size() as f64);
        let exclusive = if all.shared > 0 {
            page.min(pss / all.exclusive.max(1) as f64)
        } else {
            pss / all.exclusive.max(1) as f64
        };
        let rest = pss - exclusive * all.exclusive as f64;
        Self {
            exclusive,
            shared: rest.max(0.0) / all.shared.max(1) as f64,
            swapped: mapping.swap_bytes as f64 / all.swapped.max(1) as f64,
        }
    }

    fn of_pages(&self, pages: PagesInUse) -> u64 {
        let bytes = self.exclusive * pages.exclusive as f64
            + self.shared * pages.shared as f64
            + self.swapped * pages.swapped as f64;
        bytes as u64
    }
}

/// Memory with a name of the kernel's, or what was written of a file's.
fn of_named(mapping: &Mapping) -> Holder {
    match mapping.name.as_str() {
        "[heap]" => Holder::Malloc,
        name if name.starts_with("[stack") => Holder::Stacks,
        _ => Holder::Variables,
    }
}

/// What the files of code are, each read once.
#[derive(Debug, Default)]
struct Objects {
    holders: BTreeMap<PathBuf, Holder>,
}

impl Objects {
    /// The owner of the code at `caller`.
    fn holder(&mut self, image: &Image, caller: u64) -> Holder {
        let Some(file) = image.file_at(caller) else {
            return Holder::Unknown;
        };
        if let Some(known) = self.holders.get(file) {
            return known.clone();
        }
        let elf = Elf::read(file).ok().flatten();
        let holder = holder_of(file, elf.as_ref());
        self.holders.insert(file.to_owned(), holder.clone());
        holder
    }
}

// The trace's table of mapped regions, read from outside the process that it is in.

/// The process runs on: a table that is written just then is read again, so often.
const ATTEMPTS: usize = 20;

/// The mappers of memory, in order of address.
#[derive(Debug, Default)]
struct Regions {
    list: Vec<Region>,
    /// Changes that the table lacks.
    missed: u64,
}

impl Regions {
    /// The table of the process behind `image`; an empty one if `trace` is not there, or is never at rest.
    fn read(image: &Image, trace: &Path) -> Self {
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
    fn within(&self, range: Range<u64>) -> &[Region] {
        let first = self.list.partition_point(|one| one.end <= range.start);
        let last = self.list.partition_point(|one| one.start < range.end);
        self.list.get(first..last).unwrap_or_default()
    }
}

fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + size_of::<u64>())?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

// The heap to which memory belongs that an object maps: an allocator library's, a runtime's, or that of an allocator
// which is a part of the object.

/// How files of runtimes begin, and whose heap they have.
const RUNTIMES: &[(&str, &str)] = &[
    ("libjvm.so", "JVM (Java heap, code, metadata)"),
    ("libnode.so", "V8 (JavaScript heap)"),
    ("node", "V8 (JavaScript heap)"),
    ("libv8", "V8 (JavaScript heap)"),
    ("libphp", "PHP (Zend heap)"),
    ("php", "PHP (Zend heap)"),
    ("mod_php", "PHP (Zend heap)"),
    ("libpython", "CPython (object arenas)"),
    ("python", "CPython (object arenas)"),
    ("libruby", "Ruby (object heap)"),
    ("ruby", "Ruby (object heap)"),
    ("beam.smp", "Erlang (BEAM carriers)"),
    ("libcoreclr", ".NET (managed heap)"),
    ("libclrgc", ".NET (managed heap)"),
    ("libmonosgen", ".NET (managed heap)"),
    ("libluajit", "LuaJIT (Lua heap)"),
];

/// The runtime with a heap of its own that a file of this name is.
pub(crate) fn runtime_of(name: &str) -> Option<&'static str> {
    let mut all = RUNTIMES.iter();
    all.find(|(begin, _)| name.starts_with(begin))
        .map(|&(_, runtime)| runtime)
}

/// The holder of memory that the code of `file` maps.
fn holder_of(file: &Path, elf: Option<&Elf>) -> Holder {
    let name = file
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let is_library = elf.is_some_and(|elf| elf.is_shared() && elf.interpreter().is_none());
    // An object that exports malloc serves it, if the dynamic linker found it first: as the preloaded one was proved to
    // be.
    let serves_malloc =
        name_of_library(file).is_some() || elf.is_some_and(|elf| elf.exports("malloc"));
    if is_library && serves_malloc {
        return Holder::Malloc;
    }
    if let Some(runtime) = runtime_of(&name) {
        return Holder::Runtime {
            name: runtime.to_owned(),
        };
    }
    // A stripped object says nothing.
    let inside = elf.and_then(|elf| family_by_symbol(|symbol| elf.contains(symbol)));
    match inside {
        Some(allocator) => Holder::Embedded {
            name: allocator.to_owned(),
            object: name,
        },
        None => Holder::Object { object: name },
    }
}

#[cfg(test)]
#[path = "tests/runtimes.rs"]
mod runtimes_tests;
