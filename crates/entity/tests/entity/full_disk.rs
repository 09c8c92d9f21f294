//! A disk that really is full: a small file system in memory as the data directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::support::{Client, TestServer, target, wait_until};
use millpond_entity::{EntityConfig, open};

/// A tmpfs; unmounted when dropped.
pub(crate) struct SmallDisk {
    mount_point: PathBuf,
}

impl SmallDisk {
    /// `None`, and a line about it: none can be mounted here.
    pub(crate) fn mount_or_skip(mount_point: &Path, size: &str) -> Option<Self> {
        let mounted = Self::mount(mount_point, size);
        if let Err(reason) = &mounted {
            println!("skipped: no small file system could be mounted here ({reason})");
        }
        mounted.ok()
    }

    fn mount(mount_point: &Path, size: &str) -> Result<Self, String> {
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(mount_point)
            .output()
            .map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(Self {
                mount_point: mount_point.to_owned(),
            })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    pub(crate) fn grow(&self, size: &str) {
        self.remount(&format!("size={size}"));
    }

    pub(crate) fn remount(&self, option: &str) {
        let status = Command::new("mount")
            .args(["-o", &format!("remount,{option}")])
            .arg(&self.mount_point)
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let status = Command::new("umount").arg(&self.mount_point).status();
        if !std::thread::panicking() {
            assert!(
                status.unwrap().success(),
                "{} stays mounted",
                self.mount_point.display()
            );
        }
    }
}

/// Goal: the disk fills while a table is written in the background.
#[test]
fn disk_filled_by_tables() {
    refuses_writes_and_keeps_what_it_promised(3 << 20);
}

/// Goal: the disk fills under the write-ahead log, in the middle of a commit.
#[test]
fn disk_filled_by_the_log() {
    refuses_writes_and_keeps_what_it_promised(96 << 20);
}

/// On a full disk writes are refused, reads work, and what was acknowledged is still there once
/// there is room and the server is started again.
fn refuses_writes_and_keeps_what_it_promised(memtable_bytes: u64) {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount_or_skip(directory.path(), "12m") else {
        return;
    };
    let mut config = EntityConfig::new(directory.path().join("data"));
    config.memtable_bytes = memtable_bytes;
    // The engine has to meet the end of the disk itself.
    config.disk_reserve_bytes = Some(0);
    let mut acknowledged = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(4);
    {
        let store = Arc::new(open(&config).unwrap());
        let server = TestServer::start(&store, |_, _| {});
        let mut client = server.connect();
        let refused = (0..10_000_u32).find(|&n| {
            let key = n.to_string().into_bytes();
            // Random bytes: compression must not make room.
            let value: Vec<u8> = (0..4000).map(|_| random.u8(..)).collect();
            match client.request("PUT", &target(&key), &value).status {
                201 => {
                    acknowledged.insert(key, value);
                    false
                }
                // Writes may be stopped for the mergers too.
                503 => client.metric("millpond_entity_paused ") == 1,
                other => panic!("a full disk answered {other}"),
            }
        });
        assert!(refused.is_some(), "40 MB fitted on a disk of 12");
        assert!(
            acknowledged.len() > 100,
            "the disk was not empty at the start"
        );
        assert_eq!(client.put(b"one more", b"small"), 503);
        assert_eq!(client.delete(b"0"), 503);
        assert_eq!(client.request("GET", "/v0/status", b"").status, 503);
        // A write of the log that failed passes. A sync that failed does not, but it comes after that write.
        assert_eq!(client.metric("millpond_entity_poisoned "), 0);
        assert_eq!(client.metric("millpond_entity_paused "), 1);
        for (key, value) in &acknowledged {
            assert!(client.get(key).body == *value, "reads work on a full disk");
        }
        disk.grow("100m");
        wait_until(|| client.put(b"with room", b"small") == 201);
        assert_eq!(client.request("GET", "/v0/status", b"").status, 200);
        for (key, value) in &acknowledged {
            assert!(
                client.get(key).body == *value,
                "an acknowledged write is lost"
            );
        }
    }
    {
        let store = Arc::new(open(&config).unwrap());
        let server = TestServer::start(&store, |_, _| {});
        let mut client = server.connect();
        for (key, value) in &acknowledged {
            assert!(
                client.get(key).body == *value,
                "an acknowledged write is lost"
            );
        }
        assert_eq!(client.get(b"with room").body, b"small");
        assert_eq!(client.put(b"one more", b"small"), 201);
    }
    drop(disk);
}

/// Goal: a server that keeps a reserve refuses puts before the engine meets the end of the disk, lets
/// deletes and reads go on, and takes puts again as soon as there is room, without a restart.
#[test]
fn disk_with_room_again_is_written_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount_or_skip(directory.path(), "96m") else {
        return;
    };
    let mut config = EntityConfig::new(directory.path().join("data"));
    config.memtable_bytes = 3 << 20;
    // All tables may be merged into new ones beside the old, and there is a log.
    config.disk_reserve_bytes = Some(56 << 20);
    let mut random = fastrand::Rng::with_seed(5);
    let mut acknowledged = BTreeMap::new();
    let store = Arc::new(open(&config).unwrap());
    let server = TestServer::start(&store, |_, _| {});
    let mut client = server.connect();
    let is_full = (0..2000_u32).any(|n| {
        let value: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        let reply = client.write("PUT", &n.to_be_bytes(), &value);
        match reply.status {
            201 => {
                acknowledged.insert(n.to_be_bytes(), value);
                false
            }
            507 => {
                assert!(reply.field("Retry-After").is_some());
                true
            }
            other => panic!("a full disk answered {other}"),
        }
    });
    assert!(is_full, "200 MB fitted on a disk of 96");
    assert_eq!(client.metric("millpond_entity_poisoned "), 0);
    assert!(client.metric("millpond_entity_disk_full_total ") > 0);
    assert_holds(&mut client, &acknowledged);
    disk.grow("400m");
    // The monitor has to check first; it may have checked before there was room, and publish that only now.
    wait_until(|| client.put(b"one more", b"small") == 201);
    wait_until(|| client.request("GET", "/v0/status", b"").status == 200);
    assert_eq!(client.delete(&0_u32.to_be_bytes()), 202);
    acknowledged.remove(&0_u32.to_be_bytes());
    drop(client);
    server.stop();
    drop(store);
    let server = TestServer::start(&Arc::new(open(&config).unwrap()), |_, _| {});
    let mut client = server.connect();
    assert_holds(&mut client, &acknowledged);
    assert_eq!(client.get(b"one more").body, b"small");
    drop(client);
    server.stop();
    drop(disk);
}

/// PUT until 507, then DELETE everything: free space did not move in 160 s, and writes stayed refused until a restart. The
/// deletes sat in memory, and nothing made the engine merge.
///
/// Goal: room of deleted and expired entities comes back, and puts with it, without a restart.
#[test]
fn room_comes_back_by_itself() {
    for ends in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let Some(disk) = SmallDisk::mount_or_skip(directory.path(), "128m") else {
            return;
        };
        let mut config = EntityConfig::new(directory.path().join("data"));
        config.memtable_bytes = 6 << 20;
        let mut random = fastrand::Rng::with_seed(6);
        let store = Arc::new(open(&config).unwrap());
        let server = TestServer::start(&store, |_, _| {});
        let mut client = server.connect();
        let mut put = |client: &mut Client, n: u32| {
            let value: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
            let end = if ends { "&expires=%2B2" } else { "" };
            let target = target(&n.to_be_bytes()) + end;
            client.request("PUT", &target, &value).status
        };
        let mut count = 0;
        wait_until(|| match put(&mut client, count) {
            201 => {
                count += 1;
                false
            }
            507 => true,
            // It was slowed down for the mergers.
            503 => false,
            other => panic!("a full disk answered {other}"),
        });
        assert!(count > 300, "{count} values fitted");
        if !ends {
            for n in 0..count {
                wait_until(|| client.delete(&n.to_be_bytes()) == 202);
            }
        }
        wait_until(|| put(&mut client, 0) == 201);
        let half = count / 2;
        for n in 0..half {
            wait_until(|| put(&mut client, n) == 201);
        }
        drop(client);
        server.stop();
        drop(store);
        drop(disk);
    }
}

/// Reads are served, with the acknowledged values.
fn assert_holds(client: &mut Client, acknowledged: &BTreeMap<[u8; 4], Vec<u8>>) {
    for (key, value) in acknowledged {
        let reply = client.get(key);
        let text = String::from_utf8_lossy(&reply.body[..reply.body.len().min(100)]);
        assert_eq!(reply.status, 200, "{key:?}: {text}");
        assert!(reply.body == *value, "{key:?} holds something else");
    }
}
