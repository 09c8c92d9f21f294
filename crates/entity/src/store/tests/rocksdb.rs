use super::*;
use std::time::Instant;

const OPTIONS: RocksDbOptions = RocksDbOptions {
    block_cache_bytes: 8 << 20,
    memtable_bytes: 64 << 20,
    disk_reserve_bytes: Some(0),
    compression: Compression::None,
    accepts_loss: false,
    reads_only: false,
};

/// A file system in memory with so much room; unmounted when dropped. None where it cannot be mounted.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(directory))
    }

    /// A file that takes all the room there is.
    fn fill(&self) -> PathBuf {
        let path = self.0.path().join("filler");
        let mut file = std::fs::File::create(&path).unwrap();
        while std::io::Write::write(&mut file, &[0; 4096]).is_ok() {}
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg(self.0.path())
            .status();
    }
}

/// Whether this process has the engine's lock of the directory.
fn is_locked(path: &Path) -> bool {
    let inode = std::os::unix::fs::MetadataExt::ino(&path.join("LOCK").metadata().unwrap());
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let of_ours = format!(" {} ", std::process::id());
    let mut lines = locks.lines();
    lines.any(|line| line.contains(&of_ours) && line.contains(&format!(":{inode} ")))
}

/// Where a quota or the disk's end was met while the engine was opened again, reads failed as well for as long
/// as that lasted.
///
/// Goal: reads go on, writes are refused as something that passes, and both work when there is room again.
#[test]
fn without_room_for_opening_it_again_reads_go_on() {
    let Some(disk) = SmallDisk::mount("32m") else {
        eprintln!("not tested: no small file system could be mounted here");
        return;
    };
    let store = RocksDbStore::open(&disk.0.path().join("store"), OPTIONS).unwrap();
    let put = |key: &[u8]| {
        let put = Write::Put {
            key,
            head: &[],
            value: &[7; 100_000],
        };
        store.commit([put].into_iter(), 100_000, Durability::Synced)
    };
    let found = |key: &[u8]| store.get(key, <[u8]>::len);
    let keys: Vec<[u8; 4]> = (0..50_u32).map(u32::to_be_bytes).collect();
    keys.iter().for_each(|key| put(key).unwrap());
    // Its log gives back what it had taken in advance when it is closed.
    assert!(store.db.take(RELEASE_WAIT_MAX).unwrap().unwrap().close());
    let filler = disk.fill();
    for _ in 0..3 {
        assert_eq!(store.open_again(), Ok(false));
        assert!(keys.iter().all(|key| found(key) == Ok(Some(100_000))));
        assert_eq!(put(b"refused").unwrap_err().failure, Failure::Passing);
        assert_eq!(store.sync().unwrap_err().failure, Failure::Passing);
        assert!(is_locked(&store.path), "another server could start on it");
    }
    let held = store.hold().unwrap();
    std::fs::remove_file(filler).unwrap();
    let tried = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            while !store.wants_release() {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(held);
        });
        let tried = (0..).map(|tries| store.recover(tries).unwrap()).take(20);
        let tried = tried.take_while(|writes| !writes).count();
        holder.join().unwrap();
        tried
    });
    assert!(tried < 20, "it writes again");
    put(b"more").unwrap();
    assert_eq!(found(b"more"), Ok(Some(100_000)));
    assert!(keys.iter().all(|key| found(key) == Ok(Some(100_000))));
}

/// A million ids were deleted, and each range read passed all of them, for as long as no other reason came
/// to merge their table.
///
/// Goal: the remains of many deletes are removed automatically, down to the last level.
#[test]
fn deletes_do_not_lie_in_the_way() {
    const COUNT: u32 = 100_000;
    let data = tempfile::tempdir().unwrap();
    let path = data.path().join("store");
    let store = RocksDbStore::open(&path, OPTIONS).unwrap();
    let keys: Vec<[u8; 4]> = (0..COUNT).map(u32::to_be_bytes).collect();
    for keys in keys.chunks(1000) {
        let puts = keys.iter().map(|key| Write::Put {
            key,
            head: &[],
            value: key,
        });
        store.commit(puts, 64 << 10, Durability::Written).unwrap();
    }
    store.compact().unwrap();
    for keys in keys.chunks(1000) {
        let deletes = keys.iter().map(|key| Write::Delete { key });
        store
            .commit(deletes, 64 << 10, Durability::Written)
            .unwrap();
    }
    store.db("flush").unwrap().flush().unwrap();
    let deletes = || -> u64 {
        let tables = store.db("count").unwrap().live_files().unwrap();
        tables.iter().map(|table| table.num_deletions).sum()
    };
    let patience = Instant::now() + Duration::from_secs(60);
    while deletes() > DELETES_WINDOW as u64 {
        assert!(Instant::now() < patience, "{} are left", deletes());
        std::thread::sleep(Duration::from_millis(20));
    }
}
