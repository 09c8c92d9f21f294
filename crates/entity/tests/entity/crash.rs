//! kill -9 at any moment, under a load of all operations: the responses before and after fit one register for each key.
//!
//! Connections on both shards put (with and without conditions, some with an end), delete, read, and
//! read ranges, all of the same keys. After so many responses the server process is killed; some are
//! killed while they recover; behind some logs a torn record is left, as a power failure leaves it. The
//! next server is read through at once, and then loaded again. `MILLPOND_CRASH_KILLS=200` makes it X
//!
//! The same on a disk that fails (`support/disk`): a write, a sync, a rename or a creation of a file,
//! once or from then on, anywhere from the opening of the directory to the merging of its tables. From
//! the first refused write on none is taken, and reads go on. Behind half of the deaths the power is
//! lost too: of every file what no sync covers is cut off or garbled.

mod history;
mod history_tests;
mod visitor;

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::disk::{Disk, Fault};
use crate::support::process::ServerProcess;
use crate::support::{Client, PATIENCE};
use history::{Operation, State, possible_after};
use visitor::{KEYS, Visit, Visitor, key};

/// In a test of every day.
const KILLS_DEFAULT: u32 = 6;

const CONNECTIONS: u64 = 8;

/// A server is killed after so many responses.
const ANSWERS_MAX: u64 = 1500;

/// Of the calls that a start makes.
const MET_BY_ALL: Fault = Fault {
    kind: "create",
    only: "",
    number: 1,
    is_lasting: false,
    is_full: false,
};

/// A data directory, the clients of its servers, and what they have seen.
struct Scene {
    data: PathBuf,
    random: fastrand::Rng,
    start: Instant,
    visitors: Vec<Visitor>,
    /// Reads all when no other client is active.
    looker: Visitor,
    /// Possible contents of each key.
    possible: Vec<HashSet<State>>,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    kills: u32,
    kills_in_recovery: u32,
    torn_logs: u32,
    /// Servers that met a failure of the disk.
    failures: u32,
    /// Those of them that ended at once.
    refused_starts: u32,
    /// Those that refused writes.
    refusals: u32,
    /// Times that unsynced bytes were lost.
    power_losses: u32,
    lost_bytes: u64,
    operations: u64,
    unanswered: u64,
}

impl Scene {
    fn new(data: PathBuf, seed: u64) -> Self {
        Self {
            data,
            random: fastrand::Rng::with_seed(seed),
            start: Instant::now(),
            visitors: (1..=CONNECTIONS).map(|n| Visitor::new(n, seed)).collect(),
            looker: Visitor::new(CONNECTIONS + 1, seed),
            possible: vec![HashSet::from([None]); KEYS],
            tally: Tally::default(),
        }
    }

    /// A server's whole life.
    fn kill_one(&mut self) {
        if self.random.u8(..5) == 0 {
            self.kill_one_in_recovery();
        }
        let server = ServerProcess::start(&self.data);
        self.live_and_die(server, false);
        if self.random.bool() {
            self.leave_torn_record();
        }
    }

    /// All clients send requests until the server is killed, and their observations are checked.
    fn live_and_die(&mut self, mut server: ServerProcess, may_refuse: bool) -> bool {
        let visit = self.visit(&server, may_refuse);
        self.looker.look(&visit);
        let answers = visit.answered.load(Ordering::Relaxed) + self.random.u64(..ANSWERS_MAX);
        let pause = Duration::from_micros(self.random.u64(..3000));
        std::thread::scope(|scope| {
            let visit = &visit;
            for visitor in &mut self.visitors {
                // Here, or the server may be gone before a thread has its turn.
                let client = Client::connect(visit.address);
                scope.spawn(move || visitor.ask(client, visit));
            }
            let hang = Instant::now() + PATIENCE;
            while visit.answered.load(Ordering::Relaxed) < answers && Instant::now() < hang {
                std::thread::sleep(Duration::from_micros(100));
            }
            // Not just behind a response.
            std::thread::sleep(pause);
            if visit.is_refusing.load(Ordering::SeqCst) {
                self.looker.look(visit);
            }
            assert!(server.is_running(), "the server ended by itself");
            server.kill();
        });
        assert!(
            visit.answered.load(Ordering::Relaxed) >= answers,
            "the server stopped answering"
        );
        self.tally.kills += 1;
        self.judge();
        visit.is_refusing.load(Ordering::SeqCst)
    }

    /// The same on a disk that fails.
    fn fail_one(&mut self, disk: &mut Disk, fault: Fault) {
        let server = ServerProcess::start_on(disk, Some(fault), &self.data);
        let has_started = server.is_some();
        let has_refused = server.is_some_and(|server| self.live_and_die(server, true));
        let failed = disk.read_journal();
        assert!(
            !failed.is_empty() || (has_started && !has_refused),
            "{fault:?}: nothing failed, and the server refuses"
        );
        self.tally.failures += u32::from(!failed.is_empty());
        self.tally.refused_starts += u32::from(!has_started);
        self.tally.refusals += u32::from(has_refused);
        if self.random.bool() {
            self.tally.power_losses += 1;
            self.tally.lost_bytes += disk.lose_power(&mut self.random);
        }
    }

    /// One that a server meets, most times: it makes so many calls of a kind.
    fn next_fault(&mut self) -> Fault {
        let (kind, only, number_max) = [
            ("write", "", 200),
            ("write", ".log", 100),
            ("write", ".sst", 8),
            ("write", "MANIFEST", 8),
            ("sync", "", 120),
            ("sync", ".log", 100),
            ("sync", ".sst", 6),
            ("sync", "MANIFEST", 6),
            ("rename", "", 4),
            ("create", "", 12),
        ][self.random.usize(..10)];
        Fault {
            kind,
            only,
            number: self.random.u64(1..=number_max),
            is_lasting: self.random.bool(),
            is_full: self.random.bool(),
        }
    }

    /// The start of a server reads the log, writes tables, and may die of it at any moment.
    fn kill_one_in_recovery(&mut self) {
        let mut child = ServerProcess::spawn(&self.data);
        std::thread::sleep(Duration::from_micros(self.random.u64(..60_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        self.tally.kills += 1;
        self.tally.kills_in_recovery += 1;
    }

    fn visit(&self, server: &ServerProcess, may_refuse: bool) -> Visit {
        Visit {
            address: server.address,
            start: self.start,
            answered: AtomicU64::new(0),
            may_refuse,
            is_refusing: AtomicBool::new(false),
        }
    }

    /// Whether each key's part of the history up to this death is possible.
    fn judge(&mut self) {
        let mut by_key: Vec<Vec<Operation>> = vec![Vec::new(); KEYS];
        for visitor in self.visitors.iter_mut().chain([&mut self.looker]) {
            for (index, operation) in visitor.seen.drain(..) {
                self.tally.operations += 1;
                self.tally.unanswered += u64::from(!operation.is_answered());
                by_key[index].push(operation);
            }
        }
        for (index, operations) in by_key.iter().enumerate() {
            let possible = possible_after(&self.possible[index], operations);
            self.possible[index] = possible.unwrap_or_else(|violation| {
                panic!("{}, {:?}: {violation}", key(index), self.tally)
            });
        }
        let mut tags: HashMap<&str, u64> = HashMap::new();
        let everybody = self.visitors.iter().chain([&self.looker]);
        let told = everybody.flat_map(|visitor| &visitor.tags);
        for (&number, tag) in told {
            let other = *tags.entry(tag).or_insert(number);
            assert_eq!(other, number, "two puts have the tag {tag}");
        }
    }

    /// Puts behind the newest log the remains of an interrupted write: part of a record, a record whose bytes did not
    /// arrive, or room without bytes.
    fn leave_torn_record(&mut self) {
        let Some(log) = newest_log(&self.data) else {
            return;
        };
        let garbage: Vec<u8> = (0..self.random.usize(1..3000))
            .map(|_| self.random.u8(..))
            .collect();
        // Checksum (4 bytes), length (2), type (1: a whole record), then as many bytes.
        let mut torn = garbage[..4.min(garbage.len())].to_vec();
        match self.random.u8(..4) {
            0 => torn.truncate(self.random.usize(..torn.len() + 1)),
            1 => torn = vec![0; self.random.usize(1..5000)],
            2 => {
                torn.extend(u16::try_from(garbage.len()).unwrap().to_le_bytes());
                torn.push(1);
                torn.extend(&garbage[..self.random.usize(..garbage.len())]);
            }
            _ => {
                torn.extend(u16::try_from(garbage.len()).unwrap().to_le_bytes());
                torn.push(1);
                torn.extend(&garbage);
            }
        }
        let mut file = OpenOptions::new().append(true).open(log).unwrap();
        file.write_all(&torn).unwrap();
        self.tally.torn_logs += 1;
    }
}

fn newest_log(data: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap().map(Result::unwrap);
    let logs = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number: u64 = name.strip_suffix(".log")?.parse().ok()?;
        Some((number, entry.path()))
    });
    logs.max().map(|(_, path)| path)
}

/// How many deaths a test is long.
fn kills() -> u32 {
    match std::env::var("MILLPOND_CRASH_KILLS") {
        Ok(kills) => kills.parse().expect("MILLPOND_CRASH_KILLS is a number"),
        Err(_) => KILLS_DEFAULT,
    }
}

/// Of what is random in a test, and printed: how far a server comes before it dies is chance in any case.
fn seed() -> u64 {
    let seed = match std::env::var("MILLPOND_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("MILLPOND_CRASH_SEED is a number"),
        Err(_) => fastrand::u64(..),
    };
    println!("seed {seed}");
    seed
}

impl Scene {
    /// The last server lives on: it holds all acknowledged writes of those before it.
    fn end(mut self) -> Tally {
        let server = ServerProcess::start(&self.data);
        let visit = self.visit(&server, false);
        self.looker.look(&visit);
        self.judge();
        println!("every history is possible: {:?}", self.tally);
        self.tally
    }
}

/// Goal: whenever a server dies, nothing acknowledged is lost, nothing is torn, nothing that was once
/// gone or replaced comes back.
#[test]
fn every_history_is_one_of_a_register() {
    let seed = seed();
    let parent = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(parent.path().join("data"), seed);
    while scene.tally.kills < kills() {
        scene.kill_one();
    }
    let tally = scene.end();
    assert!(tally.unanswered > 0, "no death met a write");
}

/// Goal: the same whichever call the disk fails, and whatever it forgets that was not synced.
#[test]
fn every_history_is_one_of_a_register_on_a_failing_disk() {
    let seed = seed();
    let home = tempfile::tempdir().unwrap();
    let mut disk = Disk::new(home.path(), "data");
    let data = home.path().canonicalize().unwrap().join("data");
    let mut scene = Scene::new(data, seed);
    for _ in 1..kills() {
        let fault = scene.next_fault();
        scene.fail_one(&mut disk, fault);
    }
    // How far a server comes before it is killed is chance: this one fails in any case.
    scene.fail_one(&mut disk, MET_BY_ALL);
    let tally = scene.end();
    assert!(tally.failures > 0, "no server met a failure");
}
