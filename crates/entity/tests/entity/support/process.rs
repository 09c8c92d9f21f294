//! A server in a process of its own, for tests that kill it: the test's own program, started again with
//! the data directory in the environment.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use super::disk::{Disk, Fault};
use millpond_entity::{EntityConfig, serve};
use millpond_http::ServeConfig;

const DATA_VARIABLE: &str = "MILLPOND_TEST_SERVER_DATA";
const MEMORY_VARIABLE: &str = "MILLPOND_TEST_SERVER_MEMORY";
const READY: &str = "listening on ";

/// Not a test: the server that tests start as a process of its own, with [`ServerProcess::spawn`].
#[test]
#[ignore = "the server process of other tests"]
fn server_process() {
    let Some(data) = std::env::var_os(DATA_VARIABLE) else {
        return;
    };
    let memory_bytes = std::env::var(MEMORY_VARIABLE).unwrap().parse().unwrap();
    let config = EntityConfig::with_memory(data.into(), memory_bytes);
    let mut http = ServeConfig::new("entity", "127.0.0.1:0".parse().unwrap());
    http.shards = 2;
    http.limits = super::patient_limits();
    let ready = |address: &_, _: &_| println!("{READY}{}", super::socket_address(address));
    if let Err(error) = serve(&config, &http, ready) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

const ALONE_VARIABLE: &str = "MILLPOND_TEST_ALONE";

/// Whether the calling test, named so, is alone in its process: its limits and measurements apply to the process, which
/// tests of one program may share. If it is not, it has passed in another process when this returns.
pub(crate) fn is_alone(test: &str) -> bool {
    if std::env::var_os(ALONE_VARIABLE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ALONE_VARIABLE, "")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    // With a name that no test has nothing fails either.
    let has_passed = output.status.success() && said.contains("1 passed");
    assert!(has_passed, "{test}: {said}{errors}");
    false
}

/// So little that rounds also die while tables are written and compacted: memtables of 1 MiB.
const MEMORY_BYTES: u64 = 16 << 20;

/// A server process; killed when dropped.
pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl ServerProcess {
    /// Starts it and waits until it accepts.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_with_memory(data, MEMORY_BYTES)
    }

    /// The same with so much memory.
    pub(crate) fn start_with_memory(data: &Path, memory_bytes: u64) -> Self {
        match Self::wait_for(command(data, memory_bytes).spawn().unwrap()) {
            Ok(server) => server,
            Err(status) => panic!("the server did not start: {status}"),
        }
    }

    /// The same on a disk that may fail. None: the server said that it cannot start, and ended.
    pub(crate) fn start_on(disk: &Disk, fault: Option<Fault>, data: &Path) -> Option<Self> {
        let mut command = command(data, MEMORY_BYTES);
        disk.put_under(&mut command, fault);
        match Self::wait_for(command.spawn().unwrap()) {
            Ok(server) => Some(server),
            Err(status) => {
                assert!(status.code().is_some(), "{fault:?}: it ended with {status}");
                None
            }
        }
    }

    fn wait_for(mut child: Child) -> Result<Self, ExitStatus> {
        let mut output = BufReader::new(child.stdout.take().unwrap());
        // The harness may have begun the line with the test's name.
        let address = output
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, address) = line.split_once(READY)?;
                address.parse().ok()
            });
        // The harness ends the process if it cannot report that a test takes longer than a minute.
        child.stdout = Some(output.into_inner());
        match address {
            Some(address) => Ok(Self { child, address }),
            None => Err(child.wait().unwrap()),
        }
    }

    /// Of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Starts it and waits for nothing.
    pub(crate) fn spawn(data: &Path) -> Child {
        command(data, MEMORY_BYTES).spawn().unwrap()
    }

    /// The most that was ever resident.
    pub(crate) fn resident_bytes_max(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// SIGKILL by process id: no handler runs, nothing is flushed.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn command(data: &Path, memory_bytes: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "support::process::server_process",
            "--ignored",
            "--nocapture",
        ])
        .env(DATA_VARIABLE, data)
        .env(MEMORY_VARIABLE, memory_bytes.to_string())
        .stdout(Stdio::piped());
    command
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Killed already: both are harmless.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
