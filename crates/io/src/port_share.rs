//! Leaving a port to a successor: this process's listeners among all that share the port.
//!
//! With `SO_REUSEPORT` an old and a new server listen side by side, and the kernel picks a socket
//! for each connection by its hash. A process that just closes a socket resets the connections that wait
//! in it, and those whose handshake is on its way. So a server that leaves does it in steps:
//!
//! ```text
//! steer_away         a program of the group picks only sockets of the others from now on
//!   (accept goes on: what is on its way arrives)
//! refuse_handshakes  new handshakes that come here all the same are ignored; the peer's kernel
//!                    repeats them after a second, and then finds the others
//!   (the drivers take what waits and let go of their listeners)
//! leave              closes, steering by what stays another's index meanwhile
//! ```
//! The programs are classic BPF, which needs no privilege, and name sockets by their index in the
//! group. Sockets join at its end, and the last one moves into the hole of one that leaves: so
//! those of the oldest process are in front. Should several have come and gone in such an order
//! that this does not hold, an index is wrong and the second step is what remains: a handshake may
//! take a second longer, and no connection is lost.
//!
//! A program stays with the group when its maker is gone: a process that joins removes it.
//!
//! A unix socket has a path instead of a port: the newcomer's takes the place of the old one in
//! one step, so there is nothing to steer.
#![allow(unsafe_code)]

use crate::address::Address;
use crate::error::IoError;
use crate::listener::{BoundPath, ListenOptions, Listener};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// The listeners of this process, as seen by the thread that will take them off the port.
#[derive(Debug)]
pub struct PortShare {
    name: SharedName,
    /// Each listener holds one too.
    token: Arc<()>,
}

#[derive(Debug)]
enum SharedName {
    Port(PortGroup),
    Path(Arc<BoundPath>),
}

/// Duplicates of the listeners: without them the sockets would close when their drivers are done.
#[derive(Debug)]
struct PortGroup {
    address: SocketAddr,
    /// In the order in which they joined the group.
    sockets: Vec<OwnedFd>,
    inodes: Vec<u64>,
    /// Those that were there before ours.
    older_inodes: Vec<u64>,
}

/// Where in the kernel's list the sockets of others are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Others {
    None,
    /// Behind ours: we are the oldest.
    Behind(usize),
    /// Before ours: we are the newest.
    Before(usize),
    /// Not known.
    Somewhere,
}

impl PortShare {
    /// One listener for each of `count` shards, on an address that other processes of this user
    /// share with us if they listen in the same way. A unix path is taken over.
    pub fn bind(
        address: &Address,
        count: usize,
        backlog: i32,
    ) -> Result<(Vec<Listener>, Self), IoError> {
        let token = Arc::new(());
        let options = ListenOptions {
            reuse_port: true,
            backlog,
        };
        let older_inodes = match address.inet() {
            Some(inet) if inet.port() != 0 => listening_inodes(inet).unwrap_or_default(),
            _ => Vec::new(),
        };
        let mut listeners = Listener::group(address, count, options)?;
        let name = match listeners[0].bound_path() {
            Some(path) => SharedName::Path(path),
            None => SharedName::Port(PortGroup::of(&listeners, older_inodes)?),
        };
        for listener in &mut listeners {
            listener.share(&token);
        }
        Ok((listeners, Self { name, token }))
    }

    /// Makes new connections go to others that share the address. False: there are none.
    pub fn steer_away(&self) -> bool {
        match &self.name {
            SharedName::Path(path) => path.is_superseded(),
            SharedName::Port(group) => {
                let others = group.others();
                group.steer_to(others);
                others != Others::None
            }
        }
    }

    /// Ignores new handshakes; those that have begun are completed.
    pub fn refuse_handshakes(&self) {
        if let SharedName::Port(group) = &self.name {
            for socket in &group.sockets {
                // Without it the few that come now are reset when the socket closes.
                let _ = attach(
                    socket,
                    libc::SO_ATTACH_FILTER,
                    &mut NO_NEW_HANDSHAKES.clone(),
                );
            }
        }
    }

    /// Whether every driver has closed its listener: no connection waits in them any more.
    #[must_use]
    pub fn is_released(&self) -> bool {
        Arc::strong_count(&self.token) == 1
    }

    /// Closes the sockets, so that the others have the address for themselves.
    pub fn leave(self) {
        self.leave_with(|| ());
    }

    /// The same, calling `steered` whenever no connection comes to us, for tests of that.
    #[doc(hidden)]
    pub fn leave_with(self, steered: impl FnMut()) {
        if let SharedName::Port(group) = self.name {
            group.leave(steered);
        }
    }
}

impl PortGroup {
    fn of(listeners: &[Listener], older_inodes: Vec<u64>) -> Result<Self, IoError> {
        let address = listeners[0].local_address();
        let failed = |error: std::io::Error| IoError::Listen {
            address: address.clone(),
            error: Errno::from_io_error(&error).unwrap_or(Errno::MFILE),
        };
        let inet = address.inet().ok_or_else(|| IoError::Listen {
            address: address.clone(),
            error: Errno::AFNOSUPPORT,
        })?;
        let mut sockets = Vec::with_capacity(listeners.len());
        let mut inodes = Vec::with_capacity(listeners.len());
        for listener in listeners {
            let copy = listener.fd().try_clone_to_owned().map_err(failed)?;
            let file = File::from(copy);
            inodes.push(file.metadata().map_err(failed)?.ino());
            sockets.push(OwnedFd::from(file));
        }
        // A program that steered away from sockets that are closed would now use indices of other sockets.
        detach_program(&sockets[0]);
        Ok(Self {
            address: inet,
            sockets,
            inodes,
            older_inodes,
        })
    }

    fn others(&self) -> Others {
        let Some(all) = listening_inodes(self.address) else {
            return Others::Somewhere;
        };
        let is_ours = |inode: &&u64| self.inodes.contains(inode);
        let is_older = |inode: &&u64| self.older_inodes.contains(inode);
        let count = all.iter().filter(|inode| !is_ours(inode)).count();
        let older_count = all.iter().filter(is_older).count();
        match (count, older_count) {
            (0, _) => Others::None,
            (count, 0) => Others::Behind(count),
            (count, older_count) if count == older_count => Others::Before(count),
            _ => Others::Somewhere,
        }
    }

    fn steer_to(&self, others: Others) {
        match others {
            Others::None | Others::Somewhere => {}
            Others::Behind(count) => self.pick_among(self.sockets.len(), count),
            Others::Before(count) => self.pick_among(0, count),
        }
    }

    /// The kernel takes one of `count` sockets from `first` on, at random.
    fn pick_among(&self, first: usize, count: usize) {
        let mut program = [
            instruction(LOAD_WORD, ANCILLARY_RANDOM),
            instruction(MODULO, count as u32),
            instruction(ADD, first as u32),
            instruction(RETURN_ACCUMULATOR, 0),
        ];
        // Without it the hash decides, and refusing handshakes remains.
        let _ = attach(
            &self.sockets[0],
            libc::SO_ATTACH_REUSEPORT_CBPF,
            &mut program,
        );
    }

    /// With as many others as ours, no index given is ever one of ours, and the last one refers to no socket once ours
    /// are gone: the group goes by its hash again. With fewer, they move to unknown indices while the last of ours
    /// close; a handshake that comes to us in these microseconds is repeated. `steered` is called after each close but
    /// in those.
    fn leave(self, mut steered: impl FnMut()) {
        let ours = self.sockets.len();
        // In any other place closing moves nothing that a program could mean.
        let behind = match self.others() {
            Others::Behind(count) => Some(count),
            _ => None,
        };
        if behind.is_some() {
            pick(&self.sockets[0], ours);
        }
        for (closed, socket) in self.sockets.into_iter().enumerate() {
            let is_last = closed + 1 == ours;
            match behind {
                Some(others) if is_last && others >= ours => pick(&socket, others),
                Some(_) if is_last => detach_program(&socket),
                _ => {}
            }
            drop(socket);
            if is_last || behind.is_none_or(|others| closed + 1 < others) {
                steered();
            }
        }
    }
}

/// The group's kernel takes the socket at `index`; if there is none, it goes by its hash.
fn pick(socket: &OwnedFd, index: usize) {
    let mut program = [instruction(RETURN_CONSTANT, index as u32)];
    let _ = attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, &mut program);
}

/// The inodes of all sockets that listen on exactly this address. `None`: the kernel does not show
/// them here.
fn listening_inodes(address: SocketAddr) -> Option<Vec<u64>> {
    let (file, ip) = match address.ip() {
        IpAddr::V4(ip) => ("/proc/net/tcp", hexadecimal(&ip.octets())),
        IpAddr::V6(ip) => ("/proc/net/tcp6", hexadecimal(&ip.octets())),
    };
    let name = format!("{ip}:{:04X}", address.port());
    let mut inodes = Vec::new();
    for line in BufReader::new(File::open(file).ok()?).lines().skip(1) {
        let line = line.ok()?;
        let mut words = line.split_ascii_whitespace().skip(1);
        let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
        if state != LISTENING {
            // Those that listen come first, and connections may be many.
            break;
        }
        if local == name {
            inodes.push(words.nth(5)?.parse().ok()?);
        }
    }
    Some(inodes)
}

/// `TCP_LISTEN` as the kernel prints it.
const LISTENING: &str = "0A";

/// An address as the kernel prints it: 32-bit words in this machine's byte order.
fn hexadecimal(octets: &[u8]) -> String {
    octets
        .chunks_exact(4)
        .map(|word| {
            let word = word.try_into().map_or(0, u32::from_ne_bytes);
            format!("{word:08X}")
        })
        .collect()
}

// Classic BPF, as in linux/bpf_common.h and linux/filter.h.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const ADD: u16 = 0x04;
const AND: u16 = 0x54;
const MODULO: u16 = 0x94;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN_CONSTANT: u16 = 0x06;
const RETURN_ACCUMULATOR: u16 = 0x16;
const ANCILLARY_RANDOM: u32 = (-0x1000_i32 + 56).cast_unsigned();

/// `SO_DETACH_REUSEPORT_BPF`.
const DETACH_REUSEPORT_PROGRAM: libc::c_int = 68;

/// Where the flags of a TCP header are, and those of a handshake.
const TCP_FLAGS_OFFSET: u32 = 13;
const SYN: u32 = 0x02;
const ACK: u32 = 0x10;

/// Drops what begins a handshake, takes everything else whole.
const NO_NEW_HANDSHAKES: [libc::sock_filter; 5] = [
    instruction(LOAD_BYTE, TCP_FLAGS_OFFSET),
    instruction(AND, SYN | ACK),
    libc::sock_filter {
        code: JUMP_IF_EQUAL,
        jt: 0,
        jf: 1,
        k: SYN,
    },
    instruction(RETURN_CONSTANT, 0),
    instruction(RETURN_CONSTANT, u32::MAX),
];

const fn instruction(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Gives a program to the socket or, by it, to its group.
fn attach(
    socket: &OwnedFd,
    option: libc::c_int,
    program: &mut [libc::sock_filter],
) -> Result<(), Errno> {
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option takes one `sock_fprog`, which lives during the call, as do the
    // instructions it points to; the kernel copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    outcome(result)
}

/// Takes the program of the socket's group away, if it has one.
fn detach_program(socket: &OwnedFd) {
    let unused: libc::c_int = 0;
    // SAFETY: the option reads one integer at most, which lives during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            DETACH_REUSEPORT_PROGRAM,
            (&raw const unused).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // ENOENT: there is none.
    let _ = outcome(result);
}

fn outcome(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL))
    }
}
