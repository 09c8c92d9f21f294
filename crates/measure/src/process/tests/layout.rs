use super::*;
use proptest::prelude::*;

const SMAPS: &str = "\
55a0-55b0 rw-p 00001000 fe:00 11                         /usr/bin/my prog
Size:                 64 kB
Rss:                  32 kB
Pss:                  20 kB
Pss_Dirty:             8 kB
Anonymous:             8 kB
Swap:                  8 kB
SwapPss:               4 kB
VmFlags: rd wr mr mw me ac
7f00-7f80 ---p 00000000 00:00 0 
Pss:                   0 kB
7f80-7fa0 rw-p 00000000 00:00 0                          [anon: glibc: malloc]
Pss:                  12 kB
Anonymous:            12 kB
7fb0-7fc0 rw-s 00000000 00:01 9                          /dev/shm/x (deleted)
Pss:                  40 kB
";

/// Goal: every field comes from its own line, and each kind of mapping has its own memory.
#[test]
fn smaps_are_read() {
    let found = parse_smaps(SMAPS);
    let of: Vec<(u64, u64, u64)> = found
        .iter()
        .map(|one| (one.start, one.end, one.private_bytes() >> 10))
        .collect();
    let expected = [
        (0x55a0, 0x55b0, 12),
        (0x7f00, 0x7f80, 0),
        (0x7f80, 0x7fa0, 12),
        (0x7fb0, 0x7fc0, 0),
    ];
    assert_eq!(of, expected);
    assert_eq!(found[0].name, "/usr/bin/my prog");
    assert!(found[0].has_file() && found[0].is_writable);
    assert!(!found[1].is_accessible && found[1].is_nameless());
    assert!(found[2].is_nameless() && found[3].is_shared);
}

/// Goal: of mapped files only the intended ones count, by their share, without private copies.
#[test]
fn smaps_lines() {
    let text = "5500-5600 rw-s 00000000 00:1a 12   /dev/shm/data/a b\n\
                Size:  400 kB\nRss:  300 kB\nPss:  150 kB\nAnonymous:  0 kB\nVmFlags: rd wr sh\n\
                5600-5700 rw-s 00000000 00:1a 13   /dev/shm/other\n\
                Rss:  70 kB\nPss:  70 kB\nAnonymous:  0 kB\n\
                5700-5800 rw-p 00000000 00:00 0 \n\
                Pss:  900 kB\nAnonymous:  900 kB\n\
                5800-5900 rw-p 00000000 00:1a 14   /dev/shm/data/c (deleted)\n\
                Pss:  50 kB\nAnonymous:  20 kB\n";
    let of_data = parse_smaps(text).into_iter();
    let of_data = of_data.filter(|one| one.name.starts_with("/dev/shm/data/"));
    let bytes: u64 = of_data.map(|one| one.file_bytes()).sum();
    assert_eq!(bytes, (150 + 30) * 1024);
}

proptest! {
    /// Goal: no text makes the parser fail.
    #[test]
    fn any_text_is_survived(text in "\\PC{0,200}") {
        let _ = parse_smaps(&text);
    }
}

/// Goal: of memory that was reserved the pages that were written are in use.
#[test]
fn written_pages_are_in_use() {
    let page_bytes = rustix::param::page_size();
    // Larger than what malloc takes from its arena, so that the kernel gives fresh pages.
    let mut memory = vec![0_u8; 512 * page_bytes];
    let start = (memory.as_ptr() as usize).next_multiple_of(page_bytes) as u64;
    let range = start..start + 256 * page_bytes as u64;
    let own = std::process::id();
    let before = pages_in_use(own, range.clone()).unwrap().exclusive;
    for page in memory.chunks_mut(page_bytes).take(200) {
        page[0] = 1;
    }
    let after = pages_in_use(own, range).unwrap();
    // Under memory pressure some may be swapped out meanwhile.
    assert!(after.exclusive + after.swapped >= before.max(199));
    let mappings = layout(own).unwrap();
    let holds = |one: &&Mapping| (one.start..one.end).contains(&start);
    let mapping = mappings.iter().find(holds).unwrap();
    assert!(mapping.private_bytes() >= 199 * page_bytes as u64);
}
