//! One ring: its set-up, putting submissions in, and the one system call that hands them over and
//! waits.
//!
//! Absent on purpose: a kernel thread that polls for submissions (SQPOLL takes a core for itself)
//! and direct descriptors (they saved one percent of a request in measurements, and every call
//! outside the ring would need a second way).
#![allow(unsafe_code)]

use super::probe::{UringUnavailable, unavailable};
use crate::clock::NS_PER_S;
use crate::driver::features::{DriverFeature, DriverFeatures};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, squeue};
use rustix::io::Errno;
use std::os::fd::AsRawFd;

/// Submissions between two system calls; more are handed over early.
pub(super) const SUBMISSIONS_MAX: u32 = 1024;

/// Completions the kernel can post before it must keep some aside: several per tick for a shard
/// with thousands of busy sockets. 16 bytes each.
pub(super) const COMPLETIONS_MAX: u32 = 8192;

/// `IORING_ENTER_ABS_TIMER` of Linux 6.12, which the library does not name yet.
const ENTER_ABSOLUTE_TIMER: u32 = 1 << 5;

/// `IORING_REGISTER_RING_FDS`.
const REGISTER_RING_FDS: libc::c_uint = 20;

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
    /// For ever.
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

impl Ring {
    /// A ring with those of `wanted` that concern set-up and that the kernel has.
    pub(super) fn new(wanted: DriverFeatures, entries: u32) -> Result<Self, UringUnavailable> {
        let mut features = wanted;
        // Newest first: what an older kernel refuses is left out, step by step.
        let steps = [
            DriverFeature::NoSubmissionArray,
            DriverFeature::DeferredTaskRun,
            DriverFeature::SingleIssuer,
            DriverFeature::TaskRunFlag,
        ];
        let mut steps = steps.into_iter();
        let io = loop {
            match build(features, entries) {
                Ok(io) => break io,
                Err(Errno::INVAL) => match steps.next() {
                    Some(step) => features = features.without(step),
                    None => return Err(unavailable(Errno::INVAL)),
                },
                Err(error) => return Err(unavailable(error)),
            }
        };
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
        if features.has(DriverFeature::AbsoluteTimeouts) {
            // A time long past: a kernel that knows the flag says that it is over.
            match ring.enter_with(1, Wait::Until(1)) {
                Err(Errno::TIME) => {}
                _ => ring.features = ring.features.without(DriverFeature::AbsoluteTimeouts),
            }
        }
        Ok(ring)
    }

    /// What it is set up with.
    pub(super) fn features(&self) -> DriverFeatures {
        self.features
    }

    pub(super) fn io(&self) -> &IoUring {
        &self.io
    }

    /// Saves the kernel looking the descriptor up in every call; goes on without on refusal.
    fn register_itself(&mut self) {
        let fd = self.io.as_raw_fd();
        let mut registration = RingRegistration {
            offset: u32::MAX,
            reserved: 0,
            data: u64::from(fd.cast_unsigned()),
        };
        // SAFETY: one structure of the layout the kernel expects, alive and writable during the
        // call; the descriptor is the ring's own.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                fd,
                REGISTER_RING_FDS,
                &raw mut registration,
                1,
            )
        };
        if count == 1 {
            self.registered_index = Some(registration.offset);
        } else {
            self.features = self.features.without(DriverFeature::RegisteredRing);
        }
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
            // SAFETY: the caller's duty, word for word.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return;
            }
            self.early_submits += 1;
            // Whatever the answer: either there is room now, or the next round asks again.
            if self.enter_with(0, Wait::Look) == Err(Errno::AGAIN) {
                std::thread::yield_now();
            }
        }
    }

    /// Hands all submissions over and waits for one completion as `wait` says. A wait that is over
    /// or was interrupted is no error.
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
        // outlive the call; the entries' memory is the duty of those who pushed them.
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
        self.io.submission().is_empty()
    }

    /// Whether the kernel keeps completions aside for which there was no room.
    #[inline]
    pub(super) fn is_overflowing(&mut self) -> bool {
        self.io.submission().cq_overflow()
    }

    /// Whether completions can be taken out.
    #[inline]
    pub(super) fn has_completions(&mut self) -> bool {
        !self.io.completion().is_empty()
    }

    /// Whether the kernel has completions to work out when it is called next: with
    /// [`DriverFeature::TaskRunFlag`] only.
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
        // Needs a single issuer.
        if features.has(DriverFeature::DeferredTaskRun) {
            builder.setup_defer_taskrun();
        }
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

/// What the last call of this thread through libc failed with.
pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
