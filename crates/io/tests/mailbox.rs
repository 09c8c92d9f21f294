//! The mailbox between threads and a shard.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use millpond_io::{Driver, EpollDriver, Event, Mailbox, MailboxFull, ShardPools};
use millpond_mempool::PoolMode;

/// Goal: every item of every sender arrives once, each sender's in order, though the receiver reads only when it was
/// woken: no wake-up is lost.
#[test]
fn nothing_is_lost_between_threads() {
    const SENDERS: u32 = 3;
    const ITEMS: u32 = 20_000;
    let mut driver = EpollDriver::new(PoolMode::On).unwrap();
    let mut pools = ShardPools::new(PoolMode::On);
    let (sender, mailbox) = Mailbox::new(64, driver.waker());
    let threads: Vec<_> = (0..SENDERS)
        .map(|number| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut batch = Vec::new();
                for item in 0..ITEMS {
                    batch.push((number, item));
                    // Batches of one to seven; a full mailbox keeps the rest for the next.
                    if item % 7 == number {
                        sender.send_all(&mut batch);
                    }
                }
                while !batch.is_empty() {
                    sender.send_all(&mut batch);
                    std::thread::yield_now();
                }
            })
        })
        .collect();

    let mut next_items = [0; SENDERS as usize];
    let mut items = Vec::new();
    while next_items.iter().sum::<u32>() < SENDERS * ITEMS {
        let mut is_woken = false;
        driver
            .tick(None, &mut pools, |_, _, event| {
                is_woken |= matches!(event, Event::Woken);
            })
            .unwrap();
        if is_woken {
            mailbox.drain_into(&mut items);
            assert!(items.len() <= 64);
            for (number, item) in items.drain(..) {
                let next_item = &mut next_items[number as usize];
                assert_eq!(item, *next_item);
                *next_item += 1;
            }
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Goal: memory is bounded; a refused item comes back, and fits after a drain.
#[test]
fn a_full_mailbox_gives_the_item_back() {
    let driver = EpollDriver::new(PoolMode::On).unwrap();
    let (sender, mailbox) = Mailbox::new(2, driver.waker());
    sender.send("a").unwrap();
    sender.send("b").unwrap();
    assert_eq!(
        sender.send("c"),
        Err(MailboxFull {
            item: "c",
            capacity: 2
        })
    );
    let mut rest = vec!["d", "e"];
    assert_eq!(sender.send_all(&mut rest), 0);
    assert_eq!(rest, ["d", "e"]);

    let mut items = vec!["kept"];
    mailbox.drain_into(&mut items);
    assert_eq!(items, ["kept", "a", "b"]);
    sender.send("c").unwrap();
    assert_eq!(sender.send_all(&mut rest), 1);
    assert_eq!(rest, ["e"]);
    items.clear();
    mailbox.drain_into(&mut items);
    assert_eq!(items, ["c", "d"]);
}
