//! Deadlines of one shard, cheap to move later.
//!
//! Almost every deadline is moved many times before it passes: each request pushes the idle
//! timeout away. So moving later only stores the new deadline; the timer stays linked where it
//! was and is linked again when that slot comes by. Only moving earlier relinks at once.
//!
//! ```text
//! slots:  one list per granule of 16.8 ms, 1,024 of them: the next 17 s; later deadlines wait in
//!         the last slot and are looked at again from there
//! due:    timers of passed slots whose deadline has passed, not yet popped
//! ```
//!
//! Invariant: a timer with a deadline is linked in a slot no later than its deadline, rounded up to a granule, or in
//! `due`. So a timer never fires early, and at most one granule after the later of its deadline and the call that set
//! it.
//!
//! Pacing uses [`crate::WaitPlan`].

use std::num::NonZeroU32;

/// The resolution of deadlines: the most a timer fires late.
pub const GRANULE_NS: u64 = 1 << GRANULE_SHIFT;

const GRANULE_SHIFT: u32 = 24;
const SLOT_COUNT: usize = 1024;
const WORD_COUNT: usize = SLOT_COUNT / u64::BITS as usize;
/// The list after the slots.
const DUE: u32 = SLOT_COUNT as u32;
const UNLINKED: u32 = u32::MAX;
/// The end of a list.
const NIL: u32 = u32::MAX;
const NEVER_NS: u64 = u64::MAX;

const _: () = assert!(SLOT_COUNT.is_power_of_two() && WORD_COUNT == u16::BITS as usize);

/// Names one timer of one wheel; stale once removed, and then ignored everywhere. There may be one for each socket, so
/// `Option` of it takes no extra space.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct TimerId {
    index: u32,
    generation: NonZeroU32,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    deadline_ns: u64,
    user: u64,
    generation: NonZeroU32,
    /// A slot, `DUE` or `UNLINKED`.
    list: u32,
    previous: u32,
    /// The next timer of the list; of a removed timer, the next free entry.
    next: u32,
}

/// The deadlines of one shard.
#[derive(Debug)]
pub struct TimerWheel {
    timers: Vec<Timer>,
    first_free: u32,
    /// First timer of every slot, then of `due`.
    heads: Box<[u32; SLOT_COUNT + 1]>,
    /// One bit for each slot that is not empty.
    occupied: [u64; WORD_COUNT],
    /// One bit for each word of `occupied` that is not 0.
    occupied_words: u16,
    /// The granule that ended last: its slot and all before it have been emptied.
    passed_granule: u64,
}

impl TimerWheel {
    /// A wheel without timers whose time is `now_ns`.
    #[must_use]
    pub fn new(now_ns: u64) -> Self {
        Self {
            timers: Vec::new(),
            first_free: NIL,
            heads: Box::new([NIL; SLOT_COUNT + 1]),
            occupied: [0; WORD_COUNT],
            occupied_words: 0,
            passed_granule: now_ns >> GRANULE_SHIFT,
        }
    }

    /// A timer without a deadline; `user` comes back when it fires. Allocates only when more
    /// timers exist than ever before.
    pub fn create(&mut self, user: u64) -> TimerId {
        let fresh = Timer {
            deadline_ns: NEVER_NS,
            user,
            generation: NonZeroU32::MIN,
            list: UNLINKED,
            previous: NIL,
            next: NIL,
        };
        if self.first_free == NIL {
            let index = u32::try_from(self.timers.len()).expect("memory ends before 2^32 timers");
            self.timers.push(fresh);
            return TimerId {
                index,
                generation: NonZeroU32::MIN,
            };
        }
        let index = self.first_free;
        let timer = &mut self.timers[index as usize];
        self.first_free = timer.next;
        *timer = Timer {
            generation: timer.generation,
            ..fresh
        };
        TimerId {
            index,
            generation: timer.generation,
        }
    }

    /// Gives a timer to another user, with the deadline it has, which is to be set then: where timers
    /// come and go, that costs less than to remove one and create the next.
    pub fn reuse(&mut self, timer: TimerId, user: u64) {
        if let Some(entry) = self.find(timer) {
            entry.user = user;
        }
    }

    /// Sets or moves the deadline (absolute). A past one fires within a granule.
    #[inline]
    pub fn set(&mut self, timer: TimerId, deadline_ns: u64) {
        let passed_granule = self.passed_granule;
        let Some(entry) = self.find(timer) else {
            return;
        };
        entry.deadline_ns = deadline_ns;
        match entry.list {
            // Popping from `due` checks the deadline again.
            DUE => {}
            UNLINKED => self.link_by_deadline(timer.index),
            slot => {
                if deadline_ns.div_ceil(GRANULE_NS) < granule_of_slot(slot, passed_granule) {
                    self.unlink(timer.index);
                    self.link_by_deadline(timer.index);
                }
            }
        }
    }

    /// Takes the deadline away; the timer stays.
    #[inline]
    pub fn clear(&mut self, timer: TimerId) {
        if let Some(entry) = self.find(timer) {
            entry.deadline_ns = NEVER_NS;
        }
    }

    /// Ends the timer; its id becomes stale.
    pub fn remove(&mut self, timer: TimerId) {
        let first_free = self.first_free;
        if self.find(timer).is_none() {
            return;
        }
        self.unlink(timer.index);
        let entry = &mut self.timers[timer.index as usize];
        entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        entry.next = first_free;
        self.first_free = timer.index;
    }

    /// Timers created and not removed. Walks over those removed: for tests and reports.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut count = self.timers.len();
        let mut free = self.first_free;
        while free != NIL {
            count -= 1;
            free = self.timers[free as usize].next;
        }
        count
    }

    /// When to check for expired timers again. Not later than a granule after the earliest deadline; sometimes early,
    /// after deadlines moved.
    #[must_use]
    pub fn next_deadline_ns(&self) -> Option<u64> {
        if self.heads[DUE as usize] != NIL {
            return Some(self.passed_granule << GRANULE_SHIFT);
        }
        self.next_occupied_granule()
            .map(|granule| granule << GRANULE_SHIFT)
    }

    /// The next timer whose deadline has passed at `now_ns`, with its user data. It has no deadline any more, but lives
    /// until removed.
    #[inline]
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<(u64, TimerId)> {
        let now_granule = now_ns >> GRANULE_SHIFT;
        if now_granule > self.passed_granule {
            self.empty_slots_until(now_granule, now_ns);
        }
        loop {
            let index = self.heads[DUE as usize];
            if index == NIL {
                return None;
            }
            self.unlink(index);
            let timer = &mut self.timers[index as usize];
            if timer.deadline_ns <= now_ns {
                timer.deadline_ns = NEVER_NS;
                return Some((
                    timer.user,
                    TimerId {
                        index,
                        generation: timer.generation,
                    },
                ));
            }
            self.link_by_deadline(index);
        }
    }

    /// Calls `expired` for each timer whose deadline has passed at `now_ns`.
    pub fn advance(&mut self, now_ns: u64, expired: &mut impl FnMut(u64, TimerId)) {
        while let Some((user, timer)) = self.pop_expired(now_ns) {
            expired(user, timer);
        }
    }

    #[inline]
    fn find(&mut self, id: TimerId) -> Option<&mut Timer> {
        self.timers
            .get_mut(id.index as usize)
            .filter(|timer| timer.generation == id.generation)
    }

    /// Moves expired timers of all slots up to `now_granule` to `due`, links the others again.
    fn empty_slots_until(&mut self, now_granule: u64, now_ns: u64) {
        let passed_granules = (now_granule - self.passed_granule).min(SLOT_COUNT as u64);
        // First, so that timers are linked again relative to the new time.
        self.passed_granule = now_granule;
        for granule in now_granule + 1 - passed_granules..=now_granule {
            let slot = slot_of_granule(granule);
            // The whole chain leaves the slot before any timer is linked again, perhaps here.
            let mut index = std::mem::replace(&mut self.heads[slot as usize], NIL);
            if index != NIL {
                self.mark_empty(slot);
            }
            while index != NIL {
                let timer = &mut self.timers[index as usize];
                let next = timer.next;
                timer.list = UNLINKED;
                if timer.deadline_ns <= now_ns {
                    self.link(index, DUE);
                } else {
                    self.link_by_deadline(index);
                }
                index = next;
            }
        }
    }

    /// Links an unlinked timer where its deadline wants it; nowhere without a deadline.
    fn link_by_deadline(&mut self, index: u32) {
        let deadline_ns = self.timers[index as usize].deadline_ns;
        if deadline_ns == NEVER_NS {
            return;
        }
        let first = self.passed_granule + 1;
        let last = self.passed_granule + SLOT_COUNT as u64;
        let granule = deadline_ns.div_ceil(GRANULE_NS).clamp(first, last);
        self.link(index, slot_of_granule(granule));
    }

    fn link(&mut self, index: u32, list: u32) {
        let head = std::mem::replace(&mut self.heads[list as usize], index);
        let timer = &mut self.timers[index as usize];
        debug_assert_eq!(timer.list, UNLINKED, "a timer is in one list at a time");
        timer.list = list;
        timer.previous = NIL;
        timer.next = head;
        if head != NIL {
            self.timers[head as usize].previous = index;
        } else if list != DUE {
            self.occupied[list as usize / 64] |= 1 << (list % 64);
            self.occupied_words |= 1 << (list / 64);
        }
    }

    fn unlink(&mut self, index: u32) {
        let Timer {
            list,
            previous,
            next,
            ..
        } = self.timers[index as usize];
        if list == UNLINKED {
            return;
        }
        self.timers[index as usize].list = UNLINKED;
        if next != NIL {
            self.timers[next as usize].previous = previous;
        }
        if previous != NIL {
            self.timers[previous as usize].next = next;
            return;
        }
        self.heads[list as usize] = next;
        if next == NIL && list != DUE {
            self.mark_empty(list);
        }
    }

    fn mark_empty(&mut self, slot: u32) {
        let word = &mut self.occupied[slot as usize / 64];
        *word &= !(1 << (slot % 64));
        if *word == 0 {
            self.occupied_words &= !(1 << (slot / 64));
        }
    }

    /// The first granule after the passed one whose slot holds a timer.
    fn next_occupied_granule(&self) -> Option<u64> {
        let first = slot_of_granule(self.passed_granule + 1);
        let (first_word, first_bit) = (first / 64, first % 64);
        let upper = self.occupied[first_word as usize] & u64::MAX << first_bit;
        let (word_index, word) = if upper == 0 {
            // The words after it, in order; its own lower part, which is one turn ahead, is last.
            let behind = self.occupied_words.rotate_right(first_word + 1);
            let steps = behind.trailing_zeros();
            let word_index = (first_word + 1 + steps) % u16::BITS;
            (word_index, self.occupied[word_index as usize])
        } else {
            (first_word, upper)
        };
        if word == 0 {
            return None;
        }
        let slot = word_index * u64::BITS + word.trailing_zeros();
        Some(granule_of_slot(slot, self.passed_granule))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below SLOT_COUNT"
)]
fn slot_of_granule(granule: u64) -> u32 {
    (granule % SLOT_COUNT as u64) as u32
}

/// The first granule after `passed_granule` that has this slot.
fn granule_of_slot(slot: u32, passed_granule: u64) -> u64 {
    let first = passed_granule + 1;
    let ahead = u64::from(slot).wrapping_sub(first) % SLOT_COUNT as u64;
    first + ahead
}
