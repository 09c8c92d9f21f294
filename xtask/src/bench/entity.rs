//! `serve entity`: beside plaintext, beside other stores, and beside itself at rest.
//!
//! Each part fills a server of its own, in a directory that is gone afterwards. Rivals run on the same
//! CPU and the same disk, in turns with ours. Absent on purpose: several machines (`cassandra` has its
//! own verb), and memory (`entity-bounds`).

mod reads;
mod latency;
mod redis;
mod etcd;
mod compaction;
mod restart;

use super::command::{bounded, text_of, text_of_load};
use super::figure::Figure;
use super::generator::CONNECTIONS;
use super::server::Server;
use super::{Bench, measure_parts};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time to write or read every key once.
const PASS_MAX: Duration = Duration::from_secs(300);

type Part = fn(&Bench) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("reads", reads::measure),
    ("latency", latency::measure),
    ("redis", redis::measure),
    ("etcd", etcd::measure),
    ("compaction", compaction::measure),
    ("restart", restart::measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let parts = PARTS.iter().map(|(name, part)| {
        println!("--- {name}");
        (*name, part(bench))
    });
    measure_parts(bench, "entity", parts)
}

/// A directory below the benchmark's, empty at first and gone at last.
struct Directory(PathBuf);

impl Directory {
    fn make(bench: &Bench, name: &str) -> Result<Self, String> {
        let path = bench.scratch.join(name);
        // What an interrupted run left; it may not be there.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path)
            .map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server with its data; it stops before they go.
struct EntityServer {
    server: Server,
    _data: Directory,
}

impl EntityServer {
    /// With an empty store, behind the words of `words`.
    fn start(bench: &Bench, name: &str, words: &[&str]) -> Result<Self, String> {
        let data = Directory::make(bench, name)?;
        Ok(Self {
            server: serve(bench, &data.0, words)?,
            _data: data,
        })
    }
}

impl Deref for EntityServer {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.server
    }
}

fn serve(bench: &Bench, data: &Path, words: &[&str]) -> Result<Server, String> {
    let data = data.display().to_string();
    let words = [&["entity", "--data", &data][..], words].concat();
    Server::millpond(bench, &words, &[])
}

/// Writes every key once with our own generator, which checks each answer.
fn fill(bench: &Bench, server: &Server) -> Result<(), String> {
    let keys = bench.plan.keys.to_string();
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command
        .arg(&bench.millpond)
        .args(["load", "--put", "--value-size", "1KiB", "--threads", "1"]);
    command.args([
        "--connections",
        &CONNECTIONS.to_string(),
        "--keys",
        &keys,
        "--requests",
        &keys,
    ]);
    command.arg(format!("http://{}/", server.address));
    text_of_load(&mut command).map(drop)
}

/// Warms the cache: every key once, in order. Random reads would leave some cold for long.
fn read_every_key(bench: &Bench, server: &Server) -> Result<(), String> {
    let last = bench.plan.keys - 1;
    let mut command = bounded(bench.machine.generator_cpu, PASS_MAX);
    command.args(["curl", "--silent", "--show-error", "--fail"]);
    command.args(["--output", "/dev/null"]);
    let ids = format!("k[000000000-{last:09}]");
    command.arg(format!("http://{}/v0/entity?id={ids}", server.address));
    text_of(&mut command).map(drop)
}
