//! Opening files beneath one directory and nowhere else.
//!
//! The kernel resolves names with `openat2`: symbolic links are followed as long as they stay beneath
//! the root at every step, however directories and links are exchanged meanwhile. An absolute link
//! leaves the root by definition, as do the links of `/proc`. Where `openat2` is missing (Linux
//! before 5.6) or forbidden (some sandboxes), each segment is opened by itself without following any
//! link, which is as safe and serves less.
//!
//! Absent on purpose: checking a name first and opening it later. What is checked is the open file.

use super::version::Version;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// How often a race with a renaming is repeated before the client is asked to come again.
const RACES_MAX: usize = 16;

/// A directory whose files are served.
#[derive(Debug)]
pub(super) struct Root {
    directory: OwnedFd,
    way: Way,
}

/// How names are resolved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    /// The kernel keeps beneath the root; links within it are followed.
    Beneath,
    /// Segment by segment; no link is followed.
    BySegment,
}

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Opened {
    File(OwnedFd, Version),
    Directory,
}

/// Why nothing was opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum OpenRefusal {
    /// No such file, no regular file, or one outside the root: 404.
    NotFound,
    /// The server's user may not read it: 403.
    Forbidden,
    /// No descriptor, no memory, or too many races: 503.
    Exhausted,
    /// The disk or the kernel failed: 500.
    Failed,
    /// Nothing is known without the disk: open it where waiting is allowed.
    NotCached,
}

impl OpenRefusal {
    fn of(errno: Errno) -> Self {
        match errno {
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::NXIO
            | Errno::NODEV
            | Errno::ISDIR
            | Errno::INVAL => Self::NotFound,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Self::Exhausted,
            _ => Self::Failed,
        }
    }
}

/// Whether opening may wait for a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Patience {
    /// Answer [`OpenRefusal::NotCached`] instead.
    CachedOnly,
    /// Wait.
    Disk,
}

impl Root {
    /// Opens the directory and finds out how names may be resolved.
    pub(super) fn open(path: &Path, follow_links: bool) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())?;
        let probed = openat2(&directory, c".", flags, Mode::empty(), BENEATH);
        let way = match probed {
            Ok(_) if follow_links => Way::Beneath,
            Ok(_) | Err(_) => Way::BySegment,
        };
        Ok(Self { directory, way })
    }

    pub(super) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    /// Opens what `relative` names: a plain name, as `path` lets through.
    pub(super) fn look_up(
        &self,
        relative: &[u8],
        patience: Patience,
    ) -> Result<Opened, OpenRefusal> {
        let file = match self.way {
            Way::Beneath => self.open_beneath(relative, patience)?,
            Way::BySegment if patience == Patience::CachedOnly => {
                return Err(OpenRefusal::NotCached);
            }
            Way::BySegment => self.open_by_segment(relative).map_err(OpenRefusal::of)?,
        };
        let stat = fstat(&file).map_err(OpenRefusal::of)?;
        match kind(&stat) {
            FileType::RegularFile => Ok(Opened::File(file, Version::of(&stat))),
            FileType::Directory => Ok(Opened::Directory),
            _ => Err(OpenRefusal::NotFound),
        }
    }

    fn open_beneath(&self, relative: &[u8], patience: Patience) -> Result<OwnedFd, OpenRefusal> {
        let resolve = match patience {
            Patience::CachedOnly => BENEATH | ResolveFlags::CACHED,
            Patience::Disk => BENEATH,
        };
        for _ in 0..RACES_MAX {
            match openat2(&self.directory, relative, READ, Mode::empty(), resolve) {
                Ok(file) => return Ok(file),
                // The kernel could not tell, for a renaming, or without asking the disk.
                Err(Errno::AGAIN) if patience == Patience::CachedOnly => {
                    return Err(OpenRefusal::NotCached);
                }
                // Linux before 5.12 has no such flag.
                Err(Errno::INVAL) if patience == Patience::CachedOnly => {
                    return Err(OpenRefusal::NotCached);
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(OpenRefusal::of(errno)),
            }
        }
        Err(OpenRefusal::Exhausted)
    }

    fn open_by_segment(&self, relative: &[u8]) -> Result<OwnedFd, Errno> {
        let mut segments = relative.split(|&byte| byte == b'/').peekable();
        let mut parent: Option<OwnedFd> = None;
        while let Some(segment) = segments.next() {
            // `path` lets none of these through; here they would leave the root.
            if matches!(segment, b"" | b"." | b"..") {
                return Err(Errno::NOENT);
            }
            let directory: BorrowedFd<'_> = match &parent {
                Some(parent) => parent.as_fd(),
                None => self.directory.as_fd(),
            };
            let flags = match segments.peek() {
                Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                None => READ,
            };
            let flags = flags | OFlags::NOFOLLOW;
            let opened = loop {
                match openat(directory, segment, flags, Mode::empty()) {
                    Err(Errno::INTR) => {}
                    other => break other?,
                }
            };
            parent = Some(opened);
        }
        parent.ok_or(Errno::NOENT)
    }
}

/// Not blocking, so that opening a FIFO without a writer returns.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    fn site() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::write(home.path().join("secret"), "outside").unwrap();
        symlink("a/b", root.join("link")).unwrap();
        symlink("b/file", root.join("a/alias")).unwrap();
        symlink("../../secret", root.join("a/up")).unwrap();
        symlink("..", root.join("a/parent")).unwrap();
        symlink("../..", root.join("a/out")).unwrap();
        symlink(home.path().join("secret"), root.join("absolute")).unwrap();
        symlink(root.join("a/b/file"), root.join("absolute-inside")).unwrap();
        symlink("/proc/self/root", root.join("magic")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        (home, root)
    }

    fn outcome(root: &Root, name: &str) -> Result<&'static str, OpenRefusal> {
        match root.look_up(name.as_bytes(), Patience::Disk)? {
            Opened::Directory => Ok("directory"),
            Opened::File(file, version) => {
                let mut text = [0; 16];
                let count = rustix::io::pread(&file, &mut text[..], 0).unwrap();
                assert_eq!(count as u64, version.size_bytes);
                Ok(if &text[..count] == b"inside" {
                    "inside"
                } else {
                    "outside"
                })
            }
        }
    }

    /// Goal: nothing outside the root opens, either way; links within it are followed by the kernel.
    #[test]
    fn nothing_outside_the_root_opens() {
        let (_home, path) = site();
        let (beneath, by_segment) = (
            Root::open(&path, true).unwrap(),
            Root::open(&path, false).unwrap(),
        );
        let not_found = Err(OpenRefusal::NotFound);
        for (name, expected, without_links) in [
            ("a/b/file", Ok("inside"), Ok("inside")),
            ("a", Ok("directory"), Ok("directory")),
            ("a/b", Ok("directory"), Ok("directory")),
            ("link/file", Ok("inside"), not_found),
            ("a/alias", Ok("inside"), not_found),
            ("a/parent/a/b/file", Ok("inside"), not_found),
            ("a/up", not_found, not_found),
            ("a/out/secret", not_found, not_found),
            ("absolute", not_found, not_found),
            ("absolute-inside", not_found, not_found),
            ("magic/etc/passwd", not_found, not_found),
            ("loop", not_found, not_found),
            ("fifo", not_found, not_found),
            ("missing", not_found, not_found),
            ("a/b/file/more", not_found, not_found),
        ] {
            if beneath.way() == Way::Beneath {
                assert_eq!(outcome(&beneath, name), expected, "{name}");
            }
            assert_eq!(outcome(&by_segment, name), without_links, "{name}");
        }
        let long = "x".repeat(256);
        let deep = "a/b/../".repeat(600);
        for name in [
            long.as_str(),
            deep.as_str(),
            "..",
            "../secret",
            "a/../../secret",
        ] {
            assert_eq!(outcome(&by_segment, name), not_found, "{name}");
        }
    }

    /// Goal: while a directory and a link that leads out are exchanged all the time, no open ever
    /// yields a byte from outside; the file inside is found in between.
    #[test]
    fn exchanging_a_directory_and_a_link_never_leads_out() {
        let (home, path) = site();
        fs::create_dir_all(home.path().join("b")).unwrap();
        fs::write(home.path().join("b/file"), "outside").unwrap();
        // `a/swap` is now a directory with `b/file` in it, now a link to where the other `b` is.
        fs::create_dir_all(path.join("a/swap/b")).unwrap();
        fs::write(path.join("a/swap/b/file"), "inside").unwrap();
        symlink("../..", path.join("a/swapped")).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (path.join("a/swap"), path.join("a/swapped"));
                while !stop.load(Ordering::Relaxed) {
                    let exchange = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &one, CWD, &other, exchange).unwrap();
                }
            });
            for root in [
                Root::open(&path, true).unwrap(),
                Root::open(&path, false).unwrap(),
            ] {
                let (mut found_count, mut tries) = (0, 0);
                let begin = Instant::now();
                // As long as it takes to find it once, where the thread that exchanges them stands still.
                while found_count == 0 || found_count < 500 && tries < 200_000 {
                    tries += 1;
                    let is_time = begin.elapsed() < Duration::from_secs(60);
                    assert!(is_time, "{:?}: never inside", root.way());
                    match outcome(&root, "a/swap/b/file") {
                        Ok(text) => {
                            assert_eq!(text, "inside");
                            found_count += 1;
                        }
                        Err(refusal) => assert!(
                            matches!(refusal, OpenRefusal::NotFound | OpenRefusal::Exhausted),
                            "{refusal:?}"
                        ),
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    /// Goal: a directory that is none, or missing, is an error when the server starts.
    #[test]
    fn a_root_is_a_directory() {
        let (home, path) = site();
        let error = |path: PathBuf| Root::open(&path, true).unwrap_err();
        assert_eq!(error(home.path().join("secret")), Errno::NOTDIR);
        assert_eq!(error(path.join("missing")), Errno::NOENT);
    }
}
