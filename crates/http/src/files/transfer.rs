//! A file on its way: its next bytes from the kernel's memory into the answer, a block at a time.
//!
//! Memory per transfer is the connection's output, one block of 32 KiB, and another while the disk
//! thread reads. `preadv2` with `RWF_NOWAIT` takes what is in the page cache; what is not is asked
//! of the disk thread, so no shard waits for a disk.
//!
//! Absent on purpose: `sendfile` and `splice`. They need a socket's descriptor, which a driver does not
//! give, and would save about an eighth of the CPU time for each byte (measured against nginx with
//! `sendfile`, over loopback): to be added as an operation of the drivers.

use crate::response::Response;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

/// The most that is read at once.
pub(super) const PART_BYTES: usize = 32 * 1024;

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
                // The second: a file system that cannot tell.
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Step::NeedsDisk,
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

/// Reads what is in memory; `EAGAIN` when the first byte is not.
pub(super) fn read_cached(file: impl AsFd, room: &mut [u8], offset: u64) -> Result<usize, Errno> {
    preadv2(
        file,
        &mut [IoSliceMut::new(room)],
        offset,
        ReadWriteFlags::NOWAIT,
    )
}
