//! Arrival times of bytes, from the kernel: a thread that woke late cannot know them from its own clock.
//!
//! The load generator requests them with [`super::Driver::stamp_receives`]; if the driver supports it, every n-th
//! receive reads the stamp too, as a control message beside the bytes. The kernel stamps a segment when it enters the
//! receive path, before any thread is woken for it.
#![allow(unsafe_code)]

use crate::clock::{NS_PER_S, monotonic_ns};
use crate::op::Received;
use millpond_mempool::Lease;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::mem::{MaybeUninit, size_of, size_of_val};
use std::{ptr, slice};

/// Room for the stamps' control message and an unrequested one, aligned as the kernel requires.
type Control = [u64; 16];

/// Which receives take their stamp along.
#[derive(Debug, Default)]
pub(super) struct ReceiveStamps {
    /// One in so many; 0: none.
    every: u32,
    until_next: u32,
    /// The stamp of the bytes being handled, on the monotonic clock.
    pub(super) last_ns: Option<u64>,
}

impl ReceiveStamps {
    pub(super) fn set_every(&mut self, every: u32) {
        self.every = every;
        self.until_next = self.until_next.min(every);
    }

    /// Whether new sockets get stamps.
    pub(super) fn is_on(&self) -> bool {
        self.every > 0
    }

    /// Counts a receive; returns whether this one reads its stamp.
    #[inline]
    pub(super) fn turn(&mut self) -> bool {
        if self.every == 0 {
            return false;
        }
        self.last_ns = None;
        self.until_next = self.until_next.saturating_sub(1);
        let is_due = self.until_next == 0;
        if is_due {
            self.until_next = self.every;
        }
        is_due
    }

    /// Receives, and keeps the stamp.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut Lease,
        turn_bytes: usize,
    ) -> Received {
        let mut stamp_ns = None;
        let filled = buffer.fill_from(|room| {
            let len = room.len().min(turn_bytes);
            let (filled, real_ns) = receive_stamped(socket, &mut room[..len])?;
            stamp_ns = real_ns;
            Ok(filled)
        });
        let received = match filled {
            Ok([]) => Received::Finished,
            Ok(bytes) => Received::Bytes(bytes.len()),
            Err(Errno::AGAIN | Errno::INTR) => Received::NotReady,
            Err(error) => Received::Failed(error),
        };
        self.last_ns = stamp_ns.map(monotonic_of_real);
        received
    }
}

/// Has the kernel stamp what this socket receives. A socket that has no stamps (a unix one) goes
/// without.
pub(super) fn stamp_socket(socket: BorrowedFd<'_>) -> bool {
    let flags = libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
    // SAFETY: the descriptor is open while it is borrowed, and the option's value is an integer of
    // the length given, which the kernel copies during the call.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            ptr::from_ref(&flags).cast(),
            size_of_val(&flags) as libc::socklen_t,
        )
    };
    answer == 0
}

/// One receive with its control messages: the bytes, and their stamp on the wall clock.
fn receive_stamped<'room>(
    socket: BorrowedFd<'_>,
    room: &'room mut [MaybeUninit<u8>],
) -> Result<(&'room mut [u8], Option<u64>), Errno> {
    let mut control: Control = [0; 16];
    let mut part = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: a msghdr is integers and pointers, for which zero is a value: no name, no flags.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the descriptor is open while it is borrowed; the message points to `room` and
    // `control`, which are writable for the lengths given and outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let Ok(count) = usize::try_from(received) else {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    };
    let stamp_ns = stamp_of(&message);
    // SAFETY: the kernel has written that many bytes at the beginning of `room`, whose lifetime and
    // exclusiveness the result takes over.
    let filled = unsafe { slice::from_raw_parts_mut(room.as_mut_ptr().cast::<u8>(), count) };
    Ok((filled, stamp_ns))
}

/// The software stamp among the control messages, in nanoseconds of the wall clock.
fn stamp_of(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: `msg_control` and `msg_controllen` are as the kernel left them: a buffer of ours and
    // how much of it holds whole control messages.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give null or a header inside the buffer, which is
        // aligned for it.
        let found = unsafe { &*header };
        let is_stamp =
            found.cmsg_level == libc::SOL_SOCKET && found.cmsg_type == libc::SCM_TIMESTAMPING;
        // SAFETY: computes a length.
        let len_min = unsafe { libc::CMSG_LEN(size_of::<libc::timespec>() as u32) } as usize;
        if is_stamp && found.cmsg_len >= len_min {
            // SAFETY: the data behind this header holds at least one timespec by its length; it may
            // lie unaligned.
            let stamp = unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
            return real_ns_of(&stamp);
        }
        // SAFETY: as for the first one; `header` is inside the same buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// `None` for the zero that means no stamp.
fn real_ns_of(stamp: &libc::timespec) -> Option<u64> {
    let seconds = u64::try_from(stamp.tv_sec).ok()?;
    let nanos = u64::try_from(stamp.tv_nsec).ok()?;
    let real_ns = seconds.checked_mul(NS_PER_S)?.checked_add(nanos)?;
    (real_ns > 0).then_some(real_ns)
}

/// A moment of the wall clock, which stamps are of, on the clock of everything else. The distance
/// of the two is read each time, since the wall clock may be set meanwhile.
fn monotonic_of_real(real_ns: u64) -> u64 {
    let real = clock_gettime(ClockId::Realtime);
    let real_now_ns = real.tv_sec.cast_unsigned() * NS_PER_S + real.tv_nsec.cast_unsigned();
    // Read second: a thread that loses its CPU in between takes a stamp for later than it was,
    // never for earlier than the bytes were sent.
    monotonic_ns().saturating_sub(real_now_ns.saturating_sub(real_ns))
}

#[cfg(test)]
#[path = "tests/receive_stamps.rs"]
mod tests;
