//! Blocks that are freed by another thread than the one that asked for them, and threads that end.

use std::sync::mpsc::channel;
use std::thread;

use crate::demand;

const THREADS: usize = 4;

fn mark_of(size: usize) -> u8 {
    (size % 255) as u8
}

fn is_whole(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == mark_of(block.len()))
}

/// Every thread sends its blocks to the next one, which checks and frees them.
pub(crate) fn wander() -> Result<(), String> {
    let (mut senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| channel::<Vec<u8>>()).unzip();
    senders.rotate_left(1);
    let workers: Vec<_> = senders
        .into_iter()
        .zip(receivers)
        .enumerate()
        .map(|(seed, (next, mine))| {
            thread::spawn(move || {
                let mut random = seed as u64 * 2 + 1;
                for _ in 0..30_000 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let magnitude = 1_usize << ((random >> 60) & 15);
                    let size = 1 + (random >> 33) as usize % magnitude;
                    // The receiver may have ended after a fault of its own, which is reported.
                    let _ = next.send(vec![mark_of(size); size]);
                    if mine.try_iter().any(|block| !is_whole(&block)) {
                        return false;
                    }
                }
                drop(next);
                mine.into_iter().all(|block| is_whole(&block))
            })
        })
        .collect();
    let mut whole = true;
    for worker in workers {
        whole &= worker.join().unwrap_or(false);
    }
    demand(whole, || {
        "a block changed on its way to another thread".to_owned()
    })
}

/// Threads come and go; each leaves a block to this one.
pub(crate) fn come_and_go() -> Result<(), String> {
    for round in 0..300_usize {
        let life = thread::spawn(move || {
            let passing: Vec<Vec<u8>> = (0..50).map(|size| vec![1; size * 40]).collect();
            drop(passing);
            vec![mark_of(round * 13); round * 13]
        });
        let left = life.join().map_err(|_| "a thread died".to_owned())?;
        demand(is_whole(&left), || {
            "a block of a thread that ended has changed".to_owned()
        })?;
    }
    Ok(())
}
