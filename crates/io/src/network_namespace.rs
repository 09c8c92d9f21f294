//! Network namespaces: a separate loopback interface, so that two servers with the same fixed port can run at the same
//! time.
//!
//! A thread is in one namespace, and threads and processes that it starts begin in the same. So a process that is to live
//! in a namespace is started from within, and so are the threads that talk to it there.
//! All of it needs `CAP_SYS_ADMIN`: root outside of a container, mostly.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, sendto, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The namespace of the calling thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// A namespace. It ends with this value and the last process in it.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: OwnedFd,
}

impl NetworkNamespace {
    /// A new one, in which there is nothing but a loopback interface that is up: 127.0.0.1 and `::1`. Takes some
    /// milliseconds.
    ///
    /// # Errors
    /// The kernel's error: `EPERM` without the privilege.
    pub fn create() -> io::Result<Self> {
        let home = Home::of_this_thread()?;
        // SAFETY: of all that this call can take apart it takes the network alone, which no memory safety rests on;
        // file descriptors stay shared.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let created = raise_loopback().and_then(|()| Ok(File::open(OWN)?.into()));
        home.return_to()?;
        Ok(Self { file: created? })
    }

    /// Does `act` within: its sockets are the namespace's, and so are those of threads and processes that it starts.
    /// The calling thread is back home afterwards.
    ///
    /// # Errors
    /// If the kernel lets the thread not in, or not back.
    pub fn within<T>(&self, act: impl FnOnce() -> T) -> io::Result<T> {
        let home = Home::of_this_thread()?;
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
        let done = act();
        home.return_to()?;
        Ok(done)
    }
}

/// Where a thread came from. It returns there even if what it does elsewhere panics.
struct Home {
    file: OwnedFd,
    is_back: bool,
}

impl Home {
    fn of_this_thread() -> io::Result<Self> {
        Ok(Self {
            file: File::open(OWN)?.into(),
            is_back: false,
        })
    }

    fn return_to(mut self) -> io::Result<()> {
        self.is_back = true;
        Ok(move_into_link_name_space(
            self.file.as_fd(),
            Some(LinkNameSpaceType::Network),
        )?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !self.is_back {
            // The error cannot be reported; the panic goes on.
            let _ = move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network));
        }
    }
}

/// `RTM_NEWLINK` of rtnetlink(7) with an acknowledgement: the first interface of a namespace is its loopback.
fn raise_loopback() -> io::Result<()> {
    let (length, loopback): (u32, i32) = (32, 1);
    let up = libc::IFF_UP.cast_unsigned();
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    // struct nlmsghdr
    let mut request = Vec::with_capacity(length as usize);
    request.extend(length.to_ne_bytes());
    request.extend(libc::RTM_NEWLINK.to_ne_bytes());
    request.extend(flags.to_ne_bytes());
    request.extend([0; 8]);
    // struct ifinfomsg: family and type do not matter.
    request.extend([0; 4]);
    request.extend(loopback.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    request.extend(up.to_ne_bytes());
    let route = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    sendto(&route, &request, SendFlags::empty(), &kernel)?;
    let mut answer = [0_u8; 256];
    let (read, _) = recv(&route, &mut answer, RecvFlags::empty())?;
    // struct nlmsgerr behind a struct nlmsghdr: 0 is the acknowledgement.
    let error = answer.get(..read).and_then(|answer| answer.get(16..20));
    match error.map(|error| i32::from_ne_bytes(error.try_into().unwrap_or_default())) {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(-error)),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
#[path = "tests/network_namespace.rs"]
mod tests;
