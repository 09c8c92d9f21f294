//! Data directories of which something is missing, cut or damaged: refused, reported or whole, never smaller in silence.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::disk::{Disk, Fault};
use crate::support::process::ServerProcess;
use crate::support::{TestServer, wait_until};
use millpond_entity::record::{Head, Version, Versions, encode, now_ms};
use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::store::{Durability, Missing, Write};
use millpond_entity::{DataDirError, Engine, EntityConfig, Store, admin, open};

pub(crate) const COUNT: u16 = 300;
/// Those below are in a table, the others in the log.
const IN_TABLE: u16 = 100;
/// So many were deleted again, the first ones.
pub(crate) const DELETED: u16 = 20;

fn open_at(path: &Path) -> Result<RocksDbStore, DataDirError> {
    open(&EntityConfig::new(path.to_owned()))
}

fn open_accepting(path: &Path) -> Result<RocksDbStore, DataDirError> {
    let mut config = EntityConfig::new(path.to_owned());
    config.accepts_loss = true;
    open(&config)
}

pub(crate) fn key(n: u16) -> [u8; 2] {
    n.to_be_bytes()
}

fn put(store: &RocksDbStore, n: u16, durability: Durability) {
    let head = Head {
        version: Version(1),
        expires_ms: 0,
        content_type: b"",
        content_encoding: b"",
    };
    let record = encode(&head, &[n.to_be_bytes()[1]; 500]);
    let write = Write::Put {
        key: &key(n),
        head: b"",
        value: &record,
    };
    store.commit([write].into_iter(), 0, durability).unwrap();
}

/// Some in a table, some in the log, some deleted.
fn fill(store: &RocksDbStore, durability: Durability) {
    for n in 0..COUNT {
        put(store, n, durability);
        if n == IN_TABLE {
            store.compact().unwrap();
        }
    }
    for n in 0..DELETED {
        let delete = Write::Delete { key: &key(n) };
        store.commit([delete].into_iter(), 0, durability).unwrap();
    }
}

/// How many of the entities are unchanged; the first that is not, without an error of its own, is reported.
fn right_ones(store: &RocksDbStore) -> (usize, Option<u16>) {
    let mut right = 0;
    let mut wrong = None;
    for n in 0..COUNT {
        let expected = (n >= DELETED).then(|| vec![n.to_be_bytes()[1]; 500]);
        let found = store.get(&key(n), |record| {
            Head::split(record).map(|(_, value)| value.whole().unwrap().to_vec())
        });
        match found {
            Ok(Some(Ok(value))) if Some(&value) == expected.as_ref() => right += 1,
            Ok(None) if expected.is_none() => right += 1,
            Ok(Some(Err(_))) | Err(_) => {}
            Ok(_) => wrong = wrong.or(Some(n)),
        }
    }
    (right, wrong)
}

/// The files of a directory and what is in them.
pub(crate) fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    };
    files.map(read).collect()
}

pub(crate) fn write_files(path: &Path, files: &BTreeMap<String, Vec<u8>>) {
    fs::create_dir(path).unwrap();
    for (name, bytes) in files {
        fs::write(path.join(name), bytes).unwrap();
    }
}

/// State on the disk after a clean stop.
pub(crate) fn stopped() -> BTreeMap<String, Vec<u8>> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let store = open_at(&path).unwrap();
    fill(&store, Durability::Synced);
    drop(store);
    files(&path)
}

/// State when the server is killed a moment after it noted its files.
pub(crate) fn killed(durability: Durability) -> BTreeMap<String, Vec<u8>> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let store = open_at(&path).unwrap();
    fill(&store, durability);
    store.note_files();
    store.note_files();
    files(&path)
}

/// The ways in which a file is changed.
pub(crate) fn changes(bytes: &[u8]) -> Vec<(&'static str, Option<Vec<u8>>)> {
    let cut = |len: usize| Some(bytes[..len].to_vec());
    let flip = |at: usize| {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x40;
        Some(flipped)
    };
    let mut changes = vec![("removed", None)];
    if !bytes.is_empty() {
        let len = bytes.len();
        changes.extend([
            ("emptied", cut(0)),
            ("cut by half", cut(len / 2)),
            ("cut by 20 bytes", cut(len.saturating_sub(20))),
            ("cut by a byte", cut(len - 1)),
            ("flipped at the start", flip(0)),
            ("flipped within", flip(len / 2)),
            ("flipped at the end", flip(len - 1)),
        ]);
    }
    changes
}

/// A changed directory and what may be done with it.
struct Case {
    name: String,
    path: PathBuf,
    before: BTreeMap<String, Vec<u8>>,
}

impl Case {
    /// No inspection changes a file, except the engine's lock and the note that files change from now on.
    fn assert_untouched(&self, by: &str) {
        let name = &self.name;
        let after = files(&self.path);
        for (file, bytes) in &self.before {
            let found = after
                .get(file)
                .unwrap_or_else(|| panic!("{name}: {by} removed {file}"));
            assert!(found == bytes, "{name}: {by} changed {file}");
        }
        let new = after.keys().filter(|file| !self.before.contains_key(*file));
        let new: Vec<_> = new.filter(|file| *file != "LOCK").collect();
        assert!(new.is_empty(), "{name}: {by} made {new:?}");
    }

    fn judge(&self) {
        let name = &self.name;
        let checked = admin::check(&self.path);
        self.assert_untouched("check");
        match open_at(&self.path) {
            Ok(store) => {
                let (right, wrong) = right_ones(&store);
                assert_eq!(wrong, None, "{name}: opened, and lost in silence");
                let is_whole = right == usize::from(COUNT);
                // Damage where the table's entities were overwritten since is found by reading all of it alone.
                assert!(is_whole || checked.is_err(), "{name}: check finds nothing");
            }
            Err(error) => {
                let sentence = error.to_string();
                assert!(!sentence.contains('\n'), "{name}: {sentence}");
                assert!(checked.is_err(), "{name}: check finds nothing, {sentence}");
                let DataDirError::Loss { .. } = error else {
                    return;
                };
                self.assert_untouched("a refused start");
                self.accept();
            }
        }
    }

    /// The rest is served, and all earlier files are set aside.
    fn accept(&self) {
        let name = &self.name;
        let store = open_accepting(&self.path);
        let store = store.unwrap_or_else(|error| panic!("{name}: not accepted: {error}"));
        drop(store);
        let asides = fs::read_dir(&self.path).unwrap().map(Result::unwrap);
        let is_aside =
            |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("aside-");
        let mut asides = asides.filter(is_aside);
        let aside = files(&asides.next().unwrap().path());
        for (file, bytes) in &self.before {
            assert!(
                aside.get(file) == Some(bytes),
                "{name}: {file} is not aside"
            );
        }
        assert!(aside.contains_key("LOSS"), "{name}");
        let again = open_at(&self.path);
        assert!(again.is_ok(), "{name}: {:?}", again.err());
    }
}

fn every_change_is_found(kind: &str, image: &BTreeMap<String, Vec<u8>>) {
    for (file, bytes) in image {
        for (change, changed) in changes(bytes) {
            let home = tempfile::tempdir().unwrap();
            let mut before = image.clone();
            match changed {
                Some(changed) => before.insert(file.clone(), changed),
                None => before.remove(file),
            };
            let path = home.path().join("data");
            write_files(&path, &before);
            let case = Case {
                name: format!("{kind}, {file} {change}"),
                path,
                before,
            };
            case.judge();
        }
    }
}

/// Of 1,250 ids 896 were gone after CURRENT was, and the status was 200; a MANIFEST that was cut by 20 bytes, a log that
/// was removed and one with a flipped byte were all taken for what had been written.
///
/// Goal: whatever becomes of any file of a stopped directory, no start and no inspection serves less than was there.
#[test]
fn no_change_of_a_stopped_directory_passes() {
    every_change_is_found("stopped", &stopped());
}

/// Goal: the same after a kill, as far as the note reaches.
#[test]
fn no_change_of_a_killed_directory_passes() {
    every_change_is_found("killed", &killed(Durability::Synced));
}

/// Goal: an intact directory is opened without a warning, after a stop and after a kill.
#[test]
fn whole_directories_are_opened() {
    for image in [
        stopped(),
        killed(Durability::Synced),
        killed(Durability::Written),
    ] {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("data");
        write_files(&path, &image);
        admin::check(&path).unwrap();
        for _ in 0..2 {
            let store = open_at(&path).unwrap();
            assert_eq!(right_ones(&store), (usize::from(COUNT), None));
        }
    }
}

/// The newest log's name, and what is in it.
fn newest_log(path: &Path) -> (String, Vec<u8>) {
    let files = files(path).into_iter();
    let mut logs = files.filter(|(name, _)| name.ends_with(".log"));
    logs.next_back().unwrap()
}

fn cut_log(path: &Path, bytes: u64) {
    let (name, log) = newest_log(path);
    let file = fs::File::options()
        .write(true)
        .open(path.join(name))
        .unwrap();
    file.set_len(log.len() as u64 - bytes).unwrap();
}

/// Goal: a write that a crash cut off, which was not acknowledged, is not reported as a loss.
#[test]
fn a_torn_tail_is_opened() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let store = open_at(&path).unwrap();
    fill(&store, Durability::Synced);
    store.note_files();
    put(&store, COUNT, Durability::Synced);
    let image = files(&path);
    drop(store);
    let crashed = home.path().join("crashed");
    write_files(&crashed, &image);
    cut_log(&crashed, 10);
    admin::check(&crashed).unwrap();
    let store = open_at(&crashed).unwrap();
    assert_eq!(right_ones(&store), (usize::from(COUNT), None));
    assert!(store.get(&key(COUNT), |_| ()).unwrap().is_none());
}

/// A start that met a torn log had begun a new one when it failed. The power was lost, and the next start said that
/// acknowledged writes were gone: one in a hundred histories of the crash test on a failing disk.
///
/// Goal: whatever such a start left in its log is no loss, and a change in it is one.
#[test]
fn a_start_that_failed_behind_a_torn_log_is_no_loss() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let store = open_at(&path).unwrap();
    fill(&store, Durability::Synced);
    store.note_files();
    // Not noted yet: for the note they may just as well be of writes that were not synced.
    put(&store, COUNT, Durability::Synced);
    let (_, known_log) = newest_log(&path);
    put(&store, COUNT + 1, Durability::Synced);
    let image = files(&path);
    put(&store, COUNT + 2, Durability::Synced);
    put(&store, COUNT + 3, Durability::Synced);
    let (torn, log) = newest_log(&path);
    let record_bytes = (log.len() - known_log.len()) / 3;
    drop(store);

    let torn_path = home.path().join("torn");
    write_files(&torn_path, &image);
    cut_log(&torn_path, 10);
    let fault = Fault {
        kind: "sync",
        only: ".log",
        number: 1,
        is_lasting: false,
        is_full: false,
    };
    let disk = Disk::new(home.path(), "torn");
    assert!(ServerProcess::start_on(&disk, Some(fault), &torn_path).is_none());
    let (begun, mark) = newest_log(&torn_path);
    assert!(begun > torn && !mark.is_empty(), "it failed too early");

    let half = &mark[..mark.len() / 2];
    let of_later = &log[log.len() - record_bytes..];
    let lefts = [&mark, half, b"", &[0; 300], &[0xA5; 300], of_later];
    let cuts = [0, record_bytes];
    for (number, left) in lefts.into_iter().enumerate() {
        for cut in cuts {
            let mut image = files(&torn_path);
            let torn_log = image.get_mut(&torn).unwrap();
            torn_log.truncate(torn_log.len() - cut);
            image.insert(begun.clone(), left.to_vec());
            let path = home.path().join(format!("left{number}-{cut}"));
            write_files(&path, &image);
            match open_at(&path) {
                Ok(store) if left != of_later => {
                    assert_eq!(right_ones(&store), (usize::from(COUNT), None));
                }
                Err(DataDirError::Loss { .. }) if left == of_later => {}
                other => panic!("{left:?} and {cut} bytes less: {:?}", other.map(|_| ())),
            }
        }
    }
}

/// Goal: writes not promised by `--sync off` may be lost with the power.
#[test]
fn unsynced_writes_may_go() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("crashed");
    write_files(&path, &killed(Durability::Written));
    cut_log(&path, 50_000);
    let store = open_at(&path).unwrap();
    let (right, wrong) = right_ones(&store);
    assert!((100..299).contains(&right) && wrong.is_some(), "{right}");
}

/// Goal: the message has the missing files and the possible loss.
#[test]
fn a_loss_is_told() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    write_files(&path, &stopped());
    let logs = files(&path);
    let log = logs.keys().rfind(|name| name.ends_with(".log")).unwrap();
    fs::remove_file(path.join(log)).unwrap();
    let Err(DataDirError::Loss { loss, .. }) = open_at(&path) else {
        panic!("not a loss");
    };
    assert_eq!(
        loss.missing,
        [Missing::File { name: log.clone() }],
        "{loss:?}"
    );
    let in_log = u64::from(COUNT - IN_TABLE - 1 + DELETED);
    assert_eq!(loss.writes_max, Some(in_log));
    let store = Arc::new(open_accepting(&path).unwrap());
    assert_eq!(store.gauges().accepted_loss, in_log);
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    wait_until(|| client.metric("millpond_entity_accepted_loss_writes ") == in_log);
    drop((client, server.stop(), store));
    assert_eq!(open_at(&path).unwrap().gauges().accepted_loss, in_log);
}

/// An ETag was given out again when the clock had been set back over a restart: an old tag passed If-Match.
///
/// Goal: versions go on behind those of before, whatever the clock says; a note of the future stands for the clock.
#[test]
fn versions_go_on_after_the_clock_was_set_back() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    drop(open_at(&path).unwrap());
    let in_ten_years_us = set_clock_in_ten_years(&path);
    let mut last = Version(0);
    for _ in 0..3 {
        let store = open_at(&path).unwrap();
        let mut versions = Versions::after(0, store.versions_after_us());
        let next = versions.unused();
        assert!(next.0 > last.0 && next.0 >> 11 > in_ten_years_us);
        last = versions.unused();
    }
}

/// A backup did not say up to when versions had been given out: with the clock set back an ETag was given out again
/// after a restore.
///
/// Goal: versions go on behind those of a backup, however it was made and however often it is restored.
#[test]
fn versions_go_on_after_a_restore() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let first_of = |path: &Path| {
        let store = open_at(path).unwrap();
        Versions::after(0, store.versions_after_us()).unused()
    };
    drop(open_at(&at("data")).unwrap());
    let in_ten_years_us = set_clock_in_ten_years(&at("data"));
    admin::backup(&at("data"), &at("stopped")).unwrap();
    let store = open_at(&at("data")).unwrap();
    let given_out = Versions::after(0, store.versions_after_us()).unused();
    store.checkpoint(&at("running")).unwrap();
    drop(store);
    for (backup, behind) in [("stopped", in_ten_years_us << 11), ("running", given_out.0)] {
        for restored in ["once", "twice"].map(|times| at(&format!("{backup} {times}"))) {
            admin::restore(&at(backup), &restored).unwrap();
            assert!(
                !restored.join("MILLPOND-CLOCK").exists(),
                "the directory's own note has it"
            );
            assert!(first_of(&restored).0 > behind, "{backup}");
        }
    }
    // Of what was restored and never served, too.
    admin::backup(&at("running once"), &at("second")).unwrap();
    admin::restore(&at("second"), &at("second restored")).unwrap();
    assert!(first_of(&at("second restored")).0 > given_out.0);
}

/// The note of a stopped server, as a server whose clock was ten years ahead would have left it; the time.
fn set_clock_in_ten_years(path: &Path) -> u64 {
    let in_ten_years_us = (now_ms() + 10 * 365 * 86_400_000) * 1000;
    let note = fs::read_to_string(path.join("MILLPOND-FILES")).unwrap();
    let covered = note.split("checksum ").next().unwrap();
    let mut lines = covered.lines();
    let clock = lines.find(|line| line.starts_with("clock ")).unwrap();
    let covered = covered.replace(clock, &format!("clock {in_ten_years_us}"));
    let checksum = crc32c::crc32c(covered.as_bytes());
    let changed = format!("{covered}checksum {checksum:08x}\n");
    fs::write(path.join("MILLPOND-FILES"), changed).unwrap();
    in_ten_years_us
}

/// A byte of a backup was flipped, and it was restored with exit 0.
///
/// Goal: no change of a backup passes `check` or `restore`.
#[test]
fn no_change_of_a_backup_passes() {
    let home = tempfile::tempdir().unwrap();
    let (data, backup) = (home.path().join("data"), home.path().join("backup"));
    write_files(&data, &stopped());
    let before = files(&data);
    admin::backup(&data, &backup).unwrap();
    assert_eq!(files(&data), before, "a backup changes nothing");
    admin::check(&backup).unwrap();
    let image = files(&backup);
    for (file, bytes) in &image {
        for (change, changed) in changes(bytes) {
            let home = tempfile::tempdir().unwrap();
            let (copy, restored) = (home.path().join("copy"), home.path().join("restored"));
            let mut files = image.clone();
            match changed {
                Some(changed) => files.insert(file.clone(), changed),
                None => files.remove(file),
            };
            write_files(&copy, &files);
            let name = format!("{file} {change}");
            // Without the list there is nothing to compare with but what the engine finds.
            let is_list_gone = file == "MILLPOND-BACKUP" && change == "removed";
            // The mark says the same without its line end.
            let is_whole = is_list_gone || (file == "MILLPOND" && change == "cut by a byte");
            let result = admin::restore(&copy, &restored);
            assert_eq!(result.is_ok(), is_whole, "{name}: {result:?}");
            let result = admin::check(&copy);
            assert_eq!(result.is_ok(), is_whole, "{name}: {result:?}");
        }
    }
}
