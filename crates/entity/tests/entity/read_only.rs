//! Servers that only read, and what an operator does where nothing can be written: a read-only mount, a full disk.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::full_disk::SmallDisk;
use crate::lost_files::files;
use crate::support::{Client, TestServer, request_with, target};
use millpond_entity::export::export;
use millpond_entity::{DataDirError, EntityConfig, admin, open};

const COUNT: u32 = 500;

fn id(n: u32) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

fn reading(data: &Path) -> EntityConfig {
    let mut config = EntityConfig::new(data.to_owned());
    config.reads_only = true;
    config
}

/// Entities in a table and in the log, one of them long.
fn fill(data: &Path) {
    let mut config = EntityConfig::new(data.to_owned());
    config.disk_reserve_bytes = Some(0);
    let store = Arc::new(open(&config).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    for n in 0..COUNT {
        assert_eq!(client.put(&id(n), &[n as u8; 200]), 201);
        if n == COUNT / 2 {
            store.compact().unwrap();
        }
    }
    assert_eq!(client.put(b"long", &[7; 700_000]), 201);
}

fn has_all(client: &mut Client) {
    for n in 0..COUNT {
        assert_eq!(client.get(&id(n)).body, [n as u8; 200]);
    }
    assert!(client.get(b"long").body == [7; 700_000]);
    client
        .send(&request_with(
            "GET",
            "/v0/entities?start=0&limit=1000",
            "",
            b"",
        ))
        .unwrap();
    assert_eq!(client.read_reply(true).unwrap().unwrap().status, 200);
    assert_eq!(client.read_chunks().unwrap().len(), COUNT as usize + 1);
}

/// Goal: reads of all kinds are served, all writes refused before their bodies come, and no file is changed; another
/// server cannot start meanwhile, and one for writes can afterwards.
#[test]
fn reads_are_served_and_writes_refused() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fill(&data);
    let before = files(&data);
    {
        let store = Arc::new(open(&reading(&data)).unwrap());
        let server = TestServer::start(&store, |config, _| {
            config.checkpoints = Some(home.path().to_owned());
        });
        let mut client = server.connect();
        has_all(&mut client);
        let status = client.request("GET", "/v0/status", b"");
        assert_eq!(status.status, 200);
        assert!(
            String::from_utf8(status.body)
                .unwrap()
                .contains("--read-only")
        );
        assert_eq!(client.request("GET", "/metrics", b"").status, 200);
        assert_eq!(client.delete(&id(1)), 403);
        let refused = client.request("PUT", &target(b"new"), b"1");
        assert_eq!(refused.status, 403);
        assert!(
            String::from_utf8(refused.body)
                .unwrap()
                .contains("--read-only")
        );
        let checkpoint = "/v0/admin/checkpoint?name=monday";
        assert_eq!(client.request("PUT", checkpoint, b"").status, 403);
        let mut waiting = server.connect();
        let head = "PUT /v0/entity?id=a HTTP/1.1\r\nHost: h\r\nContent-Length: 9000000\r\nExpect: 100-continue\r\n\r\n";
        waiting.send(head.as_bytes()).unwrap();
        assert_eq!(waiting.read_reply(false).unwrap().unwrap().status, 403);
        assert_eq!(client.get(b"new").status, 404);
        let other = open(&EntityConfig::new(data.clone()))
            .map(drop)
            .unwrap_err();
        assert!(matches!(other, DataDirError::Locked { .. }), "{other}");
    }
    assert!(
        files(&data) == before,
        "a server that only reads has written"
    );
    open(&EntityConfig::new(data)).unwrap();
}

/// Goal: a backup is served as it is; a directory that is missing, new or of an older format is refused with what to do.
#[test]
fn backups_are_served_and_others_refused() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fill(&at("data"));
    admin::backup(&at("data"), &at("backup")).unwrap();
    {
        let store = Arc::new(open(&reading(&at("backup"))).unwrap());
        has_all(&mut TestServer::start(&store, |_, _| {}).connect());
    }
    admin::check(&at("backup")).unwrap();

    fs::create_dir(at("old")).unwrap();
    fs::write(
        at("old").join("MILLPOND"),
        "millpond entity data, format 1\n",
    )
    .unwrap();
    fs::create_dir(at("new")).unwrap();
    fs::write(
        at("new").join("MILLPOND"),
        "millpond entity data, format 3\ncreating\n",
    )
    .unwrap();
    for (name, part) in [
        ("missing", "cannot read"),
        ("old", "start once without --read-only"),
        ("new", "start once without --read-only"),
    ] {
        let error = open(&reading(&at(name))).map(drop).unwrap_err().to_string();
        assert!(error.contains(part), "{name}: {error}");
    }
    assert!(!at("missing").exists());
}

/// All that reads works on `data`, which cannot be written to.
fn everything_reads(data: &Path, home: &Path) {
    let found = admin::check(data).unwrap();
    assert_eq!(
        (found.entities, found.unreadable),
        (u64::from(COUNT) + 1, 0)
    );
    admin::statistics(data).unwrap();
    let mut lines = Vec::new();
    let done = export(data, &mut lines, &mut |skipped| panic!("{skipped}")).unwrap();
    assert_eq!(done.entities, u64::from(COUNT) + 1);
    admin::backup(data, &home.join("backup")).unwrap();
    admin::check(&home.join("backup")).unwrap();
    let store = Arc::new(open(&reading(data)).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    has_all(&mut server.connect());
    assert_eq!(server.connect().put(b"new", b"1"), 403);
}

/// A read-only mount was refused by all of them.
///
/// Goal: reading works on a read-only mount, and a start for writes reports the cause.
#[test]
fn a_read_only_mount_is_read() {
    let (home, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(disk) = SmallDisk::mount_or_skip(mount.path(), "100m") else {
        return;
    };
    let data = mount.path().join("data");
    fill(&data);
    disk.remount("ro");
    everything_reads(&data, home.path());
    let error = open(&EntityConfig::new(data)).map(drop).unwrap_err();
    assert!(
        matches!(error, DataDirError::ReadOnlyMount { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("--read-only"), "{error}");
}

/// No start succeeded on a full disk, not even read-only, and the message reported damage.
///
/// Goal: reading works on a disk that is full to the last byte; a start for writes reports the lack of room and the
/// remedy, changes no data, and succeeds when there is room.
#[test]
fn a_full_disk_is_read() {
    let (home, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some(disk) = SmallDisk::mount_or_skip(mount.path(), "100m") else {
        return;
    };
    let data = mount.path().join("data");
    fill(&data);
    let mut filler = File::create(mount.path().join("filler")).unwrap();
    for bytes in [1 << 20, 4096, 1] {
        while filler.write_all(&vec![7; bytes]).is_ok() {}
    }
    everything_reads(&data, home.path());
    for _ in 0..2 {
        let error = open(&EntityConfig::new(data.clone()))
            .map(drop)
            .unwrap_err();
        assert!(matches!(error, DataDirError::NoRoom { .. }), "{error}");
        let sentence = error.to_string();
        assert!(
            sentence.contains("--read-only") && !sentence.contains("damage"),
            "{sentence}"
        );
    }
    let store = Arc::new(open(&reading(&data)).unwrap());
    has_all(&mut TestServer::start(&store, |_, _| {}).connect());
    drop(store);
    disk.grow("200m");
    let store = Arc::new(open(&EntityConfig::new(data)).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    has_all(&mut server.connect());
}
