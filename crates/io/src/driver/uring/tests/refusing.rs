//! A kernel that refuses one of io_uring's calls: to one thread, by a filter as containers have it.

use crate::driver::uring::ring::ENTER_ABSOLUTE_TIMER;
use rustix::io::Errno;
use std::thread;

/// The refused call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    /// `io_uring_setup`.
    Setup,
    /// `io_uring_enter`.
    Enter,
    /// `io_uring_enter` until a point in time.
    EnterUntil,
    /// `io_uring_register` of this kind.
    Register(u32),
}

/// `IORING_REGISTER_PROBE`.
pub(super) const REGISTER_PROBE: u32 = 8;
/// `IORING_REGISTER_RING_FDS`.
pub(super) const REGISTER_RINGS: u32 = 20;
/// `IORING_REGISTER_PBUF_RING`.
pub(super) const REGISTER_BUFFER_RING: u32 = 22;

/// The result of one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) call: Call,
    pub(super) error: Errno,
}

/// Where `struct seccomp_data` has the call's number and its arguments' lower halves.
const NUMBER_OFFSET: u32 = 0;
const fn argument_offset(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

impl Refusal {
    /// Runs `work` on a thread that lives under it; `None` where filters are forbidden as well.
    pub(super) fn during<T: Send + 'static>(self, work: fn() -> T) -> Option<T> {
        let thread = thread::spawn(move || self.install().then(work));
        thread.join().expect("the work does not panic")
    }

    /// The filter: `[number] != call -> allow; [argument] is not the one meant -> allow; error`.
    fn program(self) -> [libc::sock_filter; 6] {
        let (number, load, test, value) = match self.call {
            // Any argument will do: its value is at least 0.
            Call::Setup => (libc::SYS_io_uring_setup, 0, libc::BPF_JGE, 0),
            Call::Enter => (libc::SYS_io_uring_enter, 0, libc::BPF_JGE, 0),
            Call::EnterUntil => (
                libc::SYS_io_uring_enter,
                3,
                libc::BPF_JSET,
                ENTER_ABSOLUTE_TIMER,
            ),
            Call::Register(kind) => (libc::SYS_io_uring_register, 1, libc::BPF_JEQ, kind),
        };
        let line = |code: u32, k: u32, on_false: u8| libc::sock_filter {
            code: u16::try_from(code).expect("codes have 16 bits"),
            jt: 0,
            jf: on_false,
            k,
        };
        let load_word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let number = u32::try_from(number).expect("numbers of calls are small");
        let error = u32::try_from(self.error.raw_os_error()).expect("error numbers are positive");
        [
            line(load_word, NUMBER_OFFSET, 0),
            line(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, number, 3),
            line(load_word, argument_offset(load), 0),
            line(libc::BPF_JMP | test | libc::BPF_K, value, 1),
            line(
                libc::BPF_RET | libc::BPF_K,
                libc::SECCOMP_RET_ERRNO | error,
                0,
            ),
            line(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        ]
    }

    fn install(self) -> bool {
        let mut lines = self.program();
        let program = libc::sock_fprog {
            len: u16::try_from(lines.len()).expect("six lines"),
            filter: lines.as_mut_ptr(),
        };
        // SAFETY: plain numbers; it only takes rights from this thread.
        let has_renounced = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } == 0;
        // SAFETY: the program and its lines outlive the call, which copies them.
        let is_filtered = unsafe {
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        } == 0;
        has_renounced && is_filtered
    }
}
