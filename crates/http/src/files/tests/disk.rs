use super::*;

/// Reading from here on panics.
pub(super) const PANIC_OFFSET: u64 = 1 << 40;

use millpond_io::{Driver, EpollDriver};
use millpond_mempool::{BlockPool, PoolMode};
use std::time::{Duration, Instant};

/// Goal: results come back with their names: an open file, its bytes from the requested offset and no more than
/// requested, fewer at the end, and none after it.
#[test]
fn work_comes_back_with_its_names() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("file"), "0123456789").unwrap();
    let root = Arc::new(Root::open(home.path(), true).unwrap());
    let driver = EpollDriver::new(PoolMode::On).unwrap();
    let disk = Disk::start(0, driver.waker()).unwrap();
    let blocks = BlockPool::new("test", PoolMode::On);
    let ask = |state: u64, work: Work| {
        assert!(disk.submit(RequestToken::from_bits(state + 1), state, work));
        let (begin, mut answers) = (Instant::now(), Vec::new());
        while answers.is_empty() {
            disk.drain_into(&mut answers);
            assert!(begin.elapsed() < Duration::from_secs(60), "no response");
            std::thread::yield_now();
        }
        let answer = answers.remove(0);
        assert_eq!((answer.state, answer.token.to_bits()), (state, state + 1));
        answer.outcome
    };
    let mut name = Buffer::new();
    name.extend_from_slice(&blocks, b"file").unwrap();
    let DiskResult::Opened(Ok(Opened::File(mut file, version))) = ask(1, Work::Open { root, name })
    else {
        panic!("not opened")
    };
    assert_eq!(version.size_bytes, 10);
    for (offset, bytes_max, expected) in [(2, 3, "234"), (8, 64, "89"), (10, 64, "")] {
        let work = Work::Read {
            file,
            offset,
            bytes_max,
            buffer: Buffer::with_capacity(&blocks, 64).unwrap(),
        };
        let DiskResult::Read { file: again, bytes } = ask(offset, work) else {
            panic!("not read")
        };
        assert_eq!(&*bytes.unwrap(), expected.as_bytes());
        file = again;
    }
    for (offset, is_read) in [(PANIC_OFFSET, false), (0, true)] {
        let work = Work::Read {
            file,
            offset,
            bytes_max: 4,
            buffer: Buffer::with_capacity(&blocks, 64).unwrap(),
        };
        let DiskResult::Read { file: again, bytes } = ask(offset, work) else {
            panic!("not read")
        };
        assert_eq!(bytes.is_ok(), is_read, "a panic fails its own job alone");
        file = again;
    }
    assert!(crate::error::counts()[1].1 > 0);
}
