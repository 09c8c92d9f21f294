//! How many connections may wait at a listening socket, as `ss -ltn` shows it (Send-Q).
//!
//! `started_candidate` asks when requests got no response, so that the sentence can name the number. `/proc/net/tcp`
//! does not have it; the kernel reports it by a socket of `NETLINK_SOCK_DIAG`, for all sockets of the caller's network
//! namespace.

use std::time::Duration;

use rustix::io;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP` of linux/netlink.h.
const REQUEST_DUMP: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h; both end a dump.
const ENDS: [u16; 2] = [2, 3];
/// `struct nlmsghdr`.
const HEAD_BYTES: usize = 16;
/// `struct inet_diag_req_v2`.
const REQUEST_BYTES: usize = 56;
/// Of `struct inet_diag_msg`: the port, in network order, and the queue's limit.
const PORT_AT: usize = 4;
const LIMIT_AT: usize = 60;
const FAMILIES: [u8; 2] = [2, 10];
const TCP: u8 = 6;
/// Bit of the state LISTEN.
const LISTENING: u32 = 1 << 10;
/// The kernel sends no larger part of a dump.
const BUFFER_BYTES: usize = 32 * 1024;
/// The kernel replies at once; if its sockets do not fit into so many parts, the rest is not read.
const PARTS_MAX: usize = 64;
const PATIENCE: Duration = Duration::from_millis(200);

/// The smallest limit of the sockets that listen on `port`; `None` if there is none, or the kernel does not report it.
pub(crate) fn of_port(port: u16) -> Option<u32> {
    let families = FAMILIES.iter();
    let found = families.filter_map(|&family| of_family(family, port).ok().flatten());
    found.min()
}

fn of_family(family: u8, port: u16) -> io::Result<Option<u32>> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    sendto(&socket, &request(family), SendFlags::empty(), &kernel)?;
    let mut buffer = vec![0_u8; BUFFER_BYTES];
    let mut lowest = None;
    for _ in 0..PARTS_MAX {
        let (_, length) = recv(&socket, buffer.as_mut_slice(), RecvFlags::empty())?;
        let part = buffer.get(..length).unwrap_or_default();
        let (found, is_last) = limits(part, port);
        lowest = found.into_iter().chain(lowest).min();
        if is_last {
            break;
        }
    }
    Ok(lowest)
}

fn request(family: u8) -> Vec<u8> {
    let length = HEAD_BYTES + REQUEST_BYTES;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST_DUMP.to_ne_bytes());
    // Sequence number and sender: there is one question.
    bytes.extend([0; 8]);
    bytes.extend([family, TCP, 0, 0]);
    bytes.extend(LISTENING.to_ne_bytes());
    // Of whatever address.
    bytes.resize(length, 0);
    bytes
}

/// The lowest limit of sockets on `port` in a part of a dump, and whether it is the last part.
fn limits(part: &[u8], port: u16) -> (Option<u32>, bool) {
    let mut rest = part;
    let mut lowest: Option<u32> = None;
    while let (Some(length), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
        if ENDS.contains(&kind) {
            return (lowest, true);
        }
        let length = length as usize;
        let message = rest.get(HEAD_BYTES..length).unwrap_or_default();
        let own_port = message.get(PORT_AT..PORT_AT + 2);
        if own_port == Some(&port.to_be_bytes()[..]) {
            lowest = u32_at(message, LIMIT_AT).into_iter().chain(lowest).min();
        }
        // Messages begin at multiples of four; one of no length would be read for ever.
        let next = length.max(HEAD_BYTES).next_multiple_of(4);
        rest = rest.get(next..).unwrap_or_default();
    }
    // Nothing at all is the end too.
    (lowest, part.is_empty())
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(word))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let word = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_ne_bytes(word))
}

#[cfg(test)]
#[path = "tests/listen_backlog.rs"]
mod tests;
