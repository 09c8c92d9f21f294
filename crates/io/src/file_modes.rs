//! Modes of new files where a process keeps its data to its user: the umask is set for all of it, and what others are to
//! have (sockets, logs) gets the mode that it would have had without that.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{Mode, chmod};
use rustix::process::umask;

/// The umask before it was set.
static BEFORE: OnceLock<Mode> = OnceLock::new();

/// New files are for this process's user alone from now on, whatever makes them: libraries too. Call it before there
/// are threads that make files.
pub fn keep_files_private() {
    let before = umask(Mode::RWXG | Mode::RWXO);
    // A second call finds what the first one set.
    BEFORE.get_or_init(|| before);
}

/// Gives a new file the mode that it would have without [`keep_files_private`].
///
/// # Errors
/// The system's.
pub fn share_new_file(path: &Path, mode: u32) -> io::Result<()> {
    match BEFORE.get() {
        None => Ok(()),
        Some(&before) => Ok(chmod(path, Mode::from_raw_mode(mode) & !before)?),
    }
}
