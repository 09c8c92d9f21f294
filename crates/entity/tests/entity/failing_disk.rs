//! Each write, sync, rename, link and creation of a file fails once, while a directory is made, opened, upgraded,
//! copied or restored: acknowledged writes are there at the next opening, and incomplete data is not taken for
//! complete. Then the power is lost as well.
//!
//! The i-th call fails in a separate process, for growing i, until none is left to fail. A check takes large steps;
//! `MILLPOND_DISK_STEP=1` makes every one of them, and `cargo bench-suite crash` does so. Clients' view meanwhile:
//! `crash`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::disk::{Disk, Fault};
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::store::{Durability, StoreError, Write};
use millpond_entity::{DataDirError, Engine as _, EntityConfig, Store, admin, open};

const JOB_VARIABLE: &str = "MILLPOND_TEST_DISK_JOB";
const HOME_VARIABLE: &str = "MILLPOND_TEST_DISK_HOME";

/// Calls from one that fails to the next, in a test of every day, at most.
const STEP_DEFAULT: u64 = 20;

/// State before a job begins.
const BEFORE: u64 = 20;

/// Disk work of a process.
#[derive(Clone, Copy, Debug)]
enum Job {
    /// A directory is made, written to, and its tables are merged.
    Create,
    /// The same with one that holds tables and a log.
    Reopen,
    /// That one is copied while it is written to.
    Checkpoint,
    /// A backup is restored.
    Restore,
    /// A directory of format 1 is opened.
    Upgrade,
}

impl Job {
    const ALL: [Self; 5] = [
        Self::Create,
        Self::Reopen,
        Self::Checkpoint,
        Self::Restore,
        Self::Upgrade,
    ];
}

/// Where everything is.
struct Places {
    data: PathBuf,
    backup: PathBuf,
    restored: PathBuf,
}

impl Places {
    fn below(disk: &Path) -> Self {
        Self {
            data: disk.join("data"),
            backup: disk.join("backup"),
            restored: disk.join("restored"),
        }
    }
}

fn open_at(path: &Path) -> Result<RocksDbStore, DataDirError> {
    open(&EntityConfig::with_memory(path.to_owned(), 16 << 20))
}

fn value_of(number: u64) -> Vec<u8> {
    let len = usize::try_from(number % 7 * 500).unwrap();
    let stamp = number.to_be_bytes();
    stamp.into_iter().cycle().take(8 + len).collect()
}

fn put(store: &RocksDbStore, number: u64) -> Result<(), StoreError> {
    let head = Head {
        version: Version(number + 1),
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    put_bare(store, number, &encode(&head, &value_of(number)))
}

fn put_bare(store: &RocksDbStore, number: u64, value: &[u8]) -> Result<(), StoreError> {
    let write = Write::Put {
        key: &number.to_be_bytes(),
        head: b"",
        value,
    };
    store.commit([write].into_iter(), value.len(), Durability::Synced)
}

/// A directory with half of what is to be in tables and half in a log.
fn fill(path: &Path, put: impl Fn(&RocksDbStore, u64) -> Result<(), StoreError>) {
    let store = open_at(path).unwrap();
    for number in 0..BEFORE {
        put(&store, number).unwrap();
        if number == BEFORE / 2 {
            store.compact().unwrap();
        }
    }
}

fn prepare(job: Job, places: &Places) {
    match job {
        Job::Create => {}
        Job::Reopen | Job::Checkpoint => fill(&places.data, put),
        Job::Restore => {
            fill(&places.data, put);
            admin::backup(&places.data, &places.backup).unwrap();
        }
        Job::Upgrade => {
            // No filter of this format may meet those values: nothing is merged.
            let store = open_at(&places.data).unwrap();
            for number in 0..BEFORE {
                put_bare(&store, number, &value_of(number)).unwrap();
            }
            drop(store);
            let mark = places.data.join("MILLPOND");
            fs::write(mark, "millpond entity data, format 1\n").unwrap();
        }
    }
}

/// Not a separate test: the others inject failures into it. It prints the acknowledged writes.
#[test]
#[ignore = "the process of the other tests"]
fn disk_process() {
    let Ok(name) = std::env::var(JOB_VARIABLE) else {
        return;
    };
    let job = Job::ALL.into_iter().find(|job| format!("{job:?}") == name);
    let home = PathBuf::from(std::env::var_os(HOME_VARIABLE).unwrap());
    let end = match run(job.unwrap(), &Places::below(&home)) {
        Ok(()) => "done".to_owned(),
        Err(error) => error.to_string(),
    };
    println!("\nended: {end}");
}

fn run(job: Job, places: &Places) -> Result<(), Box<dyn std::error::Error>> {
    if let Job::Restore = job {
        admin::restore(&places.backup, &places.restored)?;
        println!("\ncomplete");
        return Ok(());
    }
    let store = open_at(&places.data)?;
    let promise = |number| -> Result<(), StoreError> {
        put(&store, number)?;
        println!("\nacknowledged {number}");
        Ok(())
    };
    promise(BEFORE)?;
    promise(BEFORE + 1)?;
    if let Job::Checkpoint = job {
        match store.checkpoint(&places.backup) {
            Ok(()) => println!("\ncomplete"),
            // The server goes on.
            Err(error) => println!("\nno checkpoint: {error}"),
        }
    } else {
        store.compact()?;
    }
    promise(BEFORE + 2)?;
    Ok(())
}

/// Reports of a process about its work.
#[derive(Debug)]
struct Said {
    acknowledged: Vec<u64>,
    is_complete: bool,
}

fn start(job: Job, disk: &Disk, home: &Path, fault: Fault) -> Said {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "failing_disk::disk_process",
            "--ignored",
            "--nocapture",
        ])
        .env(JOB_VARIABLE, format!("{job:?}"))
        .env(HOME_VARIABLE, home)
        .stdin(Stdio::null());
    disk.put_under(&mut command, Some(fault));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("\nended: "),
        "{job:?}, {fault:?}: it ended with {}\n{text}{errors}",
        output.status
    );
    let numbers = text
        .lines()
        .filter_map(|line| line.strip_prefix("acknowledged "));
    Said {
        acknowledged: numbers.map(|number| number.parse().unwrap()).collect(),
        is_complete: text.lines().any(|line| line == "complete"),
    }
}

/// The directory opens, everything in it is readable, and all those entities are in it.
fn assert_holds(path: &Path, numbers: impl Iterator<Item = u64>, what: &str) {
    let store = open_at(path).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(store.check().unwrap().unreadable, 0, "{what}");
    for number in numbers {
        let found = store.get(&number.to_be_bytes(), |record| {
            Head::split(record).unwrap().1.whole().unwrap().to_vec()
        });
        let found = found.unwrap();
        assert_eq!(found, Some(value_of(number)), "{what}: entity {number}");
    }
}

/// Acknowledged writes are there, and a partial copy is not taken for one.
fn judge(job: Job, places: &Places, said: &Said, what: &str) {
    let before = match job {
        Job::Create => 0..0,
        _ => 0..BEFORE,
    };
    let promised = before.clone().chain(said.acknowledged.iter().copied());
    assert_holds(&places.data, promised, what);
    match job {
        Job::Create | Job::Reopen | Job::Upgrade => {}
        Job::Checkpoint => {
            let restored = admin::restore(&places.backup, &places.restored);
            assert!(
                restored.is_ok() || !said.is_complete,
                "{what}: {restored:?}"
            );
            if restored.is_ok() {
                assert_holds(&places.restored, 0..BEFORE + 2, what);
            }
        }
        Job::Restore => {
            let opened = open_at(&places.restored).map(drop);
            assert!(opened.is_ok() || !said.is_complete, "{what}: {opened:?}");
            if said.is_complete {
                assert_holds(&places.restored, before.clone(), what);
            }
            // The backup is as good as ever.
            let again = places.restored.with_file_name("again");
            admin::restore(&places.backup, &again).unwrap();
            assert_holds(&again, before, what);
        }
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => copy_tree(&from, &to),
            false => drop(fs::copy(from, to).unwrap()),
        }
    }
}

/// Fails every call of every kind, or some of them.
fn sweep(job: Job) {
    let step_max: u64 = match std::env::var("MILLPOND_DISK_STEP") {
        Ok(step) => step.parse().expect("MILLPOND_DISK_STEP is a number"),
        Err(_) => STEP_DEFAULT,
    };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let template = tempfile::tempdir().unwrap();
    let template = template.path().join("disk");
    fs::create_dir(&template).unwrap();
    prepare(job, &Places::below(&template));
    let mut failures = 0;
    for kind in ["write", "sync", "rename", "link", "create"] {
        let mut number = random.u64(1..=step_max);
        loop {
            let fault = Fault {
                kind,
                only: "",
                number,
                is_lasting: random.bool(),
                is_full: random.bool(),
            };
            let home = tempfile::tempdir().unwrap();
            let home = home.path().canonicalize().unwrap();
            copy_tree(&template, &home.join("disk"));
            let mut disk = Disk::new(&home, "disk");
            let said = start(job, &disk, &home.join("disk"), fault);
            let failed = disk.read_journal();
            if failed.is_empty() {
                break;
            }
            failures += 1;
            disk.lose_power(&mut random);
            let what = format!("{job:?}, {fault:?}, {failed:?}, {said:?}");
            judge(job, &Places::below(&home.join("disk")), &said, &what);
            number += random.u64(1..=step_max);
        }
    }
    println!("{job:?}: {failures} failures");
    assert!(failures > 0 || step_max > 1, "no call was there to fail");
}

/// Goal: whatever fails while a directory is made, it can be made by the next attempt, and holds what
/// was acknowledged.
#[test]
fn directory_that_is_made_survives_every_failure() {
    sweep(Job::Create);
}

/// Goal: whatever fails while one is opened, its log read back and its tables merged, nothing is lost.
#[test]
fn directory_that_is_opened_survives_every_failure() {
    sweep(Job::Reopen);
}

/// Goal: a checkpoint that met a failure is complete or none, and its source is as good as ever.
#[test]
fn directory_that_is_copied_survives_every_failure() {
    sweep(Job::Checkpoint);
}

/// Goal: a restored directory that met a failure is complete or refused, and so is the backup.
#[test]
fn backup_that_is_restored_survives_every_failure() {
    sweep(Job::Restore);
}

/// Goal: an upgrade goes on wherever it failed.
#[test]
fn directory_that_is_upgraded_survives_every_failure() {
    sweep(Job::Upgrade);
}
