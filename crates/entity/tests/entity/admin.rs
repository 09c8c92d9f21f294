//! Backup, restore and upkeep of real data directories.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::support::{Client, TestServer, request, rocksdb, wait_until};
use millpond_entity::record::{Head, Version, encode};
use millpond_entity::store::faulty::{Faults, FaultyStore};
use millpond_entity::store::rocksdb::RocksDbStore;
use millpond_entity::store::{Durability, Write};
use millpond_entity::{
    DataDirError, Engine, EntityConfig, EntityError, Store, admin, open, serve_with,
};
use millpond_http::ServeConfig;

fn open_at(path: &Path) -> Result<RocksDbStore, DataDirError> {
    open(&EntityConfig::new(path.to_owned()))
}

fn put(store: &RocksDbStore, key: &[u8], value: &[u8], expires_ms: u64) {
    let head = Head {
        version: Version(1),
        expires_ms,
        content_type: b"",
        content_encoding: b"",
    };
    let record = encode(&head, value);
    let write = Write::Put {
        key,
        head: b"",
        value: &record,
    };
    store
        .commit([write].into_iter(), 0, Durability::Synced)
        .unwrap();
}

fn value(store: &RocksDbStore, key: &[u8]) -> Option<Vec<u8>> {
    let read = store.get(key, |record| {
        Head::split(record).unwrap().1.whole().unwrap().to_vec()
    });
    read.unwrap()
}

/// Goal: a backup is what was there when it was made, part in tables and part in the log, and whatever
/// becomes of the data; restored it can be written to, and the backup stays as it is.
#[test]
fn backup_is_restored_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let store = open_at(&path("data")).unwrap();
    for n in 0..500_u16 {
        put(&store, &n.to_be_bytes(), &[7; 1000], 0);
        if n == 250 {
            store.compact().unwrap();
        }
    }
    drop(store);
    admin::backup(&path("data"), &path("backup")).unwrap();

    let store = open_at(&path("data")).unwrap();
    for n in 0..500_u16 {
        put(&store, &n.to_be_bytes(), b"later", 0);
    }
    store.compact().unwrap();
    drop(store);
    for round in ["once", "twice"] {
        admin::restore(&path("backup"), &path(round)).unwrap();
        let store = open_at(&path(round)).unwrap();
        assert_eq!(store.check().unwrap().entities, 500);
        for n in 0..500_u16 {
            assert_eq!(value(&store, &n.to_be_bytes()), Some(vec![7; 1000]));
        }
        put(&store, b"more", b"is written here", 0);
    }
}

/// Goal: a copy is made of a server that runs, between two writes: nothing acknowledged before it is
/// missing, nothing written behind it is there.
#[test]
fn checkpoint_of_an_open_store_is_one_moment() {
    let home = tempfile::tempdir().unwrap();
    let store = open_at(&home.path().join("data")).unwrap();
    put(&store, b"before", b"1", 0);
    store.checkpoint(&home.path().join("backup")).unwrap();
    put(&store, b"after", b"2", 0);
    admin::restore(&home.path().join("backup"), &home.path().join("copy")).unwrap();
    let copy = open_at(&home.path().join("copy")).unwrap();
    assert_eq!(value(&copy, b"before"), Some(b"1".to_vec()));
    assert_eq!(value(&copy, b"after"), None);
    assert_eq!(value(&store, b"after"), Some(b"2".to_vec()));
}

/// The engine makes a copy under its name and `.tmp`, and begins by removing what has that name: a backup
/// was gone when one was made beside it, and both had been called complete.
///
/// Goal: a copy takes nothing away but what is left of one that was cut off.
#[test]
fn copies_leave_their_neighbours_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    let store = open_at(&path("data")).unwrap();
    put(&store, b"key", b"value", 0);
    store.checkpoint(&path("monday.tmp")).unwrap();
    fs::create_dir(path("letters.tmp")).unwrap();
    fs::write(path("letters.tmp").join("letter"), "text").unwrap();
    fs::write(path("file.tmp"), "text").unwrap();
    for name in ["monday", "letters", "letters/", "file"] {
        let error = store.checkpoint(&path(name)).unwrap_err();
        assert!(matches!(error, DataDirError::NotNew { .. }), "{error}");
        assert!(error.to_string().contains(".tmp"), "{error}");
        assert!(!path(name).exists());
    }
    assert!(path("letters.tmp").join("letter").exists() && path("file.tmp").exists());
    admin::restore(&path("monday.tmp"), &path("copy")).unwrap();
    assert_eq!(
        value(&open_at(&path("copy")).unwrap(), b"key"),
        Some(b"value".to_vec())
    );

    fs::create_dir(path("part.tmp")).unwrap();
    for left in [
        "000012.sst",
        "MANIFEST-000004",
        "CURRENT",
        "OPTIONS-000007",
        "000009.log",
    ] {
        fs::write(path("part.tmp").join(left), "cut off").unwrap();
    }
    store.checkpoint(&path("part")).unwrap();
    admin::restore(&path("part"), &path("whole")).unwrap();
}

/// Goal: nothing is overwritten, served or taken for a backup that should not be, and each refusal
/// leaves everything as it was.
#[test]
fn wrong_directories_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name);
    put(&open_at(&path("data")).unwrap(), b"k", b"v", 0);
    admin::backup(&path("data"), &path("backup")).unwrap();

    let error = open_at(&path("backup")).map(drop).unwrap_err();
    assert!(matches!(error, DataDirError::IsBackup { .. }), "{error}");
    let error = admin::backup(&path("data"), &path("backup")).unwrap_err();
    assert!(matches!(error, DataDirError::NotNew { .. }), "{error}");
    // It was said that the data cannot be opened, and may be damaged.
    let error = admin::backup(&path("data"), &path("missing").join("backup")).unwrap_err();
    assert!(
        matches!(error, DataDirError::MissingParent { .. }),
        "{error}"
    );
    let error = admin::restore(&path("backup"), &path("data")).unwrap_err();
    assert!(matches!(error, DataDirError::NotNew { .. }), "{error}");
    let error = admin::restore(&path("data"), &path("new")).unwrap_err();
    assert!(matches!(error, DataDirError::NotABackup { .. }), "{error}");
    assert!(!path("new").exists());
    let error = admin::restore(&path("nowhere"), &path("new")).unwrap_err();
    assert!(matches!(error, DataDirError::NotABackup { .. }), "{error}");
    let running = open_at(&path("data")).unwrap();
    let error = admin::backup(&path("data"), &path("second")).unwrap_err();
    assert!(matches!(error, DataDirError::Locked { .. }), "{error}");
    assert_eq!(value(&running, b"k"), Some(b"v".to_vec()));

    // A restore that was cut off is not served.
    fs::create_dir(path("part")).unwrap();
    fs::write(path("part").join("CURRENT"), "MANIFEST-000001\n").unwrap();
    let error = open_at(&path("part")).map(drop).unwrap_err();
    assert!(matches!(error, DataDirError::Foreign { .. }), "{error}");
}

/// Goal: a check counts what is there, and names damage in a table.
#[test]
fn check_counts_and_finds_damage() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data");
    let store = open_at(&path).unwrap();
    for n in 0..200_u8 {
        put(&store, &[n], &[n; 500], 0);
    }
    put(&store, b"ended", b"v", 1);
    let unknown = Write::Put {
        key: b"unknown",
        head: b"",
        value: b"\xff",
    };
    store
        .commit([unknown].into_iter(), 0, Durability::Synced)
        .unwrap();
    let checked = store.check().unwrap();
    assert_eq!((checked.entities, checked.expired), (200, 1));
    assert_eq!((checked.bytes, checked.unreadable), (200 * 501, 1));
    store.compact().unwrap();
    assert_eq!(store.check().unwrap().expired, 0);
    let statistics = store.statistics().unwrap();
    assert_eq!(statistics.entities_estimated, 201);
    assert!(statistics.tables == 1 && statistics.tables_bytes > 0);
    drop(store);

    for entry in fs::read_dir(&path).unwrap() {
        let table = entry.unwrap().path();
        if table.extension().is_some_and(|kind| kind == "sst") {
            let mut bytes = fs::read(&table).unwrap();
            bytes[100] ^= 0xff;
            fs::write(&table, bytes).unwrap();
        }
    }
    let error = open_at(&path).unwrap().check().unwrap_err();
    assert_eq!(error.operation, "scan");
}

/// Goal: a checkpoint of a server that is being written to holds a first part of what was written, all
/// that was acknowledged before it was asked for included, and the server goes on.
#[test]
fn checkpoint_while_serving_is_one_moment() {
    let home = tempfile::tempdir().unwrap();
    let store = Arc::new(open_at(&home.path().join("data")).unwrap());
    let server = TestServer::start(&store, |config, http| {
        http.shards = 2;
        config.checkpoints = Some(home.path().to_owned());
    });
    let mut admin_client = server.connect();
    let acknowledged = AtomicU32::new(0);
    let is_over = AtomicBool::new(false);
    let before = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = server.connect();
            while !is_over.load(Ordering::Relaxed) {
                let number = acknowledged.load(Ordering::Relaxed);
                assert_eq!(client.put(&number.to_be_bytes(), &[7; 500]), 201);
                acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        });
        wait_until(|| acknowledged.load(Ordering::Relaxed) >= 100);
        let before = acknowledged.load(Ordering::Relaxed);
        let target = "/v0/admin/checkpoint?name=monday";
        let reply = admin_client.request("PUT", target, b"");
        let during = acknowledged.load(Ordering::Relaxed);
        wait_until(|| acknowledged.load(Ordering::Relaxed) >= during + 100);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(
            reply.status,
            201,
            "{}",
            String::from_utf8_lossy(&reply.body)
        );
        before
    });
    admin::restore(&home.path().join("monday"), &home.path().join("copy")).unwrap();
    let copy = open_at(&home.path().join("copy")).unwrap();
    let found = u32::try_from(copy.check().unwrap().entities).unwrap();
    assert!(found >= before, "{found} of {before} are there");
    assert!(found < acknowledged.into_inner());
    for number in 0..found {
        assert!(
            value(&copy, &number.to_be_bytes()).is_some(),
            "{number} is missing"
        );
    }
}

/// Goal: a checkpoint that panics gets 500 and counted, and the thread that makes them goes on.
#[test]
fn a_panicking_checkpoint_ends_no_thread() {
    let home = tempfile::tempdir().unwrap();
    let faults = Faults {
        panicking_checkpoints: true,
        ..Faults::default()
    };
    let store = FaultyStore::new(open_at(&home.path().join("data")).unwrap(), faults);
    let server = TestServer::start(&Arc::new(store), |config, _| {
        config.checkpoints = Some(home.path().to_owned());
    });
    let mut client = server.connect();
    for asked in 1..=2 {
        let reply = client.request("PUT", "/v0/admin/checkpoint?name=monday", b"");
        assert_eq!(reply.status, 500);
        let panics = "millpond_entity_thread_panics_total{thread=\"monitor\"}";
        assert_eq!(client.metric(panics), asked);
        assert_eq!(client.put(b"key", b"value"), 201);
    }
}

/// Goal: a server that others can reach makes no checkpoints for them, and one without a place for them
/// does not start.
#[test]
fn checkpoints_for_strangers_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let store = Arc::new(open_at(&home.path().join("data")).unwrap());
    let error_of = |listen: &str, checkpoints: &Path| {
        let mut config = EntityConfig::new(home.path().join("data"));
        config.checkpoints = Some(checkpoints.to_owned());
        let http = ServeConfig::new("entity", listen.parse().unwrap());
        serve_with(&store, &config, &http, |_| {}).unwrap_err()
    };
    let error = error_of("0.0.0.0:0", home.path());
    assert!(
        matches!(error, EntityError::CheckpointsForStrangers),
        "{error}"
    );
    let error = error_of("127.0.0.1:0", &home.path().join("missing"));
    assert!(matches!(error, EntityError::Checkpoints { .. }), "{error}");
}

/// Goal: a flush leaves no log to read, a compaction takes away what was deleted, one at a time, and both show in the
/// metrics of the data's size; the next one goes when the first has ended.
#[test]
fn operators_flush_and_compact() {
    let (_home, store) = rocksdb();
    let store = Arc::new(FaultyStore::new(
        Arc::into_inner(store).unwrap(),
        Faults::default(),
    ));
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    let ids = || (0..2000_u16).map(u16::to_be_bytes);
    for id in ids() {
        assert_eq!(client.put(&id, &[7; 1000]), 201);
    }
    let metric =
        |client: &mut Client, name: &str| client.metric(&format!("millpond_entity_{name} "));
    wait_until(|| metric(&mut client, "log_bytes") > 2_000_000);
    assert_eq!(metric(&mut client, "tables"), 0);
    assert_eq!(client.request("PUT", "/v0/admin/flush", b"").status, 200);
    wait_until(|| metric(&mut client, "tables") == 1);
    wait_until(|| metric(&mut client, "log_bytes") < 1_000_000);
    let full_bytes = metric(&mut client, "table_bytes");
    assert!(full_bytes > 10_000 && metric(&mut client, "live_bytes") > 10_000);
    for id in ids() {
        assert_eq!(client.delete(&id), 202);
    }
    let under_way = store.hold_upkeep();
    let mut others = server.connect();
    client
        .send(&request("PUT", "/v0/admin/compact", b""))
        .unwrap();
    wait_until(|| store.upkeeps() == 2);
    let refused = others.request("PUT", "/v0/admin/compact", b"");
    assert_eq!(
        (refused.status, refused.field("Retry-After")),
        (503, Some("10"))
    );
    assert_eq!(others.put(b"meanwhile", b"1"), 201);
    drop(under_way);
    assert_eq!(client.read_reply(false).unwrap().unwrap().status, 200);
    wait_until(|| metric(&mut client, "table_bytes") < full_bytes / 2);
    assert_eq!(others.request("PUT", "/v0/admin/flush", b"").status, 200);
    assert_eq!(others.request("GET", "/v0/admin/flush", b"").status, 405);
    assert_eq!(others.get(b"meanwhile").body, b"1");
    assert_eq!(metric(&mut client, "start_log_torn"), 0);
    assert_eq!(metric(&mut client, "start_lost_writes"), 0);
}
