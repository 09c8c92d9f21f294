//! Room on the disk of a directory: what writes leave of it, memtables that fit, and when the engine is opened again to
//! get some back.

use std::path::Path;
use std::time::{Duration, Instant};

use millpond_http::log::{self, LogLevel};

use super::rocksdb::RocksDbOptions;

/// With less a memtable would be written out after a few hundred values.
const MEMTABLE_BYTES_MIN: u64 = 3 << 20;

/// From one opening for want of room to the next: requests are refused meanwhile, for some milliseconds. Doubled as long
/// as the disk stays full.
const ROOM_REOPENING_WAIT_MIN: Duration = Duration::from_secs(5);
const ROOM_REOPENING_WAIT_MAX: Duration = Duration::from_secs(300);

/// When the engine may be opened again because its merges were refused for want of room.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoomReopening {
    next: Instant,
    wait: Duration,
}

impl RoomReopening {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now(),
            wait: ROOM_REOPENING_WAIT_MIN,
        }
    }

    /// Whether it may be now.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.next
    }

    /// It is opened again now.
    pub(super) fn begin(&mut self) {
        self.next = Instant::now() + self.wait;
        self.wait = (2 * self.wait).min(ROOM_REOPENING_WAIT_MAX);
    }
}

/// What the engine's write-ahead logs hold.
pub(super) fn log_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else {
        return 0;
    };
    let logs = entries.filter_map(Result::ok).filter(|entry| {
        let name = entry.path();
        name.extension().is_some_and(|kind| kind == "log")
    });
    logs.filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}

/// Room that writes leave on a disk of that size. Memtables are written out beside the logs that they come from, which are
/// as much again, and merging takes what it gives back first: the first level is 256 MiB, and what lies over it is not
/// much more. Of a small disk it is a sixteenth, but what memtables and their logs may take in any case.
pub(super) fn default_reserve_bytes(memtable_bytes: u64, whole_bytes: u64) -> u64 {
    let written_bytes = memtable_bytes.saturating_mul(2);
    let merging_bytes = 1 << 30;
    (whole_bytes / 16)
        .max(written_bytes)
        .min(written_bytes.saturating_add(merging_bytes))
}

/// Memtables that fit on the disk of `path` beside their logs, with as much left for tables as for both: what `asked`
/// says, or less, with a line about it. Whoever says how much room is to be left has reckoned.
pub(super) fn fitting_memtables(path: &Path, asked: RocksDbOptions) -> RocksDbOptions {
    let Ok(found) = rustix::fs::statvfs(path) else {
        return asked;
    };
    let whole_bytes = found.f_blocks.saturating_mul(found.f_frsize);
    let fitting_bytes = (whole_bytes / 8).max(MEMTABLE_BYTES_MIN);
    if asked.disk_reserve_bytes.is_some() || asked.memtable_bytes <= fitting_bytes {
        return asked;
    }
    log::write(
        LogLevel::Warn,
        format_args!(
            "memory for writes is {} MiB in place of {}: the disk of {} has {} MiB, and they are written out beside \
             their logs (--memtable, --disk-reserve)",
            fitting_bytes >> 20,
            asked.memtable_bytes >> 20,
            path.display(),
            whole_bytes >> 20
        ),
    );
    RocksDbOptions {
        memtable_bytes: fitting_bytes,
        ..asked
    }
}
