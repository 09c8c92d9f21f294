//! A request's path as the name of a file: decoded once, and refused if it is no plain name.
//!
//! The service decodes here, finds the name in `cache`, and opens it beneath the root. Names refused here never reach
//! the kernel.
//!
//! `..`, `.` and empty segments are what a client removes before it asks (RFC 3986 5.2.4), so one
//! that sends them probes. Escaped slashes and NULs name no file.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use millpond_io::{Mailbox, MailboxSender, Waker};
use millpond_mempool::{Arena, Buffer, PoolError, flush_remote_frees};
use rustix::fs::{
    Advice, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fadvise, fstat, openat, openat2,
};
use rustix::io::Errno;

use crate::error::HelperThread;
use crate::head_text::FieldValue;
use crate::log::LogLevel;
use crate::service::RequestToken;
use crate::{error, log};

use super::selection::Version;

/// The file sent for a directory.
pub(super) const INDEX: &[u8] = b"index.html";

/// The one directory with a dot whose files are public: RFC 8615.
const WELL_KNOWN: &[u8] = b".well-known";

/// The name of a file, relative to the root. Never empty, never absolute, no `.`, `..` or empty
/// segment and no NUL in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FilePath<'a> {
    pub(super) relative: &'a [u8],
    /// The request named a directory, and this is its index.
    pub(super) is_index: bool,
}

/// Why a path names no file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PathRefusal {
    /// Not a plain path: 400.
    Malformed,
    /// A name that begins with a dot, which is not served: 404, as if it did not exist.
    Hidden,
    /// No memory to decode it: 503.
    Memory,
}

impl From<PoolError> for PathRefusal {
    fn from(_: PoolError) -> Self {
        Self::Memory
    }
}

impl<'a> FilePath<'a> {
    /// Reads the path of a target. One without escapes is not copied, unless it names a directory.
    pub(super) fn decode(path: &'a [u8], arena: &'a Arena) -> Result<Self, PathRefusal> {
        let Some(escaped) = path.strip_prefix(b"/") else {
            return Err(PathRefusal::Malformed);
        };
        let is_index = escaped.is_empty() || escaped.ends_with(b"/");
        let segments = escaped.strip_suffix(b"/").unwrap_or(escaped);
        if segments.is_empty() {
            // "//" has an empty segment; "/" has none.
            return match escaped {
                [] => Ok(Self {
                    relative: INDEX,
                    is_index,
                }),
                _ => Err(PathRefusal::Malformed),
            };
        }
        // A backslash is no byte of a URI, and a slash to some browsers that follow a redirect.
        if memchr::memchr2(b'\\', 0, segments).is_some() {
            return Err(PathRefusal::Malformed);
        }
        let relative = if is_index || memchr::memchr(b'%', segments).is_some() {
            let room = arena.alloc_slice(segments.len() + 1 + INDEX.len())?;
            let mut end = decode_into(segments, room)?;
            if is_index {
                room[end] = b'/';
                room[end + 1..][..INDEX.len()].copy_from_slice(INDEX);
                end += 1 + INDEX.len();
            }
            &room[..end]
        } else {
            segments
        };
        check_segments(relative)?;
        Ok(Self { relative, is_index })
    }
}

/// Undoes percent-encoding; `room` is at least as long as `escaped`.
fn decode_into(escaped: &[u8], room: &mut [u8]) -> Result<usize, PathRefusal> {
    let mut rest = escaped;
    let mut end = 0;
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
                if matches!(byte, 0 | b'/') {
                    return Err(PathRefusal::Malformed);
                }
                (byte, after)
            }
            (b'%', _) => return Err(PathRefusal::Malformed),
            _ => (*first, after),
        };
        room[end] = byte;
        end += 1;
        rest = after;
    }
    Ok(end)
}

fn hex_digit(digit: u8) -> Result<u8, PathRefusal> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(PathRefusal::Malformed),
    }
}

fn check_segments(relative: &[u8]) -> Result<(), PathRefusal> {
    let mut refusal = None;
    for (index, segment) in relative.split(|&byte| byte == b'/').enumerate() {
        if matches!(segment, b"" | b"." | b"..") {
            return Err(PathRefusal::Malformed);
        }
        if segment[0] == b'.' && !(index == 0 && segment == WELL_KNOWN) {
            refusal = Some(PathRefusal::Hidden);
        }
    }
    refusal.map_or(Ok(()), Err)
}

// Media type of a file, by the end of its name.
//
// Kept here, because it is short: the types a browser acts upon and those it must not guess. Text is declared as UTF-8,
// the default of every editor.

/// For a name with an unknown end.
const UNKNOWN: &str = "application/octet-stream";

/// Longest extension in the table.
const EXTENSION_BYTES_MAX: usize = 11;

/// The media type of a file with this name.
pub(super) fn media_type(relative: &[u8]) -> FieldValue<'static> {
    FieldValue::known(name_of(relative).as_bytes())
}

fn name_of(relative: &[u8]) -> &'static str {
    let name = relative
        .rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or(relative);
    let Some(dot) = memchr::memrchr(b'.', name).filter(|&dot| dot > 0) else {
        return UNKNOWN;
    };
    let extension = &name[dot + 1..];
    let mut lower = [0; EXTENSION_BYTES_MAX];
    let Some(lower) = lower.get_mut(..extension.len()) else {
        return UNKNOWN;
    };
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    of_extension(lower)
}

fn of_extension(extension: &[u8]) -> &'static str {
    match extension {
        b"html" | b"htm" => "text/html; charset=utf-8",
        b"css" => "text/css; charset=utf-8",
        b"js" | b"mjs" => "text/javascript; charset=utf-8",
        b"txt" | b"text" | b"log" => "text/plain; charset=utf-8",
        b"md" | b"markdown" => "text/markdown; charset=utf-8",
        b"csv" => "text/csv; charset=utf-8",
        b"ics" => "text/calendar; charset=utf-8",
        b"vtt" => "text/vtt; charset=utf-8",
        b"json" | b"map" => "application/json",
        b"jsonld" => "application/ld+json",
        b"webmanifest" => "application/manifest+json",
        b"xml" => "application/xml",
        b"xhtml" => "application/xhtml+xml",
        b"rss" => "application/rss+xml",
        b"atom" => "application/atom+xml",
        b"wasm" => "application/wasm",
        b"pdf" => "application/pdf",
        b"rtf" => "application/rtf",
        b"epub" => "application/epub+zip",
        b"zip" => "application/zip",
        b"gz" | b"tgz" => "application/gzip",
        b"bz2" => "application/x-bzip2",
        b"xz" => "application/x-xz",
        b"zst" => "application/zstd",
        b"7z" => "application/x-7z-compressed",
        b"tar" => "application/x-tar",
        b"jar" => "application/java-archive",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        b"apng" => "image/apng",
        b"jpg" | b"jpeg" => "image/jpeg",
        b"gif" => "image/gif",
        b"webp" => "image/webp",
        b"avif" => "image/avif",
        b"ico" => "image/x-icon",
        b"bmp" => "image/bmp",
        b"tif" | b"tiff" => "image/tiff",
        b"jxl" => "image/jxl",
        b"woff" => "font/woff",
        b"woff2" => "font/woff2",
        b"ttf" => "font/ttf",
        b"otf" => "font/otf",
        b"mp3" => "audio/mpeg",
        b"oga" | b"ogg" | b"opus" => "audio/ogg",
        b"wav" => "audio/wav",
        b"flac" => "audio/flac",
        b"m4a" => "audio/mp4",
        b"aac" => "audio/aac",
        b"weba" => "audio/webm",
        b"mp4" | b"m4v" => "video/mp4",
        b"mpeg" => "video/mpeg",
        b"webm" => "video/webm",
        b"ogv" => "video/ogg",
        b"mov" => "video/quicktime",
        b"ts" => "video/mp2t",
        b"m3u8" => "application/vnd.apple.mpegurl",
        _ => UNKNOWN,
    }
}

// Opening files beneath one directory and nowhere else.
//
// The kernel resolves names with `openat2`: symbolic links are followed as long as they stay beneath
// the root at every step, however directories and links are exchanged meanwhile. An absolute link
// leaves the root by definition, as do the links of `/proc`. Where `openat2` is missing (Linux
// before 5.6) or forbidden (some sandboxes), each segment is opened by itself without following any
// link, which is as safe and serves less.

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

/// The object that a name leads to.
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
    /// Return [`OpenRefusal::NotCached`] instead.
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
                // The kernel could not decide, because of a rename, or without reading the disk.
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

// The directory that is served, resolved again by its name every second.
//
// A release that is switched by a link, or a directory that is made anew, is served from then on; while the name leads
// nowhere the last directory stays. Shards compare a number with each request and take the new directory when it has
// changed: they hold no lock and resolve no name.

/// How old the response may be where the name leads.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// State shared by the shards and the thread that resolves the name.
#[derive(Debug)]
struct DiskShared {
    path: PathBuf,
    follows_links: bool,
    current: Mutex<Arc<Root>>,
    /// Grows when `current` changes.
    generation: AtomicU64,
}

/// A root that is resolved again by its name.
#[derive(Debug)]
pub(super) struct FollowedRoot {
    shared: Arc<DiskShared>,
    /// The thread ends when this is dropped.
    _stop: Option<Sender<()>>,
}

impl FollowedRoot {
    /// Follows the name from now on; `is_pinned`: whatever it leads to now stays.
    pub(super) fn start(
        root: Root,
        path: &Path,
        follows_links: bool,
        is_pinned: bool,
    ) -> Result<Self, std::io::Error> {
        let shared = Arc::new(DiskShared {
            path: path.to_owned(),
            follows_links,
            current: Mutex::new(Arc::new(root)),
            generation: AtomicU64::new(0),
        });
        if is_pinned {
            return Ok(Self {
                shared,
                _stop: None,
            });
        }
        let (stop, stopped) = channel();
        let for_thread = Arc::clone(&shared);
        Builder::new()
            .name("files-root".to_owned())
            .spawn(move || follow(&for_thread, &stopped))?;
        Ok(Self {
            shared,
            _stop: Some(stop),
        })
    }

    /// Which directory it is now: a number for [`Self::current`].
    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    pub(super) fn current(&self) -> Arc<Root> {
        Arc::clone(
            &self
                .shared
                .current
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

fn follow(shared: &DiskShared, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        error::catch(HelperThread::FilesDisk, || shared.look());
    }
}

impl DiskShared {
    fn look(&self) {
        let Ok(found) = Root::open(&self.path, self.follows_links) else {
            return;
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // The one that is held keeps its inode from being given to another.
        let identity = |root: &Root| {
            let stat = fstat(root.directory());
            stat.map(|Stat { st_dev, st_ino, .. }| (st_dev, st_ino))
        };
        if identity(&found) == identity(&current) {
            return;
        }
        *current = Arc::new(found);
        self.generation.fetch_add(1, Ordering::Release);
        log::write(
            LogLevel::Info,
            format_args!(
                "{} leads to another directory, which is served now",
                self.path.display()
            ),
        );
    }
}

// The thread on which a shard's waiting for the disk is done.

/// How far the kernel is asked to read ahead of a read that had to wait.
const READ_AHEAD_BYTES: u64 = 512 * 1024;

/// Something that may wait.
#[derive(Debug)]
pub(super) enum Work {
    /// Open the file of this name beneath this directory.
    Open { root: Arc<Root>, name: Buffer },
    /// Read so many bytes into the buffer; fewer at the end of the file.
    Read {
        file: OwnedFd,
        offset: u64,
        bytes_max: usize,
        buffer: Buffer,
    },
}

/// Its result.
#[derive(Debug)]
pub(super) enum DiskResult {
    Opened(Result<Opened, OpenRefusal>),
    Read {
        file: OwnedFd,
        bytes: Result<Buffer, Errno>,
    },
}

#[derive(Debug)]
struct Job {
    token: RequestToken,
    state: u64,
    work: Work,
}

/// Result of a job, with the names it was given.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) token: RequestToken,
    pub(super) state: u64,
    pub(super) outcome: DiskResult,
}

/// The shard's end.
pub(super) struct Disk {
    /// Taken when dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    answers: Mailbox<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// Starts the thread.
    pub(super) fn start(shard_index: usize, waker: Waker) -> Result<Self, std::io::Error> {
        let (jobs, queue) = channel();
        let (sender, answers) = Mailbox::new(usize::MAX, waker);
        let thread = Builder::new()
            .name(format!("files-{shard_index}-disk"))
            .spawn(move || work(&queue, &sender))?;
        Ok(Self {
            jobs: Some(jobs),
            answers,
            thread: Some(thread),
        })
    }

    /// Hands a job over. False: the thread is gone.
    pub(super) fn submit(&self, token: RequestToken, state: u64, work: Work) -> bool {
        let job = Job { token, state, work };
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }

    /// Moves all responses into `answers`.
    pub(super) fn drain_into(&self, answers: &mut Vec<Answer>) {
        self.answers.drain_into(answers);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it is noted where it happens.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Receiver<Job>, answers: &MailboxSender<Answer>) {
    while let Ok(Job { token, state, work }) = queue.recv() {
        let outcome = match work {
            Work::Open { root, name } => {
                let look_up = || root.look_up(&name, Patience::Disk);
                let opened = error::catch(HelperThread::FilesDisk, look_up)
                    .unwrap_or(Err(OpenRefusal::Failed));
                drop(name);
                // Blocks of the shard freed here go home now, not with a batch that never fills.
                flush_remote_frees();
                DiskResult::Opened(opened)
            }
            Work::Read {
                file,
                offset,
                bytes_max,
                buffer,
            } => {
                let read = || read(&file, offset, bytes_max, buffer);
                let bytes = error::catch(HelperThread::FilesDisk, read).unwrap_or(Err(Errno::IO));
                DiskResult::Read { file, bytes }
            }
        };
        let answer = Answer {
            token,
            state,
            outcome,
        };
        // The mailbox has no limit, and a shard that is gone needs no response.
        let _ = answers.send(answer);
    }
}

fn read(
    file: &OwnedFd,
    offset: u64,
    bytes_max: usize,
    mut buffer: Buffer,
) -> Result<Buffer, Errno> {
    // Advice only: a file system without it reads as it can.
    let _ = fadvise(
        file,
        offset,
        NonZeroU64::new(READ_AHEAD_BYTES),
        Advice::WillNeed,
    );
    #[cfg(test)]
    assert!(offset != disk_tests::PANIC_OFFSET, "planted panic");
    while buffer.len() < bytes_max {
        let at = offset + buffer.len() as u64;
        let left_bytes = bytes_max - buffer.len();
        let filled = buffer.fill_from(|room| {
            let (filled, _) = rustix::io::pread(file, &mut room[..left_bytes], at)?;
            Ok::<_, Errno>(filled)
        });
        match filled {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(buffer)
}

#[cfg(test)]
#[path = "tests/path.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/media_type.rs"]
mod media_type_tests;

#[cfg(test)]
#[path = "tests/root.rs"]
mod root_tests;

#[cfg(test)]
#[path = "tests/followed_root.rs"]
mod followed_root_tests;

#[cfg(test)]
#[path = "tests/disk.rs"]
mod disk_tests;
