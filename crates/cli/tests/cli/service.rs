//! `--listen systemd` and `NOTIFY_SOCKET`: servers started as systemd starts them, by a stand-in for it.
#![allow(unsafe_code)]

use crate::support::{Running, curl, millpond};
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Beyond what a start takes beside a compiler on each processor.
const PATIENCE: Duration = Duration::from_secs(120);

/// `millpond` with these words and sockets, from descriptor 3 on, as systemd hands them over.
fn with_sockets(words: &[&str], sockets: &[i32]) -> Command {
    // `LISTEN_PID` is the process that becomes millpond; only that process has the number.
    let mut command = Command::new("sh");
    let script = "LISTEN_PID=$$ exec \"$0\" \"$@\"";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_millpond")])
        .args(words);
    command.env("LISTEN_FDS", sockets.len().to_string());
    let sockets = sockets.to_vec();
    let hand_over = move || {
        for (place, socket) in (3..).zip(&sockets) {
            // SAFETY: a system call on two numbers; the copy lies behind the streams that std has set up,
            // and what std keeps open there for the child's own errors is closed by exec, not written to.
            if unsafe { libc::dup2(*socket, place) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only and touches memory that was made before the fork.
    unsafe { command.pre_exec(hand_over) };
    command
}

/// Numbers far from 3, so that none is overwritten before it is copied.
fn high(socket: &impl AsRawFd) -> i32 {
    // SAFETY: a system call on a number that stays open as long as `socket`.
    let copy = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_DUPFD, 100) };
    assert!(copy >= 100, "{}", io::Error::last_os_error());
    copy
}

fn listening(process: &mut Running) -> String {
    let line = process.first_line();
    line.trim()
        .strip_prefix("listening on ")
        .unwrap()
        .to_owned()
}

/// Goal: a server takes connections from a socket that was opened for it, with either driver and several shards;
/// clients that connected before it ran are served; and the socket outlives it, for the next one.
#[test]
fn sockets_are_taken_over_and_left() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let socket = high(&listener);
    for (driver, shards) in [("auto", "1"), ("auto", "2"), ("epoll", "2")] {
        let url = format!("http://{address}/plaintext");
        let early = std::thread::spawn(move || curl(&["--max-time", "100", &url]));
        let words = [
            "serve",
            "plaintext",
            "--listen",
            "systemd",
            "--no-pin",
            "--driver",
            driver,
        ];
        let mut command = with_sockets(&words, &[socket]);
        let mut process = Running::start(command.args(["--shards", shards]));
        assert_eq!(listening(&mut process), address);
        assert_eq!(early.join().unwrap(), (200, b"Hello, World!".to_vec()));
        for _ in 0..20 {
            assert_eq!(curl(&[&format!("http://{address}/plaintext")]).0, 200);
        }
        process.signal("TERM");
        assert_eq!(process.finish().code(), 0);
    }
}

/// Goal: a proxy takes them too, a unix socket keeps its path, and two sockets are for two shards.
#[test]
fn a_proxy_takes_a_unix_socket() {
    let origin = crate::support::Server::start(&["plaintext"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pond.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let words = [
        "proxy",
        "--upstream",
        &origin.address,
        "--listen",
        "systemd",
        "--shards",
        "1",
    ];
    let mut process = Running::start(&mut with_sockets(&words, &[high(&listener)]));
    assert_eq!(listening(&mut process), format!("unix:{}", path.display()));
    let socket = path.display().to_string();
    let (status, body) = curl(&["--unix-socket", &socket, "http://pond/plaintext"]);
    assert_eq!((status, body.as_slice()), (200, &b"Hello, World!"[..]));
    process.signal("TERM");
    assert_eq!(process.finish().code(), 0);
    assert!(path.exists());
    let two = [high(&listener), high(&listener)];
    let finished = Running::start(&mut with_sockets(&words, &two)).finish();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains("2 sockets"), "{finished:?}");
}

/// Goal: without sockets the reason is one sentence, also if they were for another process; the same for files that are
/// no sockets.
#[test]
fn missing_sockets_are_explained() {
    let words = ["serve", "plaintext", "--listen", "systemd"];
    let mut for_another = millpond(&words);
    for_another.env("LISTEN_FDS", "1").env("LISTEN_PID", "1");
    for mut command in [millpond(&words), for_another] {
        let finished = Running::start(&mut command).finish();
        assert_eq!(finished.code(), 1, "{finished:?}");
        assert!(finished.sentence().contains("socket unit"), "{finished:?}");
    }
    let file = tempfile::tempfile().unwrap();
    let finished = Running::start(&mut with_sockets(&words, &[high(&file)])).finish();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains("descriptor 3"), "{finished:?}");
    let finished = Running::start(millpond(&words).arg("--reuse-port")).finish();
    assert_eq!(finished.code(), 2, "{finished:?}");
}

/// Goal: problems that need a person's action are in the manager's status, with its time.
#[test]
fn a_service_manager_shows_the_last_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let words = ["serve", "plaintext", "--listen", "127.0.0.1:0"];
    let mut command = millpond(&words);
    command.args(["--shards", "1", "--access-log", "/dev/full"]);
    let mut process = Running::start(command.env("NOTIFY_SOCKET", &path));
    let mut room = [0; 1024];
    let mut next = || {
        let length = manager.recv(&mut room).unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    };
    let address = listening(&mut process);
    let serving = format!("STATUS=listening on {address}");
    assert_eq!(next(), format!("READY=1\n{serving}\n"));
    assert_eq!(curl(&[&format!("http://{address}/plaintext")]).0, 200);
    let status = next();
    let error = status.strip_prefix(&format!("{serving}; last error at "));
    assert!(
        error.is_some_and(|error| error.contains("/dev/full") && error.ends_with('\n')),
        "{status}"
    );
    assert_eq!(status.lines().count(), 1, "{status}");
    process.signal("TERM");
    assert!(next().starts_with("STOPPING=1"));
    process.finish();
}

/// Goal: the manager is notified that the server accepts, that it reads its files again and has done so, and that it
/// stops, in this order; SIGHUP does not end a server that has a manager and no files.
#[test]
fn a_service_manager_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let words = [
        "serve",
        "plaintext",
        "--listen",
        "127.0.0.1:0",
        "--shards",
        "1",
    ];
    let mut process = Running::start(millpond(&words).env("NOTIFY_SOCKET", &path));
    let mut room = [0; 512];
    let mut next = || {
        let length = manager.recv(&mut room).unwrap();
        String::from_utf8(room[..length].to_vec()).unwrap()
    };
    let address = listening(&mut process);
    assert_eq!(next(), format!("READY=1\nSTATUS=listening on {address}\n"));
    process.signal("HUP");
    let reloading = next();
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(next().starts_with("READY=1\n"));
    assert_eq!(curl(&[&format!("http://{address}/plaintext")]).0, 200);
    process.signal("TERM");
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(process.finish().code(), 0);

    let mut command = millpond(&words);
    let finished = Running::start(command.env("NOTIFY_SOCKET", "/nowhere/notify")).finish();
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("NOTIFY_SOCKET"),
        "{finished:?}"
    );
}
