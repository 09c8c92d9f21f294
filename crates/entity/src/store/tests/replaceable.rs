use super::*;

/// Goal: readers see one value or none, never one that was dropped, however often it is replaced.
#[test]
fn readers_see_a_whole_value_or_none() {
    #[derive(Debug)]
    struct Value {
        number: u64,
        is_alive: Arc<AtomicBool>,
    }
    impl Drop for Value {
        fn drop(&mut self) {
            self.is_alive.store(false, Ordering::SeqCst);
        }
    }
    let value = |number| Value {
        number,
        is_alive: Arc::new(AtomicBool::new(true)),
    };
    let replaceable = Replaceable::new(value(0));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut last = 0;
                while !ends.load(Ordering::Relaxed) {
                    let Some(value) = replaceable.read() else {
                        continue;
                    };
                    assert!(value.is_alive.load(Ordering::SeqCst), "it is dropped");
                    assert!(value.number >= last);
                    last = value.number;
                }
            });
        }
        for number in 1..200 {
            drop(replaceable.take(Duration::from_secs(60)).unwrap().unwrap());
            assert!(replaceable.read().is_none() && replaceable.hold().is_none());
            replaceable.put(value(number));
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(replaceable.read().unwrap().number, 199);
}

/// Goal: a holder is asked to let go, and keeps the value where it does not.
#[test]
fn a_holder_keeps_the_value() {
    let replaceable = Replaceable::new(7);
    let held = replaceable.hold().unwrap();
    assert_eq!(replaceable.take(Duration::from_millis(5)), Err(StillHeld));
    assert_eq!(*replaceable.read().unwrap(), 7, "it is back");
    assert!(!replaceable.wants_release());
    drop(held);
    assert_eq!(replaceable.take(Duration::ZERO), Ok(Some(7)));
    assert!(replaceable.wants_release());
    assert_eq!(replaceable.take(Duration::ZERO), Ok(None));
}
