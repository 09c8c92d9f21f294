//! What lies where in a process, and what of it is resident: `/proc/PID/smaps` and `pagemap`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::{ProcessError, parse, read_file};

/// Entries of `pagemap` that are read at a time.
const ENTRIES_MAX: u64 = 1 << 16;
const ENTRY_BYTES: u64 = 8;
/// proc_pid_pagemap(5): resident, or swapped out.
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// The same: no other process has the page mapped. Set on Linux 4.2 and later; a page that is swapped out has it never.
const EXCLUSIVE: u64 = 1 << 56;

/// The pages of a range of addresses that hold something.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct PagesInUse {
    /// Resident, mapped by this process alone.
    pub exclusive: u64,
    /// Resident, mapped by other processes as well.
    pub shared: u64,
    /// Swapped out.
    pub swapped: u64,
}

/// One stretch of memory with the same rights and the same file behind it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// It may be read, or written.
    pub is_accessible: bool,
    /// It may be written.
    pub is_writable: bool,
    /// What is written is seen by others that have it mapped.
    pub is_shared: bool,
    /// The file, `[heap]`, `[stack]` and the like, or nothing.
    pub name: String,
    /// Resident, shared pages divided by their users.
    pub pss_bytes: u64,
    /// Resident and without a file behind it, shared pages counted whole.
    pub anonymous_bytes: u64,
    /// Swapped out, shared pages divided by their users.
    pub swap_bytes: u64,
}

impl Mapping {
    /// Memory of the process that has no file behind it: what was written, if there is one.
    #[must_use]
    pub fn private_bytes(&self) -> u64 {
        if self.is_shared {
            0
        } else if self.has_file() {
            self.anonymous_bytes.min(self.pss_bytes) + self.swap_bytes
        } else {
            self.pss_bytes + self.swap_bytes
        }
    }

    /// Resident pages of its file, shared ones divided by their users, without what a private mapping has copied of them.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        match self.has_file() {
            true => self.pss_bytes.saturating_sub(self.anonymous_bytes),
            false => 0,
        }
    }

    /// Whether it is a file, or a part of one, in memory.
    #[must_use]
    pub fn has_file(&self) -> bool {
        self.name.starts_with('/')
    }

    /// The same for what has no file and no name of the kernel's either.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.name.is_empty() || self.name.starts_with("[anon")
    }
}

/// Everything that is mapped into a process, in order of address. Costs some milliseconds for a large process.
///
/// # Errors
/// [`ProcessError`].
pub fn layout(pid: u32) -> Result<Vec<Mapping>, ProcessError> {
    let text = read_file(pid, &format!("/proc/{pid}/smaps"))?;
    Ok(parse_smaps(&text))
}

/// The pages in `range` of a process's addresses that are resident or swapped out.
///
/// # Errors
/// If the kernel refuses, or the process is gone.
pub fn pages_in_use(pid: u32, range: Range<u64>) -> io::Result<PagesInUse> {
    let page_bytes = rustix::param::page_size() as u64;
    let file = File::open(format!("/proc/{pid}/pagemap"))?;
    let (mut page, end) = (range.start / page_bytes, range.end.div_ceil(page_bytes));
    let mut in_use = PagesInUse::default();
    let mut bytes = Vec::new();
    while page < end {
        let count = (end - page).min(ENTRIES_MAX);
        bytes.resize(usize::try_from(count * ENTRY_BYTES).unwrap_or(0), 0);
        file.read_exact_at(&mut bytes, page * ENTRY_BYTES)?;
        let entries = bytes.chunks_exact(size_of::<u64>());
        for entry in entries.filter_map(|entry| Some(u64::from_ne_bytes(entry.try_into().ok()?))) {
            let is_exclusive = entry & EXCLUSIVE != 0;
            in_use.swapped += u64::from(entry & SWAPPED != 0);
            in_use.exclusive += u64::from(entry & PRESENT != 0 && is_exclusive);
            in_use.shared += u64::from(entry & PRESENT != 0 && !is_exclusive);
        }
        page += count;
    }
    Ok(in_use)
}

fn parse_smaps(text: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        if let Some(mapping) = parse_head(line) {
            found.push(mapping);
            continue;
        }
        let Some(mapping) = found.last_mut() else {
            continue;
        };
        for (name, field) in [
            ("Pss", &mut mapping.pss_bytes),
            ("Anonymous", &mut mapping.anonymous_bytes),
            ("SwapPss", &mut mapping.swap_bytes),
        ] {
            if let Some(bytes) = parse::kilobytes(line, name) {
                *field = bytes;
            }
        }
    }
    found
}

/// `start-end perms offset dev inode name`; the name is the rest of the line, blanks included.
fn parse_head(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_accessible: permissions.first() == Some(&b'r') || permissions.get(1) == Some(&b'w'),
        is_writable: permissions.get(1) == Some(&b'w'),
        is_shared: permissions.get(3) == Some(&b's'),
        name: fields.nth(3).unwrap_or_default().trim().to_owned(),
        ..Mapping::default()
    })
}

#[cfg(test)]
mod tests {
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

    /// Goal: every field comes from its own line, and each kind of mapping has the memory that is its own.
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

    /// Goal: of mapped files only those that are meant count, by their share, without private copies.
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
}
