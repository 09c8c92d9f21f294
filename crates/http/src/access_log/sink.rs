//! The file behind an access log, or stdout.

use super::AccessLogTarget;
use super::writer::Sink;
use millpond_io::file_modes::share_new_file;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Opens the log; a file that is there is continued.
pub(super) fn open(target: &AccessLogTarget) -> io::Result<Box<dyn Sink>> {
    Ok(match target {
        AccessLogTarget::File(path) => Box::new(LogFile {
            file: open_file(path)?,
            path: path.clone(),
        }),
        // Not through the standard library's handle, which looks for line ends and has a lock.
        AccessLogTarget::Stdout => {
            Box::new(Stdout(io::stdout().as_fd().try_clone_to_owned()?.into()))
        }
    })
}

struct LogFile {
    file: File,
    path: PathBuf,
}

struct Stdout(File);

fn open_file(path: &Path) -> io::Result<File> {
    // Who asked for what concerns the server's group at most.
    const MODE: u32 = 0o640;
    let mut options = OpenOptions::new();
    options.append(true).mode(MODE);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            share_new_file(path, MODE)?;
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create(true).open(path)?
        }
        Err(error) => return Err(error),
    };
    if file.metadata()?.is_file() && ends_within_line(path)? {
        (&file).write_all(b"\n")?;
    }
    Ok(file)
}

/// Whether an earlier server was killed while it wrote: its last line must not swallow our first.
fn ends_within_line(path: &Path) -> io::Result<bool> {
    // A log that may be written and not read is fine: then nobody can know.
    let Ok(file) = File::open(path) else {
        return Ok(false);
    };
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.read_exact_at(&mut last, length - 1)?;
    }
    Ok(last != *b"\n")
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for LogFile {
    fn reopen(&mut self) -> io::Result<()> {
        self.file = open_file(&self.path)?;
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Stdout {
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "on stdout".to_owned()
    }
}
