use super::*;
use core::ptr;
use core::sync::atomic::AtomicU8;
use millpond_preload_shared::heap_file::BUCKET_ENTRIES;

fn file(mean_bytes: u64) -> Box<HeapFile> {
    let layout = std::alloc::Layout::new::<HeapFile>();
    // SAFETY: the layout has a size; zero bytes are valid atomics; the box frees with the same
    // layout.
    let file = unsafe {
        let memory = std::alloc::alloc_zeroed(layout).cast::<HeapFile>();
        assert!(!memory.is_null());
        Box::from_raw(memory)
    };
    file.header.mean_bytes.store(mean_bytes, Ordering::Relaxed);
    file
}

fn block(address: usize) -> *const c_void {
    ptr::without_provenance(address)
}

fn sample(size_bytes: u64) -> Sample {
    Sample {
        size_bytes,
        born_ns: now_ns(),
        thread: 3,
    }
}

fn live(file: &HeapFile) -> u64 {
    file.header.live_bytes.load(Ordering::Relaxed)
}

/// Goal: an inserted sample is removed once, the accounts return to zero and the peak stays.
#[test]
fn samples_come_and_go() {
    let file = file(1);
    let samples = Samples {
        file: &file,
        process: 1,
    };
    let first = block(0x7000_0000_1000);
    assert!(!samples.may_hold(first));
    assert_eq!(samples.remove(first), None);
    let one = sample(1000);
    samples.insert(first, one);
    assert!(samples.may_hold(first));
    assert_eq!(live(&file), 1000);
    assert_eq!(samples.remove(first), Some(one));
    assert_eq!(samples.remove(first), None);
    assert!(!samples.may_hold(first));
    assert_eq!(live(&file), 0);
    assert_eq!(file.header.peak_live_bytes.load(Ordering::Relaxed), 1000);
    samples.note_end(one, 3);
    samples.note_end(one, 4);
    let crossed = file.lifetimes.crossed.load(Ordering::Relaxed);
    let blocks: u64 = file
        .lifetimes
        .blocks
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .sum();
    assert_eq!((crossed, blocks), (WEIGHT_PARTS, 2 * WEIGHT_PARTS));
}

/// Goal: the recorded value of a sample is its weight, whatever its size, so that sums have the
/// right expectation. In sixteenths, a block of three times the mean lost 5 % of its weight.
#[test]
fn no_weight_is_lost_in_writing() {
    let mean_bytes = 8192;
    for size_bytes in [1, 100, 8192, 3 * 8192, 10 * 8192] {
        let file = file(mean_bytes);
        let samples = Samples {
            file: &file,
            process: 1,
        };
        samples.note_end(sample(size_bytes), 3);
        let noted: u64 = file
            .lifetimes
            .blocks
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .sum();
        let noted = noted as f64 / WEIGHT_PARTS as f64;
        let exact = weight(size_bytes, mean_bytes);
        assert!(
            (noted / exact - 1.0).abs() < 1e-4,
            "{size_bytes}: {noted} of {exact}"
        );
    }
}

/// Goal: a forked process does not take out its parent's samples, although the addresses are the
/// same; an address handed out twice is one sample.
#[test]
fn processes_are_told_apart() {
    let file = file(1);
    let of = |process| Samples {
        file: &file,
        process,
    };
    let one = block(0x5555_0000_4440);
    of(1).insert(one, sample(10));
    assert_eq!(of(2).remove(one), None);
    of(2).insert(one, sample(20));
    of(2).insert(one, sample(30));
    assert_eq!(live(&file), 40);
    assert_eq!(of(2).remove(one).map(|found| found.size_bytes), Some(30));
    assert_eq!(of(1).remove(one).map(|found| found.size_bytes), Some(10));
    assert_eq!(live(&file), 0);
}

/// Goal: a full bucket loses the sample, and counts it.
#[test]
fn a_full_bucket_drops() {
    let file = file(1);
    let samples = Samples {
        file: &file,
        process: 1,
    };
    let (_, wanted) = places(16);
    let together: Vec<usize> = (1..)
        .map(|index| index * 16)
        .filter(|&address| places(address).1 == wanted)
        .take(BUCKET_ENTRIES + 2)
        .collect();
    for &address in &together {
        samples.insert(block(address), sample(1));
    }
    assert_eq!(file.header.dropped.load(Ordering::Relaxed), 2);
    assert_eq!(live(&file), BUCKET_ENTRIES as u64);
    for &address in &together {
        samples.remove(block(address));
    }
    assert_eq!(live(&file), 0);
    let is_empty = |count: &AtomicU8| count.load(Ordering::Relaxed) == 0;
    assert!(file.filter.iter().all(is_empty));
}
