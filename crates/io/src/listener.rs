//! Listening sockets.
use crate::address::Address;
use crate::error::IoError;
use rustix::fd::OwnedFd;

/// How to listen.
#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// Several sockets may listen on the address; the kernel spreads connections over them.
    pub reuse_port: bool,
    /// Connections that may wait for acceptance.
    pub backlog: i32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            reuse_port: false,
            backlog: 4096,
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: Address,
}

impl Listener {
    /// Listens on `address`; port 0 picks a free port.
    pub fn bind(_address: &Address, _options: ListenOptions) -> Result<Self, IoError> {
        todo!()
    }
    /// `count` listeners on one address, one per shard.
    pub fn bind_group(
        _address: &Address,
        _count: usize,
        _backlog: i32,
    ) -> Result<Vec<Self>, IoError> {
        todo!()
    }
    /// Where it listens, with the port the kernel picked.
    #[must_use]
    pub fn local_address(&self) -> &Address {
        &self.address
    }
}
