//! The mappings of a process, and their resident parts: `/proc/PID/smaps` and `pagemap`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use std::{fs, io, thread};

use crate::process;

use super::{DataDirectory, MemorySample, ProcessError, ProcessSample, Stat, read_file, read_stat};

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
    /// Writes are seen by others that have it mapped.
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
/// If the kernel refuses, or the process has ended.
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
            if let Some(bytes) = process::kilobytes(line, name) {
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

// A process and everything it started: nginx's workers count as nginx.
//
// Faults and CPU time of those that have ended are in their parent's sums once it has waited for them. Absent: children
// that no process of the tree waited for. Where there is a control group, it knows their CPU time.

/// A process that replaces itself by another program has no memory to read for a moment, longer on
/// a busy machine: read so often before it counts as gone.
const ATTEMPTS: usize = 50;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(1);

/// A process, named by the id of its root, with its descendants and its process group.
///
/// The group matters because a worker whose parent died is no longer a descendant; the lab starts
/// each target as leader of its own group.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProcessTree {
    root: u32,
    data: Option<DataDirectory>,
}

/// One reading of a tree.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TreeSample {
    /// All processes together.
    pub total: ProcessSample,
    /// Each process by id, with what its ended children did.
    pub processes: BTreeMap<u32, ProcessSample>,
}

impl ProcessTree {
    /// The tree under (and with) `root`.
    #[must_use]
    pub const fn new(root: u32) -> Self {
        Self { root, data: None }
    }

    /// The same with data that lie in memory, which its processes may map: files, in all that is read of them.
    #[must_use]
    pub fn with_data(self, data: Option<DataDirectory>) -> Self {
        Self { data, ..self }
    }

    /// The ids of all living members, the root first if it lives; empty if all are gone.
    #[must_use]
    pub fn members(&self) -> Vec<u32> {
        members_of(self.root, &all_processes())
    }

    /// Reads all members. One that vanishes in between is left out.
    ///
    /// # Errors
    /// [`ProcessError::Gone`] if none is left, or if the kernel refuses one that lives.
    pub fn sample(&self) -> Result<TreeSample, ProcessError> {
        for _ in 0..ATTEMPTS {
            let members = self.members();
            if members.is_empty() {
                break;
            }
            if let Some(sample) = self.read_all(&members)? {
                return Ok(sample);
            }
            thread::sleep(ATTEMPT_INTERVAL);
        }
        Err(ProcessError::Gone { pid: self.root })
    }

    /// Memory of these members, those left out that have vanished, and how many were read; `None` if none was.
    #[must_use]
    pub fn memory_of(&self, members: &[u32]) -> Option<(MemorySample, usize)> {
        let mut found: Option<(MemorySample, usize)> = None;
        for &pid in members {
            // If the kernel refuses the process, not even RSS is known: the edges of the phase say so.
            if let Ok(one) = MemorySample::read(pid, self.data.as_ref()) {
                found = Some(found.map_or((one, 1), |(sum, count)| (sum.plus(&one), count + 1)));
            }
        }
        found
    }

    /// Reads `members`; `None` if none of them can be read now.
    fn read_all(&self, members: &[u32]) -> Result<Option<TreeSample>, ProcessError> {
        let mut processes = BTreeMap::new();
        for &pid in members {
            match ProcessSample::read_with_ended(pid, self.data.as_ref()) {
                Ok(one) => {
                    processes.insert(pid, one);
                }
                Err(ProcessError::Gone { .. }) => {}
                // The kernel's data about a process that is just ending depends on how far that is.
                Err(_) if !is_alive(pid) => {}
                Err(error) => return Err(error),
            }
        }
        let total = processes
            .values()
            .copied()
            .reduce(|sum, one| sum.plus(&one));
        Ok(total.map(|total| TreeSample { total, processes }))
    }
}

fn is_alive(pid: u32) -> bool {
    read_stat(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Every process with its parent and group. A process that ends meanwhile is left out.
fn all_processes() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let text = read_file(pid, &format!("/proc/{pid}/stat")).ok()?;
            Some((pid, Stat::parse(&text)?))
        })
        .filter(|(_, stat)| !matches!(stat.state, 'Z' | 'X'))
        .collect()
}

fn members_of(root: u32, processes: &BTreeMap<u32, Stat>) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (&pid, stat) in processes {
        children.entry(stat.parent).or_default().push(pid);
    }
    let mut found = BTreeSet::new();
    let group = processes
        .iter()
        .filter(|(_, stat)| stat.process_group == root);
    let mut open: Vec<u32> = group.map(|(&pid, _)| pid).chain([root]).collect();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.retain(|pid| processes.contains_key(pid));
    let mut members: Vec<u32> = found.into_iter().collect();
    // The root first: callers show it as the name of the whole.
    members.sort_by_key(|&pid| (pid != root, pid));
    members
}

#[cfg(test)]
#[path = "tests/layout.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/tree.rs"]
mod tree_tests;
