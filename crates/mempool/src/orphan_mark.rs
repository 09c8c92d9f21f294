//! Whether a home has lost its owner: settled between the one that leaves and those that send.
//!
//! On the path: `malloc::orphanage` marks the heap of a thread that ends. Who sends a parcel to a
//! home looks at the mark afterwards, and at an orphan's also looks after what it sent.
//!
//! ```text
//!   the one that leaves            one that sends
//!   mark                           push
//!   ---- fence ----                ---- fence ----
//!   take what came home            marked? take the lock, then what came home
//! ```
//! Of the two fences one is first in the order of all. If it is the left one, the sender finds the
//! mark; if it is the right one, the push is found by who leaves. A parcel is never left lying.
//! Absent on purpose: the lock. It is the orphanage's, who owns all orphans by having it.
use crate::sync::{AtomicBool, Ordering, fence};

/// The mark at a home.
pub(crate) struct OrphanMark(AtomicBool);

impl OrphanMark {
    /// Of a home with an owner.
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// With the lock: the owner leaves. What comes home from here on, its senders look after; what
    /// came before is to be taken after this.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// With the lock: there is an owner again, who takes what comes home.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether who has just sent something home has to look after it, if that is still so under the
    /// lock.
    pub(crate) fn is_set_after_send(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_set()
    }

    /// Whether the home is an orphan. Certain with the lock only.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(loom, test))]
mod models {
    use crate::orphan_mark::OrphanMark;
    use crate::remote_free::models::Handle;
    use loom::sync::{Arc, Mutex};
    use loom::thread;

    /// A home, its mark and the lock, as the orphanage has them.
    struct Orphanage {
        home: Handle,
        mark: OrphanMark,
        lock: Mutex<()>,
    }

    // SAFETY: as for `Handle`: all threads of a model are coroutines of one.
    #[expect(unsafe_code, reason = "loom's threads want to be sent what they share")]
    unsafe impl Sync for Orphanage {}

    impl Orphanage {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                home: Handle::new(),
                mark: OrphanMark::new(),
                lock: Mutex::new(()),
            })
        }

        /// As `orphanage::leave`.
        fn leave(&self) {
            let _guard = self.lock.lock().unwrap();
            self.mark.set();
            self.home.take_all();
        }

        /// As `orphanage::deliver`.
        fn deliver(&self, index: usize) {
            self.home.push(&[index]);
            if self.mark.is_set_after_send() {
                let _guard = self.lock.lock().unwrap();
                if self.mark.is_set() {
                    self.home.take_all();
                }
            }
        }

        /// As `orphanage::adopt`, if there is an orphan, and the first thing the new owner does.
        fn adopt(&self) -> bool {
            {
                let _guard = self.lock.lock().unwrap();
                if !self.mark.is_set() {
                    return false;
                }
                self.mark.clear();
            }
            self.home.take_all();
            true
        }
    }

    /// Goal: a block that is sent while its home is left is taken by who leaves or by who sends it,
    /// once, and never lies there.
    ///
    /// Caught: either fence missing; a mark that is set after the last look; a sender that takes
    /// without the lock.
    #[test]
    fn nothing_lies_at_an_orphan() {
        loom::model(|| {
            let orphanage = Orphanage::new();
            let senders = [0, 1].map(|index| {
                let orphanage = Arc::clone(&orphanage);
                thread::spawn(move || orphanage.deliver(index))
            });
            orphanage.leave();
            senders
                .into_iter()
                .for_each(|sender| sender.join().unwrap());
            assert_eq!(orphanage.home.taken_count(), 2);
        });
    }

    /// Goal: the same when another thread takes the orphan over meanwhile; the old owner, the new
    /// one and the sender take in an order.
    ///
    /// Caught: an adoption without the lock; a sender that does not ask again once it has the lock.
    #[test]
    fn adoption_is_in_order() {
        loom::model(|| {
            let orphanage = Orphanage::new();
            let sender = thread::spawn({
                let orphanage = Arc::clone(&orphanage);
                move || orphanage.deliver(0)
            });
            let heir = thread::spawn({
                let orphanage = Arc::clone(&orphanage);
                move || orphanage.adopt()
            });
            orphanage.leave();
            sender.join().unwrap();
            if heir.join().unwrap() {
                // Its next look finds what came after the first one.
                orphanage.home.take_all();
            }
            assert_eq!(orphanage.home.taken_count(), 1);
        });
    }
}
