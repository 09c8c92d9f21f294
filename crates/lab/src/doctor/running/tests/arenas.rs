use super::*;

const FILE: &str = "/lib/libc.so.6";
const DATA: u64 = 0x1_0000;
const MAIN: u64 = DATA + 0x200;
const SEGMENT: u64 = 0x10_0000;
const HEAP: u64 = 2 * HEAP_BYTES_MAX;
const HEAP_BYTES: u64 = 0x2_1000;
const ARENA: u64 = HEAP + 48;
/// From an arena to its bins.
const DISTANCE: u64 = 112;

/// A process's memory: the words that are not zero.
type Words = BTreeMap<u64, u64>;

fn plant_arena(words: &mut Words, arena: u64, next: u64, top: u64, bytes: u64) {
    let bins = arena + DISTANCE;
    for bin in 0..BIN_COUNT as u64 {
        words.insert(bins + bin * 16, bins + bin * 16 - 16);
        words.insert(bins + bin * 16 + 8, bins + bin * 16 - 16);
    }
    words.insert(bins - 16, top);
    words.insert(top + 8, 0x1000 | 1);
    let behind = |at: usize| bins + at as u64 * 8;
    words.insert(behind(NEXT_AT), next);
    words.insert(behind(SYSTEM_AT), bytes);
    words.insert(behind(SYSTEM_MAX_AT), bytes);
}

/// A main arena, one of a thread, and two blocks with mappings of their own.
fn planted() -> Words {
    let mut words = Words::new();
    let top = SEGMENT + HEAP_BYTES - 0x1000;
    plant_arena(&mut words, MAIN, ARENA, top, HEAP_BYTES);
    let top = HEAP + HEAP_BYTES - 0x1000;
    plant_arena(&mut words, ARENA, MAIN, top, HEAP_BYTES);
    for (at, word) in [ARENA, 0, HEAP_BYTES, HEAP_BYTES].into_iter().enumerate() {
        words.insert(HEAP + at as u64 * 8, word);
    }
    let parameters = [
        1 << 17,
        1 << 17,
        1 << 18,
        8,
        2,
        0,
        0,
        2 << 32,
        2 << 32 | MAPPED_COUNT_MAX,
        1,
        0x4000,
        0x4000,
        SEGMENT,
    ];
    for (at, word) in parameters.into_iter().enumerate() {
        words.insert(DATA + at as u64 * 8, word);
    }
    words
}

fn read_planted(words: &Words, version: (u32, u32)) -> Result<GlibcHeap, String> {
    let mapping = |start: u64, bytes: u64, name: &str| Mapping {
        start,
        end: start + bytes,
        is_accessible: true,
        is_writable: true,
        name: name.to_owned(),
        ..Mapping::default()
    };
    let mappings = vec![
        mapping(DATA, 0x4000, FILE),
        mapping(SEGMENT, HEAP_BYTES, "[heap]"),
        // Advice to the kernel has cut it.
        mapping(HEAP, 0x1000, ""),
        mapping(HEAP + 0x1000, HEAP_BYTES - 0x1000, ""),
    ];
    let inside = |at: u64| {
        mappings
            .iter()
            .any(|one| (one.start..one.end).contains(&at))
    };
    let bytes = |at: u64, len: usize| {
        let places = (at..at + len as u64).step_by(8);
        let mut bytes = Vec::new();
        for place in places {
            let word = words.get(&place).copied().unwrap_or(0);
            bytes.extend(inside(place).then_some(word.to_le_bytes())?);
        }
        Some(bytes)
    };
    read(FILE, Some(version), || Ok(mappings.clone()), bytes)
}

/// Goal: planted arenas are read with all their figures; settings only of a version whose layout is known.
#[test]
fn planted_arenas_are_read() {
    let heap = read_planted(&planted(), (2, 36)).unwrap();
    assert_eq!(heap.arenas.len(), 2);
    assert_eq!(heap.system_bytes(), 2 * HEAP_BYTES + 0x4000);
    assert_eq!(heap.free_at_end_bytes(), 0x2000);
    let mapped = MappedBlocks {
        count: 2,
        bytes: 0x4000,
    };
    assert_eq!(heap.mapped, Some(mapped));
    let parameters = Parameters {
        mmap_threshold: 1 << 18,
        trim_threshold: 1 << 17,
        thresholds_move: false,
        arena_max: 2,
    };
    assert_eq!(heap.parameters, Some(parameters));
    let later = read_planted(&planted(), (2, 99)).unwrap();
    assert_eq!((later.parameters, later.arenas), (None, heap.arenas));
}

/// Goal: a figure that contradicts another one is never reported: each wrong word has its reason.
#[test]
fn what_does_not_fit_is_refused() {
    let behind = |arena: u64, at: usize| arena + DISTANCE + at as u64 * 8;
    for (place, word, reason) in [
        (
            behind(ARENA, SYSTEM_AT),
            HEAP_BYTES - 0x1000,
            "does not fit its heaps",
        ),
        (HEAP + 16, HEAP_BYTES - 0x1000, "does not fit its heaps"),
        (behind(MAIN, SYSTEM_AT), HEAP_BYTES + 1, "was not found"),
        (behind(MAIN, SYSTEM_AT), 0, "was not found"),
        (behind(MAIN, 40), MAIN, "was not found"),
        (behind(ARENA, 40), ARENA, "layout that is not known"),
        (behind(MAIN, NEXT_AT), MAIN, "more arenas in memory"),
        (behind(ARENA, NEXT_AT), ARENA, "list of arenas does not end"),
        (behind(ARENA, NEXT_AT), SEGMENT, "fewer arenas in memory"),
        (SEGMENT + HEAP_BYTES - 0x1000 + 8, 0x2001, "was not found"),
        // Its heap is none: the ring leads to nothing.
        (HEAP + 24, HEAP_BYTES_MAX * 2, "was not found"),
    ] {
        let mut words = planted();
        words.insert(place, word);
        let told = read_planted(&words, (2, 36));
        let told = told.expect_err(&format!("{place:#x} = {word:#x}"));
        assert!(told.contains(reason), "{place:#x}: {told}");
    }
    let mut words = planted();
    // Blocks without bytes, and more than are mapped: left out, the arenas stay.
    for wrong in [0, 1 << 40] {
        words.insert(DATA + 10 * 8, wrong);
        let heap = read_planted(&words, (2, 36)).unwrap();
        assert_eq!((heap.mapped, heap.arenas.len()), (None, 2));
    }
    let mut twice = planted();
    plant_arena(&mut twice, MAIN + 0x1000, ARENA, SEGMENT, HEAP_BYTES);
    let told = read_planted(&twice, (2, 36)).unwrap_err();
    assert!(told.contains("could not be distinguished from"), "{told}");
}
