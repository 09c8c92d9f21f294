//! A disk that fails on request, as a shared object to preload.
//!
//! It stands between a program and the kernel's files below one directory. The tests of `entity` give it to servers:
//! one call of a kind fails, or all from one on, and what was made to last is written into a journal, so that a test
//! can remove what a loss of power would. Settings are variables of the environment, read at the first call; without a
//! directory nothing is touched.
//!
//! | variable | meaning |
//! |---|---|
//! | `DISK_DIRECTORY=PATH` | files below it are counted, failed and written down; no symbolic links |
//! | `DISK_FAIL=KIND:N[+][:ENOSPC]` | the N-th call of a kind fails with EIO or ENOSPC; with `+` all later ones too |
//! | `DISK_ONLY=TEXT` | only calls on paths that contain it are counted and failed |
//! | `DISK_JOURNAL=FILE` | one line for each event (`journal`) |
//!
//! The kinds are `write` (half of its bytes arrive before it fails), `sync`, `rename`, `link` and
//! `create`.
#![cfg_attr(
    test,
    allow(dead_code, reason = "a test must not replace its own process's calls")
)]
#![allow(
    unsafe_code,
    reason = "what replaces a C function takes what its callers give"
)]

mod settings;
mod journal;

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use journal::Event;
use libc::{c_char, c_int, c_long, c_uint, iovec, mode_t, off_t, size_t, ssize_t};
use settings::{Kind, Settings};

/// A system call as the C library would make it: by number, because its names are ours here.
macro_rules! system_call {
    ($($argument:expr),+) => {
        // SAFETY: the number and the arguments of the C function that is replaced here, which its
        // caller promises to be good for it.
        unsafe { libc::syscall($($argument),+) }
    };
}

const PATH_BYTES_MAX: usize = 4096;

/// Hands over the file of a descriptor, if it lies below the directory. Without the heap: programs write
/// in signal handlers too.
fn with_file<R>(fd: c_int, see: impl FnOnce(&Settings, &Path) -> R) -> Option<R> {
    let settings = settings::get();
    let directory = settings.directory.as_deref()?;
    let mut name = [0; 32];
    let mut left = &mut name[..];
    std::io::Write::write_fmt(&mut left, format_args!("/proc/self/fd/{fd}\0")).ok()?;
    let mut room = [0_u8; PATH_BYTES_MAX];
    let len = system_call!(
        libc::SYS_readlinkat,
        libc::AT_FDCWD,
        name.as_ptr(),
        room.as_mut_ptr(),
        PATH_BYTES_MAX
    );
    let path = Path::new(OsStr::from_bytes(room.get(..usize::try_from(len).ok()?)?));
    path.starts_with(directory).then(|| see(settings, path))
}

/// The same of a name. Relative names are not watched.
fn with_name<R>(name: *const c_char, see: impl FnOnce(&Settings, &Path) -> R) -> Option<R> {
    let settings = settings::get();
    let directory = settings.directory.as_deref()?;
    // SAFETY: the caller passes what the C function takes: a string that ends in NUL.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    let path = Path::new(OsStr::from_bytes(bytes));
    path.starts_with(directory).then(|| see(settings, path))
}

/// Whether this call is one that fails; then the error is set.
fn fails(settings: &Settings, kind: Kind, path: &Path) -> bool {
    let Some(errno) = settings.failure(kind, path) else {
        return false;
    };
    journal::note(settings, &Event::Failed { kind, path });
    // SAFETY: the C library's errno of this thread, which is there as long as the thread is.
    unsafe { *libc::__errno_location() = errno };
    true
}

fn status(result: c_long) -> c_int {
    // 0, -1 or a descriptor.
    c_int::try_from(result).unwrap_or(-1)
}

/// Whether this write fails; `half` writes half of its bytes then.
fn write_fails(fd: c_int, half: impl FnOnce() -> c_long) -> bool {
    let fails = with_file(fd, |settings, path| {
        // The error is set after `half`, which may set another one.
        settings.failure(Kind::Write, path).inspect(|_| {
            let kind = Kind::Write;
            journal::note(settings, &Event::Failed { kind, path });
        })
    });
    let Some(errno) = fails.flatten() else {
        return false;
    };
    half();
    // SAFETY: the C library's errno of this thread, which is there as long as the thread is.
    unsafe { *libc::__errno_location() = errno };
    true
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn write(fd: c_int, bytes: *const u8, len: size_t) -> ssize_t {
    let half = || system_call!(libc::SYS_write, fd, bytes, len / 2);
    if write_fails(fd, half) {
        return -1;
    }
    system_call!(libc::SYS_write, fd, bytes, len) as ssize_t
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn pwrite(fd: c_int, bytes: *const u8, len: size_t, offset: off_t) -> ssize_t {
    let half = || system_call!(libc::SYS_pwrite64, fd, bytes, len / 2, offset);
    if write_fails(fd, half) {
        return -1;
    }
    system_call!(libc::SYS_pwrite64, fd, bytes, len, offset) as ssize_t
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn pwrite64(fd: c_int, bytes: *const u8, len: size_t, offset: off_t) -> ssize_t {
    pwrite(fd, bytes, len, offset)
}

/// Nothing of it arrives when it fails: half of many pieces would be a third way.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn writev(fd: c_int, pieces: *const iovec, piece_count: c_int) -> ssize_t {
    if write_fails(fd, || 0) {
        return -1;
    }
    system_call!(libc::SYS_writev, fd, pieces, piece_count) as ssize_t
}

/// The calls that copy a file.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    if write_fails(to, || 0) {
        return -1;
    }
    system_call!(
        libc::SYS_copy_file_range,
        from,
        from_offset,
        to,
        to_offset,
        len,
        flags
    ) as ssize_t
}

/// The call makes durable the data that was written before it began.
fn sync(fd: c_int, call: impl FnOnce() -> c_long) -> c_int {
    let length_bytes = with_file(fd, |settings, path| {
        (!fails(settings, Kind::Sync, path)).then(|| length_of(fd))
    });
    if length_bytes == Some(None) {
        return -1;
    }
    let result = call();
    if let Some(Some(Some(length_bytes))) = length_bytes
        && result == 0
    {
        with_file(fd, |settings, path| {
            journal::note(settings, &Event::Synced { path, length_bytes });
        });
    }
    status(result)
}

/// Of a file; a directory has none.
fn length_of(fd: c_int) -> Option<u64> {
    // SAFETY: all zeros are a `stat`.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `found` is a `stat` of ours to write into; a bad descriptor gives an error.
    let result = unsafe { libc::fstat(fd, &raw mut found) };
    let is_file = found.st_mode & libc::S_IFMT == libc::S_IFREG;
    (result == 0 && is_file).then(|| u64::try_from(found.st_size).ok())?
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, || system_call!(libc::SYS_fsync, fd))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, || system_call!(libc::SYS_fdatasync, fd))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    if with_name(to, |settings, to| fails(settings, Kind::Rename, to)) == Some(true) {
        return -1;
    }
    let cwd = libc::AT_FDCWD;
    let result = system_call!(libc::SYS_renameat2, cwd, from, cwd, to, 0);
    if result == 0 {
        note_both(from, to, |from, to| Event::Renamed { from, to });
    }
    status(result)
}

fn note_both(
    from: *const c_char,
    to: *const c_char,
    event: impl for<'a> FnOnce(&'a Path, &'a Path) -> Event<'a>,
) {
    with_name(from, |settings, from| {
        with_name(to, |_, to| journal::note(settings, &event(from, to)));
    });
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    if with_name(to, |settings, to| fails(settings, Kind::Link, to)) == Some(true) {
        return -1;
    }
    let cwd = libc::AT_FDCWD;
    let result = system_call!(libc::SYS_linkat, cwd, from, cwd, to, 0);
    if result == 0 {
        note_both(from, to, |from, to| Event::Linked { from, to });
    }
    status(result)
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if flags & libc::O_CREAT != 0 {
        let created = with_name(name, |settings, path| {
            if fails(settings, Kind::Create, path) {
                return false;
            }
            if flags & libc::O_TRUNC != 0 || !path.exists() {
                journal::note(settings, &Event::Created { path });
            }
            true
        });
        if created == Some(false) {
            return -1;
        }
    }
    status(system_call!(
        libc::SYS_openat,
        libc::AT_FDCWD,
        name,
        flags,
        mode
    ))
}

#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn open64(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open(name, flags, mode)
}
