//! The operations on sockets, one file each: the system call and what its outcomes mean.
//!
//! Drivers keep the state; an operation keeps none. A ring's form of the same operation belongs
//! beside the call here, so that both drivers agree on what an errno means.

pub(crate) mod accept;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod send_file;
pub(crate) mod connect;
pub(crate) mod close;
