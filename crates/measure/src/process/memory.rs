//! What a process holds, by kind, as the kernel's `smaps_rollup` tells it.
//!
//! RSS answers another question: it counts a page that eight workers share eight times, and the pages of mapped files,
//! which the kernel takes back when it needs them, like a heap. What a program costs is what nothing but the program
//! keeps in memory: its anonymous pages, those of them that were swapped out, memory that it shares with its kin, and
//! huge pages it took from the kernel's pool. [`MemorySample::private_bytes`] is their sum; shared pages are divided by
//! their users, so that a sum over a tree counts each once.
//!
//! Files on tmpfs are shared memory to the kernel. Those of a [`DataDirectory`] are found by their mappings.
//! Page tables, kernel memory, and the page cache of files that are read and not mapped are in no figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Mapping, ProcessError, layout, parse, read_file, resident_bytes};

/// `TMPFS_MAGIC` of statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A directory of data on a tmpfs: what processes map of its files is file-backed memory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DataDirectory {
    path: Arc<Path>,
}

impl DataDirectory {
    /// `None` for one that is on a disk, whose pages the kernel counts as those of files anyway.
    #[must_use]
    pub fn in_memory(path: &Path) -> Option<Self> {
        // As it stands in the maps of processes, where links are resolved.
        let path: PathBuf = fs::canonicalize(path).ok()?;
        let system = rustix::fs::statfs(&path).ok()?;
        (system.f_type as u64 == TMPFS_MAGIC).then(|| Self { path: path.into() })
    }

    fn holds(&self, mapped: &str) -> bool {
        Path::new(mapped).starts_with(&self.path)
    }
}

/// Memory of a process, or of several.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySample {
    /// Resident memory, exact where the kernel lets us read `smaps_rollup`.
    pub rss_bytes: u64,
    /// Resident memory with shared pages divided by their users; `None` without permission.
    pub pss_bytes: Option<u64>,
    /// Pages that belong to this process alone, those of files included; `None` without permission.
    pub uss_bytes: Option<u64>,
    /// Memory without a file behind it, such as heaps and stacks, shared pages divided by their
    /// users; `None` without permission.
    pub anonymous_bytes: Option<u64>,
    /// Of such memory: what was swapped out.
    pub swapped_bytes: Option<u64>,
    /// Memory shared on purpose (shared anonymous mappings, POSIX and System V shared memory), divided by its users,
    /// without the files of a data directory; `None` also where the kernel does not tell it apart (before Linux 5.3).
    pub shared_bytes: Option<u64>,
    /// Pages of mapped files, divided by their users: programs, libraries, data.
    pub file_bytes: Option<u64>,
    /// What was taken of the kernel's pool of huge pages (hugetlbfs) by this process alone; in no other figure here.
    pub hugetlb_bytes: Option<u64>,
    /// Of the memory without a file: what lies in transparent huge pages.
    pub huge_page_bytes: Option<u64>,
    /// Of the memory without a file: what was given back with `MADV_FREE` and not yet taken by the kernel.
    pub lazy_free_bytes: Option<u64>,
}

impl MemorySample {
    /// Reads that of one process; files of `data` do not count as shared memory.
    ///
    /// # Errors
    /// [`ProcessError::Gone`], or what makes even `statm` unreadable.
    pub fn read(pid: u32, data: Option<&DataDirectory>) -> Result<Self, ProcessError> {
        let text = match read_file(pid, &format!("/proc/{pid}/smaps_rollup")) {
            Ok(text) => text,
            Err(ProcessError::Refused { .. }) => return Self::resident_only(pid),
            // Kernels before 4.14 have no such file, for nobody.
            Err(_) if !fs::exists("/proc/self/smaps_rollup").unwrap_or(false) => {
                return Self::resident_only(pid);
            }
            Err(error) => return Err(error),
        };
        let sample = Self::parse(&text).ok_or(ProcessError::Gone { pid })?;
        // A look at every mapping costs as much again: only where shared memory may be data.
        let Some(data) = data.filter(|_| sample.shared_bytes.is_some_and(|bytes| bytes > 0)) else {
            return Ok(sample);
        };
        let mappings = layout(pid)?;
        let of_data = mappings.iter().filter(|one| data.holds(&one.name));
        Ok(sample.without_data(of_data.map(Mapping::file_bytes).sum()))
    }

    fn resident_only(pid: u32) -> Result<Self, ProcessError> {
        match resident_bytes(pid)? {
            // A process without memory is one that is ending right now; 0 would be a wrong number.
            0 => Err(ProcessError::Gone { pid }),
            rss_bytes => Ok(Self {
                rss_bytes,
                ..Self::default()
            }),
        }
    }

    /// From the text of `smaps_rollup`; `None` if that is empty, as that of a process that ends.
    fn parse(text: &str) -> Option<Self> {
        let field = |name| parse::kilobytes(text, name);
        let alone = field("Private_Clean").zip(field("Private_Dirty"));
        Some(Self {
            rss_bytes: field("Rss")?,
            pss_bytes: field("Pss"),
            uss_bytes: alone.map(|(clean, dirty)| clean + dirty),
            // Kernels before 5.3 do not divide it.
            anonymous_bytes: field("Pss_Anon").or_else(|| field("Anonymous")),
            swapped_bytes: field("SwapPss"),
            shared_bytes: field("Pss_Shmem"),
            file_bytes: field("Pss_File"),
            hugetlb_bytes: field("Private_Hugetlb"),
            huge_page_bytes: field("AnonHugePages"),
            lazy_free_bytes: field("LazyFree"),
        })
    }

    /// Pages of data are those of files, wherever the files lie.
    fn without_data(self, data_bytes: u64) -> Self {
        let data_bytes = self.shared_bytes.map_or(0, |shared| shared.min(data_bytes));
        Self {
            shared_bytes: self.shared_bytes.map(|bytes| bytes - data_bytes),
            file_bytes: self.file_bytes.map(|bytes| bytes + data_bytes),
            ..self
        }
    }

    /// What the program keeps in memory by itself: anonymous, swapped and shared memory, and huge pages of the pool.
    /// `None` where the kernel does not tell it from mapped files.
    #[must_use]
    pub fn private_bytes(&self) -> Option<u64> {
        let (anonymous, shared) = self.anonymous_bytes.zip(self.shared_bytes)?;
        let apart = self.swapped_bytes.unwrap_or(0) + self.hugetlb_bytes.unwrap_or(0);
        Some(anonymous + shared + apart)
    }

    /// One line for people on memory that cannot be read; `None` if all of it can.
    #[must_use]
    pub fn missing_line(&self) -> Option<String> {
        const INSTEAD: &str =
            "memory is RSS here, which counts shared pages in each process, and mapped files";
        if self.pss_bytes.is_none() {
            return Some(format!(
                "smaps_rollup of the server cannot be read: {INSTEAD}; PSS, USS, huge pages and fragmentation are \
                 not measured; run as root or as the server's user"
            ));
        }
        self.private_bytes().is_none().then(|| {
            format!(
                "this kernel does not tell a program's memory from its mapped files (Linux 5.3 does): {INSTEAD}"
            )
        })
    }

    /// Both together; what is known of one only is known of neither.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let both = |one: Option<u64>, two: Option<u64>| one.zip(two).map(|(a, b)| a + b);
        Self {
            rss_bytes: self.rss_bytes + other.rss_bytes,
            pss_bytes: both(self.pss_bytes, other.pss_bytes),
            uss_bytes: both(self.uss_bytes, other.uss_bytes),
            anonymous_bytes: both(self.anonymous_bytes, other.anonymous_bytes),
            swapped_bytes: both(self.swapped_bytes, other.swapped_bytes),
            shared_bytes: both(self.shared_bytes, other.shared_bytes),
            file_bytes: both(self.file_bytes, other.file_bytes),
            hugetlb_bytes: both(self.hugetlb_bytes, other.hugetlb_bytes),
            huge_page_bytes: both(self.huge_page_bytes, other.huge_page_bytes),
            lazy_free_bytes: both(self.lazy_free_bytes, other.lazy_free_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    const ROLLUP: &str = "555629510000-7ffc6f0ce000 ---p 00000000 00:00 0    [rollup]\n\
        Rss:                1696 kB\nPss:                 354 kB\nPss_Dirty:           112 kB\n\
        Pss_Anon:            112 kB\nPss_File:            222 kB\nPss_Shmem:            20 kB\n\
        Shared_Clean:       1540 kB\nShared_Dirty:          0 kB\nPrivate_Clean:        44 kB\n\
        Private_Dirty:       112 kB\nReferenced:         1696 kB\nAnonymous:           112 kB\n\
        LazyFree:              8 kB\nAnonHugePages:         0 kB\nPrivate_Hugetlb:    2048 kB\n\
        Swap:                  9 kB\nSwapPss:               5 kB\nLocked:                0 kB\n";

    /// Goal: private memory is the sum of its parts and none of the files; each field is the one it is called.
    #[test]
    fn a_rollup_is_read() {
        let sample = MemorySample::parse(ROLLUP).unwrap();
        assert_eq!(sample.private_bytes(), Some((112 + 20 + 5 + 2048) * KIB));
        assert_eq!(sample.rss_bytes, 1696 * KIB);
        assert_eq!(sample.uss_bytes, Some(156 * KIB));
        assert_eq!(sample.file_bytes, Some(222 * KIB));
        assert_eq!(sample.lazy_free_bytes, Some(8 * KIB));
        assert_eq!(sample.missing_line(), None);
        assert_eq!(MemorySample::parse(""), None);
    }

    /// Goal: mapped data on tmpfs move from shared memory to files, and never more than there is.
    #[test]
    fn data_are_files() {
        let sample = MemorySample::parse(ROLLUP).unwrap();
        let without = sample.without_data(15 * KIB);
        assert_eq!(without.shared_bytes, Some(5 * KIB));
        assert_eq!(without.file_bytes, Some(237 * KIB));
        assert_eq!(sample.without_data(1 << 30).shared_bytes, Some(0));
    }

    /// Goal: an old kernel, and a server that may not be looked into, give a reason and RSS, and no wrong sum.
    #[test]
    fn what_is_missing_is_told() {
        let old = ROLLUP.replace("Pss_", "Other_");
        let old = MemorySample::parse(&old).unwrap();
        assert_eq!(old.private_bytes(), None);
        assert_eq!(old.anonymous_bytes, Some(112 * KIB));
        assert!(
            old.missing_line()
                .is_some_and(|line| line.contains("Linux 5.3"))
        );
        let refused = MemorySample {
            rss_bytes: 7,
            ..MemorySample::default()
        };
        assert!(
            refused
                .missing_line()
                .is_some_and(|line| line.contains("run as root"))
        );
        let both = refused.plus(&MemorySample::parse(ROLLUP).unwrap());
        assert_eq!(
            (both.rss_bytes, both.private_bytes()),
            (7 + 1696 * KIB, None)
        );
    }
}
