//! Features of this kernel's io_uring, found by trying them, once per process.
//!
//! Version numbers lie: distributions backport, containers forbid single calls, and some features
//! came with faults. So a ring is set up the way a shard does it, opcodes are asked for, and
//! incremental buffers must deliver two split messages in order before they are trusted.
#![allow(unsafe_code)]

use super::receiving::{GROUP, ReceiveBuffers};
use super::ring::{Ring, Wait};
use crate::clock::monotonic_ns;
use crate::driver::features::{DriverFeature, DriverFeatures};
use crate::pools::IO_BUFFER_BYTES;
use io_uring::{Probe, cqueue, opcode, types};
use millpond_mempool::{BufferPool, PoolMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// Why there is no io_uring here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UringUnavailable {
    /// No such system call.
    #[error("this kernel has no io_uring: Linux 6.0 or newer has what is needed")]
    Absent,
    /// Valgrind executes this program. Completions are seen late there, or never.
    #[error("valgrind executes this process, and does not follow io_uring")]
    Emulated,
    /// The administrator switched it off.
    #[error(
        "io_uring is switched off: kernel.io_uring_disabled is {value}; `sysctl kernel.io_uring_disabled=0` allows it"
    )]
    Disabled {
        /// The setting's value: 1 forbids it to all but a group, 2 to all.
        value: u8,
    },
    /// A filter for system calls, as container runtimes install it, or missing rights.
    #[error(
        "io_uring is forbidden to this process ({error}), most often by a container's seccomp profile"
    )]
    Forbidden {
        /// The kernel's error.
        error: Errno,
    },
    /// It works, but lacks what every shard needs.
    #[error("this kernel's io_uring lacks {lacks}")]
    TooOld {
        /// The missing feature.
        lacks: &'static str,
    },
    /// No memory or descriptors for a ring.
    #[error("cannot set up a ring: {error}; raise `ulimit -l` (memory it may lock) or `ulimit -n`")]
    OutOfResources {
        /// The kernel's error.
        error: Errno,
    },
    /// Something not foreseen.
    #[error("cannot set up a ring: {error}")]
    Refused {
        /// The kernel's error.
        error: Errno,
    },
}

/// How long a self-test may take, on whatever machine.
const SELF_TEST_NS: u64 = 1_000_000_000;

/// The meaning of a failed set-up.
pub(super) fn unavailable(error: Errno) -> UringUnavailable {
    match error {
        Errno::NOSYS => UringUnavailable::Absent,
        Errno::PERM | Errno::ACCESS => match disabled_value() {
            Some(value @ 1..) => UringUnavailable::Disabled { value },
            _ => UringUnavailable::Forbidden { error },
        },
        Errno::NOMEM | Errno::MFILE | Errno::NFILE => UringUnavailable::OutOfResources { error },
        error => UringUnavailable::Refused { error },
    }
}

fn disabled_value() -> Option<u8> {
    let text = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?;
    text.trim().parse().ok()
}

/// The features a shard's ring can use here; probed once, then remembered.
pub fn probe() -> Result<DriverFeatures, UringUnavailable> {
    static FOUND: OnceLock<Result<DriverFeatures, UringUnavailable>> = OnceLock::new();
    *FOUND.get_or_init(probe_kernel)
}

/// The same, asked anew.
fn probe_kernel() -> Result<DriverFeatures, UringUnavailable> {
    let everything = DriverFeature::ALL
        .into_iter()
        .fold(DriverFeatures::default(), DriverFeatures::with);
    let mut ring = Ring::new(everything, 8)?;
    // Seccomp filters may know one call and not the others.
    ring.enter(Wait::Look).map_err(unavailable)?;
    let known = known_operations(&ring)?;
    require_operations(|code| known.is_supported(code))?;
    // Polling without system calls is opted into; the flag costs every other shard a little.
    let mut features = ring.features().without(DriverFeature::TaskRunFlag);
    // The newest feature is suspected first.
    for doubted in [
        DriverFeature::IncrementalBuffers,
        DriverFeature::MultishotReceive,
    ] {
        if delivers_in_order(&mut ring, features)? {
            return Ok(features);
        }
        features = features.without(doubted);
    }
    match delivers_in_order(&mut ring, features)? {
        true => Ok(features),
        false => Err(NO_BUFFER_RING),
    }
}

/// There is no way around this one.
pub(super) const NO_BUFFER_RING: UringUnavailable = UringUnavailable::TooOld {
    lacks: "receives into a buffer ring (Linux 5.19)",
};

fn known_operations(ring: &Ring) -> Result<Probe, UringUnavailable> {
    let mut probe = Probe::new();
    match ring.io().submitter().register_probe(&mut probe) {
        Ok(()) => Ok(probe),
        Err(error) => Err(unprobed(Errno::from_io_error(&error))),
    }
}

/// The meaning of a failed probe: kernels before 5.6 do not support the request; any other failure is reported as this
/// kernel's.
fn unprobed(error: Option<Errno>) -> UringUnavailable {
    match error {
        Some(Errno::INVAL) | None => UringUnavailable::TooOld {
            lacks: "a probe of its operations (Linux 5.6)",
        },
        Some(error) => unavailable(error),
    }
}

/// The operations that every shard uses.
const NEEDED: [(u8, &str); 4] = [
    (opcode::Recv::CODE, "receive"),
    (opcode::Send::CODE, "send"),
    (opcode::PollAdd::CODE, "poll"),
    (opcode::AsyncCancel::CODE, "cancel"),
];

fn require_operations(is_known: impl Fn(u8) -> bool) -> Result<(), UringUnavailable> {
    match NEEDED.into_iter().find(|(code, _)| !is_known(*code)) {
        Some((_, lacks)) => Err(UringUnavailable::TooOld { lacks }),
        None => Ok(()),
    }
}

/// The self-test of receiving: four messages on two sockets, written in turns, must arrive whole
/// and in order. `false`: with these features they do not.
fn delivers_in_order(ring: &mut Ring, features: DriverFeatures) -> Result<bool, UringUnavailable> {
    let refused = |error| UringUnavailable::OutOfResources { error };
    let pool = BufferPool::new("io_uring_probe", PoolMode::On, IO_BUFFER_BYTES, 8);
    let mut buffers = ReceiveBuffers::new(features, IO_BUFFER_BYTES).map_err(refused)?;
    if buffers.provide(ring, &pool).is_err() {
        return Ok(false);
    }
    let pairs = [
        stream_pair().map_err(refused)?,
        stream_pair().map_err(refused)?,
    ];
    let outcome = exchange(ring, features, &mut buffers, &pairs);
    // Receives that are still armed find no table any more, and end with the ring.
    buffers.withdraw(ring);
    Ok(outcome)
}

type Pair = (OwnedFd, OwnedFd);

fn stream_pair() -> Result<Pair, Errno> {
    socketpair(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn exchange(
    ring: &mut Ring,
    features: DriverFeatures,
    buffers: &mut ReceiveBuffers,
    pairs: &[Pair; 2],
) -> bool {
    const ROUNDS: [&[u8]; 4] = [b"first half, ", b"second half; ", b"third ", b"and last."];
    let is_multishot = features.has(DriverFeature::MultishotReceive);
    let arm = |ring: &mut Ring, number: usize| {
        let fd = pairs[number].1.as_raw_fd();
        let entry = match is_multishot {
            true => receive_on_entry(fd),
            false => receive_once_entry(fd, 0),
        };
        // SAFETY: the entry points to no memory; its buffers come from the registered table.
        unsafe { ring.push(&entry.user_data(number as u64)) };
    };
    let mut got = [Vec::new(), Vec::new()];
    let mut completions = Vec::new();
    arm(ring, 0);
    arm(ring, 1);
    let give_up_ns = monotonic_ns() + SELF_TEST_NS;
    for (round, text) in ROUNDS.iter().enumerate() {
        for pair in pairs {
            if send(&pair.0, text, SendFlags::NOSIGNAL) != Ok(text.len()) {
                return false;
            }
        }
        let expected_len: usize = ROUNDS[..=round].iter().map(|text| text.len()).sum();
        while got.iter().any(|got| got.len() < expected_len) {
            if ring.enter(Wait::Until(give_up_ns)).is_err() || monotonic_ns() >= give_up_ns {
                return false;
            }
            ring.take_completions(&mut completions);
            for completion in completions.drain(..) {
                let number = usize::from(completion.user_data() != 0);
                let Some(bytes) = buffers.received(&completion) else {
                    return false;
                };
                got[number].extend_from_slice(bytes);
                if !cqueue::more(completion.flags()) {
                    arm(ring, number);
                }
            }
            buffers.end_tick();
        }
    }
    got.iter().all(|got| *got == ROUNDS.concat())
}

/// Receives that go on, each into whichever buffer of the table comes next.
#[inline]
pub(super) fn receive_on_entry(fd: i32) -> io_uring::squeue::Entry {
    opcode::RecvMulti::new(types::Fd(fd), GROUP).build()
}

/// One receive into whichever buffer of the table comes next, of at most `bytes_max`; 0: as many as
/// that holds.
#[inline]
pub(super) fn receive_once_entry(fd: i32, bytes_max: u32) -> io_uring::squeue::Entry {
    opcode::Recv::new(types::Fd(fd), std::ptr::null_mut(), bytes_max)
        .buf_group(GROUP)
        .build()
        .flags(io_uring::squeue::Flags::BUFFER_SELECT)
}

#[cfg(test)]
#[path = "tests/refusing.rs"]
mod refusing;
#[cfg(test)]
#[path = "tests/probe.rs"]
mod tests;
