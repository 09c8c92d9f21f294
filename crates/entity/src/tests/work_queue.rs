use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Goal: nothing is lost or reordered per sender, and closing ends the taker after the last.
#[test]
fn every_item_arrives_once_in_its_senders_order() {
    let queue = Arc::new(WorkQueue::new());
    let senders: Vec<_> = (0..4_u64)
        .map(|sender| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                for first in (0..3_000).step_by(3) {
                    let mut items = vec![(sender, first), (sender, first + 1), (sender, first + 2)];
                    assert!(queue.send_all(&mut items));
                    assert!(items.is_empty());
                }
            })
        })
        .collect();
    let taker = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || {
            let (mut items, mut next) = (Vec::new(), [0_u64; 4]);
            while queue.take_all(&mut items, None) == Taken::Work {
                for (sender, number) in items.drain(..) {
                    assert_eq!(number, next[sender as usize]);
                    next[sender as usize] += 1;
                }
            }
            next
        })
    };
    for sender in senders {
        sender.join().unwrap();
    }
    queue.close();
    assert_eq!(taker.join().unwrap(), [3_000; 4]);
    assert!(
        !queue.send_all(&mut vec![(0, 0)]),
        "a closed queue takes nothing"
    );
}

/// Goal: a task is woken by work and by the end, takes all of it, and does not get the end before it has.
#[test]
fn a_task_is_woken_by_work_and_by_the_end() {
    struct Count(AtomicUsize);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let count = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    let (queue, mut items) = (WorkQueue::new(), vec![0]);
    assert!(queue.poll_take_all(&mut items, &mut context).is_pending());
    queue.send_all(&mut vec![1, 2]);
    queue.send_all(&mut vec![3]);
    queue.close();
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "one wake for each wait");
    let work = Poll::Ready(Taken::Work);
    assert_eq!(queue.poll_take_all(&mut items, &mut context), work);
    assert_eq!(items, [0, 1, 2, 3], "behind what is there");
    let closed = Poll::Ready(Taken::Closed);
    assert_eq!(queue.poll_take_all(&mut items, &mut context), closed);
    let queue = WorkQueue::<u8>::new();
    assert!(queue.poll_take_all(&mut vec![], &mut context).is_pending());
    queue.close();
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

/// Goal: a wake ends one wait, also one that begins after it.
#[test]
fn a_wake_ends_one_wait() {
    let queue = WorkQueue::<u8>::new();
    queue.wake();
    assert_eq!(queue.take_all(&mut Vec::new(), None), Taken::Deadline);
    queue.wake();
    queue.close();
    assert_eq!(queue.take_all(&mut Vec::new(), None), Taken::Closed);
}

/// Goal: a deadline ends an idle wait, and does not hide work that is there already.
#[test]
fn deadline_ends_an_idle_wait_only() {
    let queue = WorkQueue::new();
    let mut items = Vec::new();
    let soon = Instant::now() + Duration::from_millis(5);
    assert_eq!(queue.take_all(&mut items, Some(soon)), Taken::Deadline);
    assert!(Instant::now() >= soon);
    queue.send_all(&mut vec![1, 2]);
    assert_eq!(queue.take_all(&mut items, Some(soon)), Taken::Work);
    assert_eq!(items, [1, 2]);
}
