use super::*;

fn table() -> Box<RegionTable> {
    Box::new(RegionTable {
        magic: MAGIC,
        sequence: 0,
        count: 0,
        missed: 0,
        regions: [Region::default(); REGIONS],
    })
}

fn noted(table: &RegionTable) -> Vec<(u64, u64, u64)> {
    let regions = table.regions.iter().take(table.count as usize);
    regions
        .map(|region| (region.start, region.end, region.caller))
        .collect()
}

/// Goal: the last owner of an address has it, whatever was unmapped, mapped over or split before. Compared with one
/// word for each page.
#[test]
fn the_last_owner_of_a_page_has_it() {
    const PAGES: u64 = 64;
    let mut random = 7_u64;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut table = table();
    let mut pages = [None; PAGES as usize];
    for _ in 0..20_000 {
        let start = below(PAGES);
        let end = start + 1 + below(PAGES - start);
        let caller = Some(below(4)).filter(|&caller| caller > 0);
        replace(&mut table, start, end, caller);
        pages[start as usize..end as usize].fill(caller);
        let regions = noted(&table);
        assert!(
            regions.windows(2).all(|two| two[0].1 <= two[1].0),
            "{regions:?}"
        );
        for (page, &owner) in pages.iter().enumerate() {
            let page = page as u64;
            let found = regions
                .iter()
                .find(|&&(start, end, _)| (start..end).contains(&page));
            assert_eq!(
                found.map(|&(_, _, caller)| caller),
                owner,
                "page {page} of {regions:?}"
            );
        }
    }
    assert_eq!(table.missed, 0);
}

/// Goal: neighbours of one caller are one region: an allocator that maps a piece a thousand times fills no table.
#[test]
fn neighbours_of_one_caller_are_one_region() {
    let mut table = table();
    for piece in [2, 0, 1, 5, 4, 3] {
        replace(&mut table, piece * 10, piece * 10 + 10, Some(1));
    }
    let regions = noted(&table);
    assert!(regions.len() <= 3, "{regions:?}");
    assert_eq!(
        regions
            .iter()
            .map(|&(start, end, _)| end - start)
            .sum::<u64>(),
        60
    );
}

/// Goal: a region without room is counted, and no recorded one is harmed.
#[test]
fn a_full_table_says_so() {
    let mut table = table();
    for piece in 0..REGIONS as u64 + 3 {
        replace(&mut table, piece * 10, piece * 10 + 5, Some(piece));
    }
    assert_eq!((table.count, table.missed), (REGIONS as u64, 3));
    replace(&mut table, 1, 2, None);
    assert_eq!((table.count, table.missed), (REGIONS as u64, 4));
    replace(&mut table, 0, 5, None);
    assert_eq!(table.count, REGIONS as u64 - 1);
}

/// Goal: memory that this process maps and gives back is noted with the code that did, and so is what moves.
#[test]
fn mapped_memory_is_noted() {
    type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
    const BYTES: usize = 1 << 20;
    // SAFETY: the functions have these signatures in C; new memory is mapped, and only that is touched.
    unsafe {
        let call: Map = core::mem::transmute(mmap as *const ());
        let at = call(core::ptr::null_mut(), BYTES, 3, 0x22, -1, 0);
        assert_ne!(at as usize, MAP_FAILED);
        at.cast::<u8>().add(BYTES - 1).write(1);
        let owner = |address: usize| {
            let table = &*millpond_trace_regions.0.get();
            let regions = noted(table);
            let found = regions
                .into_iter()
                .find(|&(start, end, _)| (start..end).contains(&(address as u64)));
            found.map(|(_, _, caller)| caller as usize)
        };
        let caller = owner(at as usize + 5000).unwrap();
        let here = mapped_memory_is_noted as *const () as usize;
        assert!(caller.abs_diff(here) < 1 << 24, "{caller:x} {here:x}");
        assert_eq!(munmap(at, BYTES / 2), 0);
        assert_eq!(
            (owner(at as usize), owner(at as usize + BYTES / 2)),
            (None, Some(caller))
        );
        assert_eq!(munmap(at.add(BYTES / 2), BYTES / 2), 0);
        assert_eq!(owner(at as usize + BYTES - 1), None);
    }
}
