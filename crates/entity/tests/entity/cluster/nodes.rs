//! The three nodes that `cargo bench-suite cassandra` has started, of which a test may kill one.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::process::{Pid, Signal, kill_process};

static NODES: RwLock<()> = RwLock::new(());

/// For as long as it is kept, no node is killed.
pub(crate) fn all_nodes() -> RwLockReadGuard<'static, ()> {
    // A test that failed with a node down has said so.
    NODES.read().unwrap_or_else(PoisonError::into_inner)
}

/// The right to kill nodes. Dropping it starts those that were killed and not started again.
pub(crate) struct Nodes {
    home: PathBuf,
    _guard: RwLockWriteGuard<'static, ()>,
}

/// Waits until no other test needs the nodes.
pub(crate) fn no_others() -> Nodes {
    let home = std::env::var_os("MILLPOND_CASSANDRA_HOME");
    Nodes {
        home: home
            .expect("cargo bench-suite cassandra says where they are")
            .into(),
        _guard: NODES.write().unwrap_or_else(PoisonError::into_inner),
    }
}

impl Nodes {
    fn pid_file(&self, number: u8) -> PathBuf {
        self.home.join(format!("node{number}/pid"))
    }

    /// Like `kill -9`: without closing its connections.
    pub(crate) fn kill(&self, number: u8) {
        let pid = std::fs::read_to_string(self.pid_file(number)).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        std::fs::rename(self.pid_file(number), self.killed_file(number)).unwrap();
    }

    fn killed_file(&self, number: u8) -> PathBuf {
        self.home.join(format!("node{number}/killed"))
    }

    /// Starts it with what it had, and waits until it takes clients.
    pub(crate) fn start(&self, number: u8) {
        let program = std::env::var_os("MILLPOND_BENCH_SUITE").expect("set with the home");
        let mut start = Command::new(program);
        start.arg("cassandra-node").arg(&self.home);
        assert!(start.arg(number.to_string()).status().unwrap().success());
        std::fs::remove_file(self.killed_file(number)).unwrap();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for number in 1..=3 {
            if self.killed_file(number).exists() {
                self.start(number);
            }
        }
    }
}
