//! One ring: its set-up, putting submissions in, and the one system call that hands them over and
//! waits.

#![allow(unsafe_code)]

use std::os::fd::AsRawFd;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;

use crate::clock::NS_PER_S;
use crate::driver::SocketId;
use crate::driver::features::{DriverFeature, DriverFeatures};

use super::MEMORY_PAUSE;
use super::probe::{UringUnavailable, unavailable};

/// Submissions between two system calls; more are handed over early.
pub(super) const SUBMISSIONS_MAX: u32 = 1024;

/// Completions the kernel can post before it must keep some aside: several per tick for a shard
/// with thousands of busy sockets. 16 bytes each.
pub(super) const COMPLETIONS_MAX: u32 = 8192;

/// `IORING_ENTER_ABS_TIMER` of Linux 6.12, which the library does not name yet.
pub(super) const ENTER_ABSOLUTE_TIMER: u32 = 1 << 5;

/// `IORING_REGISTER_RING_FDS`.
const REGISTER_RING_FDS: libc::c_uint = 20;

/// `IORING_UNREGISTER_RING_FDS`.
const UNREGISTER_RING_FDS: libc::c_uint = 21;

/// `struct io_uring_rsrc_update`.
#[repr(C)]
struct RingRegistration {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// How long a call may wait for completions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wait {
    /// Not at all.
    Look,
    /// Until this time.
    Until(u64),
    /// No limit.
    Endless,
}

/// A submission queue and a completion queue shared with the kernel.
pub(super) struct Ring {
    io: IoUring,
    features: DriverFeatures,
    /// The ring's number in the thread's table of registered rings.
    registered_index: Option<u32>,
    /// Calls that only handed submissions over because the queue was full.
    pub(super) early_submits: u64,
    /// Submissions put in.
    pub(super) submissions: u64,
}

/// Threads that the kernel starts for one ring, of each of its two kinds. It hands a send over to one when polling
/// for room has led to none many times, so without a bound there are as many as peers that read slowly. Sockets do
/// not block: a thread tries, polls again and is free for the next, and what waits for one waits for no peer.
const KERNEL_THREADS_MAX: u32 = 8;

impl Ring {
    /// A ring with those of `wanted` that concern set-up and that the kernel has.
    pub(super) fn new(wanted: DriverFeatures, entries: u32) -> Result<Self, UringUnavailable> {
        let (io, mut features) = set_up(wanted, |features| build(features, entries))?;
        let params = io.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(UringUnavailable::TooOld {
                lacks: "waits with a timeout (Linux 5.11)",
            });
        }
        if !params.is_feature_skip_cqe_on_success() {
            features = features.without(DriverFeature::SkipSuccess);
        }
        let mut ring = Self {
            io,
            features,
            registered_index: None,
            early_submits: 0,
            submissions: 0,
        };
        if features.has(DriverFeature::RegisteredRing) {
            ring.register_itself();
        }
        // Refused before Linux 5.15, which then has no bound.
        let mut workers = [KERNEL_THREADS_MAX; 2];
        let _ = ring.io.submitter().register_iowq_max_workers(&mut workers);
        if features.has(DriverFeature::AbsoluteTimeouts) {
            // A time long past: a kernel that supports the flag returns at once.
            match ring.enter_with(1, Wait::Until(1)) {
                Err(Errno::TIME) => {}
                _ => ring.features = ring.features.without(DriverFeature::AbsoluteTimeouts),
            }
        }
        Ok(ring)
    }

    /// Its set-up flags.
    pub(super) fn features(&self) -> DriverFeatures {
        self.features
    }

    pub(super) fn io(&self) -> &IoUring {
        &self.io
    }

    /// Saves the kernel a descriptor lookup in every call; goes on without it on refusal.
    fn register_itself(&mut self) {
        let mut registration = RingRegistration {
            offset: u32::MAX,
            reserved: 0,
            data: u64::from(self.io.as_raw_fd().cast_unsigned()),
        };
        if self.change_registration(REGISTER_RING_FDS, &mut registration) {
            self.registered_index = Some(registration.offset);
        } else {
            self.features = self.features.without(DriverFeature::RegisteredRing);
        }
    }

    fn change_registration(
        &self,
        change: libc::c_uint,
        registration: &mut RingRegistration,
    ) -> bool {
        // SAFETY: one structure of the layout the kernel expects, alive and writable during the
        // call; the descriptor is the ring's own.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.io.as_raw_fd(),
                change,
                std::ptr::from_mut(registration),
                1,
            )
        };
        count == 1
    }

    /// Puts a submission in; hands the others over first if there is no room.
    ///
    /// # Safety
    /// Memory the entry points to must stay valid until the kernel is done with it: for a send
    /// with `MSG_DONTWAIT` until the entry has been handed over, else until its completion.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        self.submissions += 1;
        loop {
            // SAFETY: the caller's duty, unchanged.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return;
            }
            self.early_submits += 1;
            // Whatever the result: either there is room now, or the next round asks again.
            if self.enter_with(0, Wait::Look) == Err(Errno::AGAIN) {
                std::thread::sleep(MEMORY_PAUSE);
            }
        }
    }

    /// Hands all submissions over and waits for one completion as `wait` requires. A wait that timed out or was
    /// interrupted is not an error.
    #[inline]
    pub(super) fn enter(&mut self, wait: Wait) -> Result<(), Errno> {
        let completions_min = u32::from(wait != Wait::Look);
        match self.enter_with(completions_min, wait) {
            // BUSY: completions must be taken out first. AGAIN: the kernel is short of memory.
            Ok(_) | Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn enter_with(&mut self, completions_min: u32, wait: Wait) -> Result<usize, Errno> {
        let count = self.io.submission().len() as u32;
        let mut flags = EnterFlags::GETEVENTS.bits();
        let fd = match self.registered_index {
            Some(index) => {
                flags |= EnterFlags::REGISTERED_RING.bits();
                index.cast_signed()
            }
            None => self.io.as_raw_fd(),
        };
        let timespec = match wait {
            Wait::Until(deadline_ns) if self.features.has(DriverFeature::AbsoluteTimeouts) => {
                flags |= ENTER_ABSOLUTE_TIMER;
                Some(timespec_of_ns(deadline_ns))
            }
            Wait::Until(deadline_ns) => Some(timespec_of_ns(
                deadline_ns.saturating_sub(crate::clock::monotonic_ns()),
            )),
            Wait::Look | Wait::Endless => None,
        };
        let arguments = match &timespec {
            Some(timespec) => {
                flags |= EnterFlags::EXT_ARG.bits();
                Some(SubmitArgs::new().timespec(timespec))
            }
            None => None,
        };
        let (pointer, size) = match &arguments {
            Some(arguments) => (
                std::ptr::from_ref(arguments),
                size_of::<SubmitArgs<'_, '_>>(),
            ),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: the descriptor or index is this ring's; `arguments`, and the time it points to,
        // outlive the call; the entries' memory is the duty of the code that pushed them.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                fd,
                count,
                completions_min,
                flags,
                pointer,
                size,
            )
        };
        usize::try_from(result).map_err(|_| last_errno())
    }

    /// Whether all submissions have been handed over.
    #[inline]
    pub(super) fn is_handed_over(&mut self) -> bool {
        self.unsubmitted() == 0
    }

    /// Submissions that are not with the kernel yet.
    #[inline]
    pub(super) fn unsubmitted(&mut self) -> usize {
        self.io.submission().len()
    }

    /// Whether the kernel holds completions that did not fit the queue.
    #[inline]
    pub(super) fn is_overflowing(&mut self) -> bool {
        self.io.submission().cq_overflow()
    }

    /// Whether completions can be taken out.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.io.completion().is_empty()
    }

    /// Whether the kernel has completions to produce when it is called next: with [`DriverFeature::TaskRunFlag`] only.
    #[inline]
    pub(super) fn has_task_work(&mut self) -> bool {
        self.io.submission().taskrun()
    }

    /// Moves all completions to the end of `into`.
    #[inline]
    pub(super) fn take_completions(&mut self, into: &mut Vec<cqueue::Entry>) {
        let mut completions = self.io.completion();
        into.reserve(completions.len());
        let count = completions.fill(into.spare_capacity_mut()).len();
        // SAFETY: so many entries behind the last one have just been filled.
        unsafe { into.set_len(into.len() + count) };
    }
}

impl Drop for Ring {
    /// The thread's table holds the ring as a descriptor does: left in there it would live, with
    /// what it still waits for, as long as the thread.
    fn drop(&mut self) {
        if let Some(index) = self.registered_index {
            let mut registration = RingRegistration {
                offset: index,
                reserved: 0,
                data: 0,
            };
            self.change_registration(UNREGISTER_RING_FDS, &mut registration);
        }
    }
}

/// Flags a set-up may leave out, the newest first.
const SET_UP_STEPS: [DriverFeature; 4] = [
    DriverFeature::NoSubmissionArray,
    DriverFeature::DeferredTaskRun,
    DriverFeature::SingleIssuer,
    DriverFeature::TaskRunFlag,
];

/// Builds with as many of `wanted` as the kernel takes, and returns those: flags that an older one refuses are left
/// out, step by step.
fn set_up<T>(
    wanted: DriverFeatures,
    build: impl Fn(DriverFeatures) -> Result<T, Errno>,
) -> Result<(T, DriverFeatures), UringUnavailable> {
    let mut features = wanted;
    let mut steps = SET_UP_STEPS.into_iter();
    loop {
        if !features.has(DriverFeature::SingleIssuer) {
            // Only one thread's work can wait for that thread.
            features = features.without(DriverFeature::DeferredTaskRun);
        }
        match build(features) {
            Ok(built) => return Ok((built, features)),
            Err(Errno::INVAL) => match steps.next() {
                Some(step) => features = features.without(step),
                None => {
                    return Err(UringUnavailable::TooOld {
                        lacks: "cooperative task runs (Linux 5.19)",
                    });
                }
            },
            Err(error) => return Err(unavailable(error)),
        }
    }
}

fn build(features: DriverFeatures, entries: u32) -> Result<IoUring, Errno> {
    let mut builder = IoUring::builder();
    builder
        .dontfork()
        .setup_clamp()
        .setup_submit_all()
        .setup_cqsize(entries * (COMPLETIONS_MAX / SUBMISSIONS_MAX));
    // Deferred task runs already spare the thread the interruptions that this one is about, and
    // kernels want not both but take both.
    builder.setup_coop_taskrun();
    if features.has(DriverFeature::SingleIssuer) {
        builder.setup_single_issuer();
    }
    if features.has(DriverFeature::DeferredTaskRun) {
        builder.setup_defer_taskrun();
    }
    if features.has(DriverFeature::TaskRunFlag) {
        builder.setup_taskrun_flag();
    }
    if features.has(DriverFeature::NoSubmissionArray) {
        builder.setup_no_sqarray();
    }
    builder
        .build(entries)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
}

fn timespec_of_ns(time_ns: u64) -> Timespec {
    let rest_ns = (time_ns % NS_PER_S) as u32;
    Timespec::new().sec(time_ns / NS_PER_S).nsec(rest_ns)
}

/// The errno of this thread's last call through libc.
pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}

// The operation of a completion, in the 64 bits of user data of a submission.
//
// ```text
// | generation: 32 | operation: 4 | slot: 28 |
// ```
// It does not keep the state of operations: a socket knows which of its own are in flight, and keeps its slot until the
// last one has completed.

const SLOT_BITS: u32 = 28;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

/// The kinds of operations.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Operation {
    /// Whether connections wait.
    Accept = 1,
    /// Bytes of a socket.
    Receive = 2,
    /// The bytes of one tick, now or never.
    SendNow = 3,
    /// Queued bytes, when the kernel has room.
    SendQueued = 4,
    /// The end of a handshake.
    Connect = 5,
    /// The failure of a socket without a receive.
    Watch = 6,
    /// The waker's eventfd.
    Wake = 7,
    /// A cancellation: its result is ignored.
    Cancel = 8,
}

impl Operation {
    const ALL: [Self; 8] = [
        Self::Accept,
        Self::Receive,
        Self::SendNow,
        Self::SendQueued,
        Self::Connect,
        Self::Watch,
        Self::Wake,
        Self::Cancel,
    ];

    /// The user data of this operation on `socket`.
    #[inline]
    pub(super) const fn on(self, socket: SocketId) -> u64 {
        socket.to_bits() | (self as u64) << SLOT_BITS
    }

    /// The user data of an operation without a socket.
    #[inline]
    pub(super) const fn alone(self) -> u64 {
        (self as u64) << SLOT_BITS
    }

    /// The inverse. `None`: not ours, which a kernel has no reason to send.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "each part is cut out on purpose"
    )]
    pub(super) fn from_user_data(bits: u64) -> Option<(Self, SocketId)> {
        let low = bits as u32;
        let number = (low >> SLOT_BITS) as usize;
        let operation = *Self::ALL.get(number.wrapping_sub(1))?;
        let socket = SocketId::new(low & SLOT_MASK, (bits >> 32) as u32);
        Some((operation, socket))
    }
}

/// More sockets than slots can be distinguished.
pub(super) const fn is_slot_nameable(slot: u32) -> bool {
    slot <= SLOT_MASK
}

/// Goal: values unpack unchanged, for the smallest and the largest parts.
#[test]
fn user_data_names_operation_and_socket() {
    for operation in Operation::ALL {
        for (slot, generation) in [(0, 0), (1, u32::MAX), (SLOT_MASK, 7), (SLOT_MASK, u32::MAX)] {
            let socket = SocketId::new(slot, generation);
            assert_eq!(
                Operation::from_user_data(operation.on(socket)),
                Some((operation, socket))
            );
        }
    }
    assert_eq!(Operation::from_user_data(0), None);
    assert_eq!(Operation::from_user_data(u64::MAX), None);
    assert!(is_slot_nameable(SLOT_MASK) && !is_slot_nameable(SLOT_MASK + 1));
}

#[cfg(test)]
#[path = "tests/ring.rs"]
mod tests;
