//! A file on its way: its next bytes from the kernel's memory to the client.
//!
//! ```text
//! head, first block   read, written into the answer                    one send for both
//! the rest            straight from the file to the socket             in memory, and the client reads
//!                     read and written, a block at a time              the client is slow, or TLS
//!                     read by the disk thread                          not in memory
//! ```
//! Memory per transfer is the connection's output, one block of 32 KiB, and another while the disk
//! thread reads. `preadv2` with `RWF_NOWAIT` takes what is in the page cache; what is not is asked
//! of the disk thread, so no shard waits for a disk.
//!
//! Absent on purpose: protection of bytes on their way. What goes straight to the socket is the file's
//! own pages: who overwrites a file in place changes what its readers get. Replace it by renaming.

use crate::response::Response;
use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most that is read at once.
pub(super) const PART_BYTES: usize = 32 * 1024;

/// The most that goes straight to the socket in one turn: some ten microseconds.
const FILE_TURN_BYTES: u64 = 128 * 1024;

/// Less room than this is not worth a read, unless it is enough.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// Which bytes of which file are still to be sent. Without a file the disk thread has it.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) file: Option<OwnedFd>,
    pub(super) at: u64,
    pub(super) end: u64,
}

/// How far a transfer came.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// All bytes are written.
    Complete,
    /// The output is full.
    NeedsRoom,
    /// The next bytes are on the disk.
    NeedsDisk,
    /// The file is shorter than announced, unreadable, or there is no memory: the answer cannot be
    /// completed.
    Broken,
}

impl Transfer {
    /// Writes as much as there is room for and memory holds.
    pub(super) fn advance(&mut self, response: &mut Response<'_>, scratch: &mut [u8]) -> Step {
        let turn_bytes = FILE_TURN_BYTES.min(self.end - self.at);
        if self.send_file(response, turn_bytes) == turn_bytes {
            return match self.at == self.end {
                true => Step::Complete,
                false => Step::NeedsRoom,
            };
        }
        self.write_parts(response, scratch)
    }

    /// Sends up to so many bytes past the answer, as far as that is possible; the last ones are left
    /// for the usual way if they fit into one part.
    fn send_file(&mut self, response: &mut Response<'_>, turn_bytes: u64) -> u64 {
        let Some(file) = self
            .file
            .as_ref()
            .filter(|_| turn_bytes > PART_BYTES as u64)
        else {
            return 0;
        };
        let sent_bytes = response.send_file(file.as_fd(), self.at..self.at + turn_bytes);
        self.at += sent_bytes;
        sent_bytes
    }

    fn write_parts(&mut self, response: &mut Response<'_>, scratch: &mut [u8]) -> Step {
        loop {
            let left_bytes = self.end - self.at;
            let part_bytes = left_bytes
                .min(response.room_bytes() as u64)
                .min(scratch.len() as u64) as usize;
            if left_bytes == 0 {
                return Step::Complete;
            }
            if part_bytes < ROOM_BYTES_MIN && (part_bytes as u64) < left_bytes {
                return Step::NeedsRoom;
            }
            let Some(file) = &self.file else {
                return Step::Broken;
            };
            match read_cached(file, &mut scratch[..part_bytes], self.at) {
                Ok(0) => return Step::Broken,
                Ok(count) => {
                    if !self.write(&scratch[..count], response) {
                        return Step::Broken;
                    }
                }
                // The others: a file system, an emulator or an old kernel that cannot tell.
                Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS) => return Step::NeedsDisk,
                Err(Errno::INTR) => {}
                Err(_) => return Step::Broken,
            }
        }
    }

    /// Writes the next bytes. False: the answer cannot be completed.
    pub(super) fn write(&mut self, bytes: &[u8], response: &mut Response<'_>) -> bool {
        self.at += bytes.len() as u64;
        response.write(bytes).is_ok()
    }
}

/// File systems that are memory: their kernel code knows no `RWF_NOWAIT`, and has nothing to wait for
/// (but for what was swapped out).
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// Reads what is in memory; `EAGAIN` when the first byte is not, `EOPNOTSUPP` or `ENOSYS` where nobody
/// can tell.
pub(super) fn read_cached(file: impl AsFd, room: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let file = file.as_fd();
    let read = preadv2(
        file,
        &mut [IoSliceMut::new(room)],
        offset,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) if is_memory(file) => pread(file, room, offset),
        read => read,
    }
}

fn is_memory(file: BorrowedFd<'_>) -> bool {
    // The width of the magic number depends on the platform.
    fstatfs(file).is_ok_and(|system| matches!(system.f_type as u64, TMPFS_MAGIC | RAMFS_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of a file on tmpfs went through the disk thread, and its small files were never
    /// cached: the kernel refuses `RWF_NOWAIT` there. Goal: they are read at once.
    #[test]
    fn files_in_memory_are_read_at_once() {
        let Ok(memory) = rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::CLOEXEC) else {
            // A sandbox without memfd; where it is, it lies on a tmpfs of the kernel's own.
            return;
        };
        assert_eq!(rustix::io::write(&memory, b"0123456789"), Ok(10));
        let mut room = [0; 4];
        assert_eq!(read_cached(&memory, &mut room, 3), Ok(4));
        assert_eq!(&room, b"3456");
        assert_eq!(read_cached(&memory, &mut room, 8), Ok(2));
        assert_eq!(read_cached(&memory, &mut room, 10), Ok(0));
    }
}
