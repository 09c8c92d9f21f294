//! Accepting sockets, one per shard.
//!
//! The first stop of every connection. Shards listen side by side on one port (`SO_REUSEPORT`) and the kernel spreads
//! connections over them. Options that accepted sockets inherit are set once here.

use crate::address::Address;
use crate::error::IoError;
use crate::file_modes::share_new_file;
use crate::handed_over;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with, sockopt,
};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Connections that may wait for acceptance. A short queue drops SYNs, and a client that lost
/// one waits a second before the next: the usual cause of latency tails at 1, 3 and 7 s.
pub const BACKLOG: i32 = 4096;

/// How long a killed process's remaining sockets may keep an address, and the interval of retries.
const LEFTOVER_MAX: Duration = Duration::from_secs(1);
const LEFTOVER_STEP: Duration = Duration::from_millis(20);

/// Of a socket, before the umask.
const SOCKET_MODE: u32 = 0o777;

/// How to listen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListenOptions {
    /// Other sockets of this user may listen on the same port; the kernel spreads connections. A
    /// unix path is taken over from the process that listens there.
    pub reuse_port: bool,
    /// Connections that may wait for acceptance; the kernel caps it at `net.core.somaxconn`.
    pub backlog: i32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            backlog: BACKLOG,
        }
    }
}

/// A socket that listens. `Send`: bound on the main thread, where errors are reported, and moved to its shard.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
    /// Removes a unix socket's path when the last listener on it is gone.
    path: Option<Arc<BoundPath>>,
    /// Counts the listeners of a [`crate::PortShare`].
    _share: Option<Arc<()>>,
}

impl Listener {
    /// Listens on `address`; port 0 picks a free port, see [`Self::local_address`].
    pub fn bind(address: &Address, options: ListenOptions) -> Result<Self, IoError> {
        match address {
            Address::Inet(inet) => Self::bind_inet(*inet, options),
            Address::Unix(path) => Self::bind_unix(path, options),
        }
    }

    /// One listener for each of `count` shards, all on the same address.
    ///
    /// Unlike [`Self::bind`] with `reuse_port` this refuses a port on which another program,
    /// perhaps an older run of the same one, listens with `SO_REUSEPORT` too.
    ///
    /// An address that is taken is asked for again for up to a second. The kernel takes the ring of
    /// a killed process apart some time after the process is gone, and as long as the ring accepts,
    /// the address is taken: by no process that could be stopped, and for 90 ms on a busy machine.
    pub fn bind_group(address: &Address, count: usize, backlog: i32) -> Result<Vec<Self>, IoError> {
        let give_up = Instant::now() + LEFTOVER_MAX;
        let pause = || {
            let goes_on = Instant::now() < give_up;
            if goes_on {
                thread::sleep(LEFTOVER_STEP);
            }
            goes_on
        };
        once_free(|| Self::bind_group_now(address, count, backlog), pause)
    }

    fn bind_group_now(address: &Address, count: usize, backlog: i32) -> Result<Vec<Self>, IoError> {
        let options = ListenOptions {
            // The shards of a unix address share one socket.
            reuse_port: count > 1 && address.inet().is_some(),
            backlog,
        };
        if count > 1 && address.inet().is_some_and(|inet| inet.port() != 0) {
            // Bound and closed again without ever listening, so no connection is lost in it.
            bound_inet(
                address,
                ListenOptions {
                    reuse_port: false,
                    ..options
                },
            )?;
        }
        Self::group(address, count, options)
    }

    /// One listener for each of `count` shards, whatever else is there.
    pub(crate) fn group(
        address: &Address,
        count: usize,
        options: ListenOptions,
    ) -> Result<Vec<Self>, IoError> {
        let mut group = Vec::with_capacity(count);
        for _ in 0..count {
            let next = match group.first() {
                None => Self::bind(address, options)?,
                Some(first) => Self::beside(first, options)?,
            };
            group.push(next);
        }
        Ok(group)
    }

    /// A socket that listens already: the process that opened it keeps its path and its port.
    pub(crate) fn handed_over(fd: OwnedFd, address: Address) -> Self {
        Self {
            fd,
            address,
            path: None,
            _share: None,
        }
    }

    /// Where it listens, with the port the kernel picked.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        &self.address
    }

    /// The path of a unix socket.
    pub(crate) fn bound_path(&self) -> Option<Arc<BoundPath>> {
        self.path.clone()
    }

    /// Lets the holder of `token` see that this listener is there.
    pub(crate) fn share(&mut self, token: &Arc<()>) {
        self._share = Some(Arc::clone(token));
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Another listener on the address of `first`: its own queue for TCP, the same for unix.
    fn beside(first: &Self, options: ListenOptions) -> Result<Self, IoError> {
        if first.address.inet().is_some() {
            return Self::bind(&first.address, options);
        }
        let fd = first.fd.try_clone().map_err(|error| IoError::Listen {
            address: first.address.clone(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        })?;
        Ok(Self {
            fd,
            address: first.address.clone(),
            path: first.path.clone(),
            _share: None,
        })
    }

    fn bind_inet(inet: SocketAddr, options: ListenOptions) -> Result<Self, IoError> {
        let wanted = Address::Inet(inet);
        let fd = bound_inet(&wanted, options)?;
        let failed = |error| listen_error(&wanted, error);
        handed_over::set(&fd).map_err(failed)?;
        listen(&fd, options.backlog).map_err(failed)?;
        let local = getsockname(&fd)
            .and_then(SocketAddr::try_from)
            .map_err(failed)?;
        Ok(Self {
            fd,
            address: Address::Inet(local),
            path: None,
            _share: None,
        })
    }

    fn bind_unix(path: &Path, options: ListenOptions) -> Result<Self, IoError> {
        let address = Address::Unix(path.to_owned());
        let failed = |error| listen_error(&address, error);
        let io_failed = |error: std::io::Error| {
            failed(Errno::from_io_error(&error).unwrap_or(Errno::ADDRINUSE))
        };
        let name = unix_name(&address, path)?;
        let fd = stream_socket(AddressFamily::UNIX).map_err(failed)?;
        match bind(&fd, &name) {
            Err(Errno::ADDRINUSE) if options.reuse_port && is_socket(path) => {
                // A client that connects finds the old socket or the new one, never neither: so it
                // listens before it takes the path over.
                let mut beside = path.as_os_str().to_owned();
                beside.push(format!(".{}", std::process::id()));
                let beside = PathBuf::from(beside);
                bind(&fd, &unix_name(&address, &beside)?).map_err(failed)?;
                share_new_file(&beside, SOCKET_MODE).map_err(io_failed)?;
                listen(&fd, options.backlog).map_err(failed)?;
                std::fs::rename(&beside, path).map_err(io_failed)?;
            }
            Err(Errno::ADDRINUSE) if is_abandoned(path, &name) => {
                std::fs::remove_file(path).map_err(io_failed)?;
                bind(&fd, &name).map_err(failed)?;
                share_new_file(path, SOCKET_MODE).map_err(io_failed)?;
                listen(&fd, options.backlog).map_err(failed)?;
            }
            outcome => {
                outcome.map_err(failed)?;
                share_new_file(path, SOCKET_MODE).map_err(io_failed)?;
                listen(&fd, options.backlog).map_err(failed)?;
            }
        }
        Ok(Self {
            fd,
            path: Some(Arc::new(BoundPath::now_at(path))),
            address,
            _share: None,
        })
    }
}

/// Retries while the address is in use, until `pause` returns that this was long enough.
fn once_free<T>(
    mut bind: impl FnMut() -> Result<T, IoError>,
    mut pause: impl FnMut() -> bool,
) -> Result<T, IoError> {
    loop {
        match bind() {
            Err(IoError::AddressTaken { .. }) if pause() => {}
            outcome => return outcome,
        }
    }
}

/// A path of ours in the file system.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    /// Device and inode of the path. `None`: it does not exist any more.
    identity: Option<(u64, u64)>,
}

impl BoundPath {
    fn now_at(path: &Path) -> Self {
        Self {
            identity: identity_at(path),
            path: path.to_owned(),
        }
    }

    /// Whether another socket has taken the path over.
    pub(crate) fn is_superseded(&self) -> bool {
        let now = identity_at(&self.path);
        now.is_some() && now != self.identity
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.identity.is_some() && identity_at(&self.path) == self.identity {
            // Another process may have removed it in between; nothing is left to do then.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn identity_at(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// The kernel's form of a unix address.
pub(crate) fn unix_name(address: &Address, path: &Path) -> Result<SocketAddrUnix, IoError> {
    SocketAddrUnix::new(path).map_err(|_| IoError::PathUnusable {
        address: address.clone(),
    })
}

/// A non-blocking stream socket that children do not inherit.
pub(crate) fn stream_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}

/// The family of an IP address.
pub(crate) fn inet_family(inet: SocketAddr) -> AddressFamily {
    if inet.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    }
}

/// A TCP socket that holds the port and does not listen yet.
fn bound_inet(address: &Address, options: ListenOptions) -> Result<OwnedFd, IoError> {
    let failed = |error| listen_error(address, error);
    let inet = address.inet().ok_or_else(|| failed(Errno::AFNOSUPPORT))?;
    let fd = stream_socket(inet_family(inet)).map_err(failed)?;
    // A restart may bind while connections of the last run are in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&fd, true).map_err(failed)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true).map_err(failed)?;
    }
    bind(&fd, &inet).map_err(failed)?;
    Ok(fd)
}

/// Whether `path` is a socket that an ended process left behind: connecting is refused.
fn is_abandoned(path: &Path, name: &SocketAddrUnix) -> bool {
    is_socket(path)
        && stream_socket(AddressFamily::UNIX)
            .is_ok_and(|fd| connect(&fd, name) == Err(Errno::CONNREFUSED))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn listen_error(address: &Address, error: Errno) -> IoError {
    let address = address.clone();
    match error {
        Errno::ADDRINUSE => IoError::AddressTaken { address },
        Errno::ADDRNOTAVAIL => IoError::AddressNotLocal { address },
        Errno::ACCESS | Errno::PERM => IoError::AddressForbidden { address },
        error => IoError::Listen { address, error },
    }
}

#[cfg(test)]
#[path = "tests/listener.rs"]
mod tests;
