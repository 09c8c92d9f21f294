//! Environments that forbid io_uring, as containers do: a filter for system calls around the server.
#![allow(unsafe_code)]

use crate::support::{Running, curl, millpond};
use std::io::Error;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The kernel's error for forbidden calls.
#[derive(Clone, Copy)]
struct Ban {
    calls: &'static [libc::c_long],
    answer: libc::c_int,
}

/// Most container runtimes; since 2023 also Docker's.
const BY_CONTAINER: Ban = Ban {
    calls: &[
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ],
    answer: libc::EPERM,
};
/// gVisor, and profiles that are older than the calls.
const AS_IF_ABSENT: Ban = Ban {
    answer: libc::ENOSYS,
    ..BY_CONTAINER
};
/// Filters that forget one of the calls.
const ENTER_ONLY: Ban = Ban {
    calls: &[libc::SYS_io_uring_enter],
    ..BY_CONTAINER
};
const REGISTER_ONLY: Ban = Ban {
    calls: &[libc::SYS_io_uring_register],
    ..BY_CONTAINER
};

// Classic BPF, as in linux/bpf_common.h; the number of the call is the first word it reads.
const LOAD_WORD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

const fn instruction(code: u16, jt: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf: 0, k }
}

impl Ban {
    fn program(self) -> Vec<libc::sock_filter> {
        let count = self.calls.len() as u8;
        let compare = |(index, call): (usize, &libc::c_long)| {
            // Over the comparisons that are left, and over the permission.
            instruction(JUMP_IF_EQUAL, count - index as u8, *call as u32)
        };
        let mut program = vec![instruction(LOAD_WORD, 0, 0)];
        program.extend(self.calls.iter().enumerate().map(compare));
        program.push(instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW));
        let refusal = libc::SECCOMP_RET_ERRNO | self.answer as u32;
        program.push(instruction(RETURN, 0, refusal));
        program
    }

    /// Lets the command run under this ban.
    fn on(self, mut command: Command) -> Command {
        let mut program = self.program();
        let install = move || {
            let filter = libc::sock_fprog {
                len: program.len() as u16,
                filter: program.as_mut_ptr(),
            };
            // SAFETY: both calls read their arguments and `filter` only while they run; they are
            // system calls and nothing else, which is allowed between fork and exec.
            let is_installed = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                    && libc::prctl(
                        libc::PR_SET_SECCOMP,
                        libc::SECCOMP_MODE_FILTER,
                        &raw const filter,
                    ) == 0
            };
            is_installed.then_some(()).ok_or_else(Error::last_os_error)
        };
        // SAFETY: the closure makes two system calls and touches only memory made before the fork.
        unsafe { command.pre_exec(install) };
        command
    }
}

fn serve(driver: &str) -> Command {
    millpond(&[
        "serve",
        "plaintext",
        "--listen",
        "127.0.0.1:0",
        "--shards",
        "1",
        "--driver",
        driver,
    ])
}

/// Goal: where io_uring is forbidden, auto serves with epoll and says why; with `uring` the reason
/// is one sentence and nothing listens.
#[test]
fn forbidden_rings_are_explained() {
    for (ban, reason) in [
        (BY_CONTAINER, "io_uring is forbidden to this process"),
        (AS_IF_ABSENT, "this kernel has no io_uring"),
        (ENTER_ONLY, "io_uring is forbidden to this process"),
        (REGISTER_ONLY, "io_uring is forbidden to this process"),
    ] {
        let mut process = Running::start(&mut ban.on(serve("auto")));
        let line = process.first_line();
        let address = line.trim().strip_prefix("listening on ").unwrap();
        let (status, metrics) = curl(&[&format!("http://{address}/metrics")]);
        let metrics = String::from_utf8(metrics).unwrap();
        assert_eq!(status, 200);
        assert!(metrics.contains("driver=\"epoll\""), "{metrics}");
        process.signal("TERM");
        let finished = process.finish();
        assert_eq!(finished.code(), 0, "{finished:?}");
        let expected = format!("epoll driver, because {reason}");
        assert!(finished.stderr.contains(&expected), "{finished:?}");

        let finished = Running::start(&mut ban.on(serve("uring"))).finish();
        assert_eq!(
            (finished.code(), finished.stdout.as_str()),
            (1, ""),
            "{finished:?}"
        );
        let sentence = finished.sentence();
        assert!(
            sentence.contains(reason) && sentence.contains("epoll"),
            "{sentence}"
        );
    }
}
