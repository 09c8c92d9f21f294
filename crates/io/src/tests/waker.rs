use super::*;

/// Goal: a busy shard is notified without a write; a sleeping one with exactly one.
#[test]
fn only_a_sleeping_shard_costs_a_write() {
    let receiver = WakeReceiver::new().unwrap();
    let waker = receiver.waker();
    let written = || {
        let mut count = [0; 8];
        rustix::io::read(receiver.fd(), &mut count)
            .map(|_| u64::from_ne_bytes(count))
            .ok()
    };
    waker.wake();
    assert_eq!(written(), None);
    assert!(
        !receiver.prepare_sleep(),
        "a wake before the sleep must forbid it"
    );
    assert!(receiver.take());
    assert!(!receiver.take(), "one use is one event");

    assert!(receiver.prepare_sleep());
    waker.wake();
    waker.wake();
    assert_eq!(written(), Some(1));
    assert!(receiver.take());

    assert!(receiver.prepare_sleep());
    assert!(!receiver.take(), "the sleep ended for another reason");
    assert!(receiver.prepare_sleep());
}
