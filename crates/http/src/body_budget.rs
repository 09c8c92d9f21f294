//! Memory limit for large bodies that are held whole, for all shards of a server together.
//!
//! A hold grows as bytes of its body arrive, not by the announced length: an announcement costs nothing. A body that
//! has begun may wait for more memory, and bodies could wait for one another for ever; so a hold grows only if all
//! whose length is known can still be completed, one after another, with what is left (the banker's algorithm). A body
//! longer than the whole budget uses the one extra place beside it, so it delays no other body.
//!
//! A minimum rate is demanded of holders while other bodies wait, in proportion to the bytes held: each moved byte
//! earns time, and of the connections that have used theirs up the one furthest behind is marked when a body waits
//! ([`BodyBudget::cut_slowest`]). Its owner, on another thread, cuts the connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::Limits;
use millpond_io::Waker;

const SECOND_NS: u64 = 1_000_000_000;

/// Of what one holds, so much has to be moved in a second while others wait: all of it in two minutes.
const HOLD_SECONDS_MAX: u64 = 120;

/// The least that has to be moved in a second while others wait, however little is held: 0.5 Mbit/s.
pub const CONTENDED_RATE_BYTES_PER_S_MIN: u64 = 64 << 10;

/// Holds grow by this, or by the 256th part of the budget, so at most 256 are searched.
const STEP_BYTES_MIN: u64 = 64 << 10;
const HOLDERS_MAX: u64 = 256;

/// So many bytes of bodies, and one longer body beside them. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct BodyBudget(Arc<Bodies>);

#[derive(Debug)]
struct Bodies {
    bytes_max: u64,
    grace_ns: u64,
    held_bytes: AtomicU64,
    /// Marked and not gone yet.
    marked: AtomicUsize,
    cut_count: AtomicU64,
    state: Mutex<BudgetState>,
}

#[derive(Debug, Default)]
struct BudgetState {
    holders: Vec<Arc<Holder>>,
    /// Of all but the one beside.
    pool_bytes: u64,
    /// The longer one has its place.
    is_beside_taken: bool,
}

/// Numbers change under the lock of the state, but for `due_ns`.
#[derive(Debug)]
struct Holder {
    bytes: AtomicU64,
    /// Its final size in bytes; `u64::MAX`: not known.
    total_bytes: AtomicU64,
    is_beside: AtomicBool,
    /// By when its peer has to move the next byte, if others wait; `u64::MAX`: nothing is demanded of it.
    due_ns: AtomicU64,
    is_marked: AtomicBool,
    waker: Option<Waker>,
}

/// One body's part, until it is dropped.
#[derive(Debug)]
pub struct BodyHold {
    bodies: Arc<Bodies>,
    holder: Arc<Holder>,
    is_listed: bool,
}

/// By when its peer has to move the next byte, of one that was due at `due_ns` and has moved bytes now.
#[must_use]
pub fn due_after_ns(
    due_ns: u64,
    held_bytes: u64,
    moved_bytes: u64,
    (now_ns, grace_ns): (u64, u64),
) -> u64 {
    let rate = (held_bytes / HOLD_SECONDS_MAX).max(CONTENDED_RATE_BYTES_PER_S_MIN);
    let earned_ns = moved_bytes.saturating_mul(SECOND_NS) / rate;
    // Old delay is forgiven, and excess speed earns no credit.
    due_ns
        .max(now_ns.saturating_sub(grace_ns))
        .saturating_add(earned_ns)
        .min(now_ns.saturating_add(grace_ns))
}

impl BodyBudget {
    /// A budget without holds. While others wait, a peer may be behind the rate that is demanded by `grace_ns` (see
    /// `contended_grace_ns` of [`crate::LimitValues`]).
    pub fn new(bytes_max: u64, grace_ns: u64) -> Self {
        Self(Arc::new(Bodies {
            bytes_max,
            grace_ns,
            held_bytes: AtomicU64::new(0),
            marked: AtomicUsize::new(0),
            cut_count: AtomicU64::new(0),
            state: Mutex::default(),
        }))
    }

    /// As the server's limits set it.
    pub(crate) fn within(limits: &Limits) -> Self {
        Self::new(limits.bodies_bytes_max, limits.contended_grace_ns)
    }

    /// A hold on so many bytes at once; `None`: they are in use. `waker` wakes the thread that checks
    /// [`BodyHold::is_cut`].
    pub fn take(&self, bytes: u64, now_ns: u64, waker: Option<Waker>) -> Option<BodyHold> {
        let mut hold = self.begin(Some(bytes), waker);
        hold.grow_to(bytes, now_ns).then_some(hold)
    }

    /// A hold on nothing yet, of a body of that length.
    pub(crate) fn begin(&self, total_bytes: Option<u64>, waker: Option<Waker>) -> BodyHold {
        let holder = Holder {
            bytes: AtomicU64::new(0),
            total_bytes: AtomicU64::new(total_bytes.unwrap_or(u64::MAX)),
            is_beside: AtomicBool::new(false),
            due_ns: AtomicU64::new(u64::MAX),
            is_marked: AtomicBool::new(false),
            waker,
        };
        BodyHold {
            bodies: Arc::clone(&self.0),
            holder: Arc::new(holder),
            is_listed: false,
        }
    }

    /// Whether so many bytes are available now.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        let state = self.0.lock();
        match bytes > self.0.bytes_max {
            true => !state.is_beside_taken,
            false => state.is_safe_with(self.0.bytes_max, None, bytes, bytes),
        }
    }

    /// Bytes that are held.
    pub fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// How many were cut because others waited.
    pub fn cut_count(&self) -> u64 {
        self.0.cut_count.load(Ordering::Relaxed)
    }

    /// Whether it has a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.0.is_limited()
    }

    /// Whether a marked connection is still open.
    pub(crate) fn has_marked(&self) -> bool {
        self.0.marked.load(Ordering::Relaxed) > 0
    }

    /// For a request that waits for `bytes` of it: marks the one that is furthest behind, if any is behind, and
    /// if none is on its way out already. Its owner is woken.
    pub fn cut_slowest(&self, bytes: u64, now_ns: u64) {
        let is_beside = bytes > self.0.bytes_max;
        let state = self.0.lock();
        if self.has_marked() {
            // It may have been on its way to its owner.
            let marked = state.holders.iter().filter(|holder| holder.is_marked());
            return marked.for_each(|holder| holder.wake());
        }
        let due_ns = |holder: &Holder| holder.due_ns.load(Ordering::Relaxed);
        let behind = state.holders.iter().filter(|holder| {
            due_ns(holder) < now_ns && holder.is_beside.load(Ordering::Relaxed) == is_beside
        });
        let Some(slowest) = behind.min_by_key(|holder| due_ns(holder)) else {
            return;
        };
        slowest.is_marked.store(true, Ordering::Relaxed);
        self.0.marked.fetch_add(1, Ordering::Relaxed);
        self.0.cut_count.fetch_add(1, Ordering::Relaxed);
        slowest.wake();
    }
}

impl Holder {
    fn is_marked(&self) -> bool {
        self.is_marked.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake();
        }
    }
}

impl Bodies {
    fn is_limited(&self) -> bool {
        self.bytes_max < u64::MAX
    }

    fn step_bytes(&self) -> u64 {
        (self.bytes_max / HOLDERS_MAX).max(STEP_BYTES_MIN)
    }

    fn lock(&self) -> MutexGuard<'_, BudgetState> {
        // It is whole after every statement under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetState {
    /// Whether all whose length is known can be completed, one after another, once `holder` (or a new one) has
    /// `bytes` of `total_bytes`.
    fn is_safe_with(
        &self,
        bytes_max: u64,
        holder: Option<&Arc<Holder>>,
        bytes: u64,
        total_bytes: u64,
    ) -> bool {
        let before = holder.map_or(0, |holder| holder.bytes.load(Ordering::Relaxed));
        let Some(mut free_bytes) = (self.pool_bytes - before)
            .checked_add(bytes)
            .and_then(|held_bytes| bytes_max.checked_sub(held_bytes))
        else {
            return false;
        };
        let mut needs: Vec<(u64, u64)> = Vec::with_capacity(self.holders.len() + 1);
        needs.push((total_bytes - bytes, bytes));
        for other in &self.holders {
            let is_same = holder.is_some_and(|holder| Arc::ptr_eq(holder, other));
            if !is_same && !other.is_beside.load(Ordering::Relaxed) {
                let held = other.bytes.load(Ordering::Relaxed);
                let total = other.total_bytes.load(Ordering::Relaxed);
                needs.push((total - held, held));
            }
        }
        // Completes in this order every body that can be: the memory each returns only helps the later ones.
        needs.sort_unstable();
        for (needed_bytes, held_bytes) in needs {
            if needed_bytes > u64::MAX / 2 {
                // Of unknown length: nothing was promised to it, and it gives nothing back.
                continue;
            }
            if needed_bytes > free_bytes {
                return false;
            }
            free_bytes += held_bytes;
        }
        true
    }
}

impl BodyHold {
    /// How many bytes it is a hold on.
    pub fn bytes(&self) -> u64 {
        self.holder.bytes.load(Ordering::Relaxed)
    }

    /// Makes it a hold on `bytes` in all or a step more, if there are so many. It never shrinks.
    pub(crate) fn grow_to(&mut self, bytes: u64, now_ns: u64) -> bool {
        let before = self.bytes();
        if bytes <= before {
            return true;
        }
        let total_bytes = self.holder.total_bytes.load(Ordering::Relaxed).max(bytes);
        let step_bytes = self.bodies.step_bytes();
        let stepped = bytes.saturating_add(step_bytes - 1) / step_bytes * step_bytes;
        let wanted_bytes = stepped.min(total_bytes);
        if !self.bodies.is_limited() {
            self.holder.bytes.store(wanted_bytes, Ordering::Relaxed);
            let more = wanted_bytes - before;
            self.bodies.held_bytes.fetch_add(more, Ordering::Relaxed);
            return true;
        }
        self.grow_limited(wanted_bytes, total_bytes, now_ns)
    }

    fn grow_limited(&mut self, bytes: u64, total_bytes: u64, now_ns: u64) -> bool {
        let (bodies, holder) = (&*self.bodies, &self.holder);
        let before = self.bytes();
        let mut state = bodies.lock();
        let was_beside = holder.is_beside.load(Ordering::Relaxed);
        let is_known = holder.total_bytes.load(Ordering::Relaxed) != u64::MAX;
        let longest = if is_known { total_bytes } else { bytes };
        let is_beside = was_beside || longest > bodies.bytes_max;
        if is_beside && !was_beside {
            if state.is_beside_taken {
                return false;
            }
            state.is_beside_taken = true;
            state.pool_bytes -= before;
            holder.is_beside.store(true, Ordering::Relaxed);
        }
        if !is_beside {
            if !state.is_safe_with(bodies.bytes_max, Some(holder), bytes, total_bytes) {
                return false;
            }
            state.pool_bytes += bytes - before;
        }
        holder.bytes.store(bytes, Ordering::Relaxed);
        bodies
            .held_bytes
            .fetch_add(bytes - before, Ordering::Relaxed);
        if !self.is_listed {
            let due_ns = now_ns.saturating_add(bodies.grace_ns);
            holder.due_ns.store(due_ns, Ordering::Relaxed);
            state.holders.push(Arc::clone(holder));
            drop(state);
            self.is_listed = true;
        }
        true
    }

    /// The peer has sent or read so many bytes more.
    pub fn moved(&self, bytes: u64, now_ns: u64) {
        let due_ns = self.holder.due_ns.load(Ordering::Relaxed);
        if due_ns != u64::MAX {
            let now = (now_ns, self.bodies.grace_ns);
            let due_ns = due_after_ns(due_ns, self.bytes(), bytes, now);
            self.holder.due_ns.store(due_ns, Ordering::Relaxed);
        }
    }

    /// From now on the peer is not what it waits for, or is again.
    pub(crate) fn demand(&self, is_demanded: bool, now_ns: u64) {
        let due_ns = match is_demanded && self.is_listed {
            true => now_ns.saturating_add(self.bodies.grace_ns),
            false => u64::MAX,
        };
        self.holder.due_ns.store(due_ns, Ordering::Relaxed);
    }

    /// The whole body has arrived: the hold does not grow any more.
    pub(crate) fn complete(&self) {
        self.demand(false, 0);
        let _state = self.bodies.lock();
        self.holder
            .total_bytes
            .store(self.bytes(), Ordering::Relaxed);
    }

    /// Its peer is too slow while others wait: the connection is to be cut.
    pub fn is_cut(&self) -> bool {
        self.holder.is_marked()
    }
}

impl Drop for BodyHold {
    fn drop(&mut self) {
        let bytes = self.bytes();
        let mut state = self.is_listed.then(|| self.bodies.lock());
        if let Some(state) = &mut state {
            match self.holder.is_beside.load(Ordering::Relaxed) {
                true => state.is_beside_taken = false,
                false => state.pool_bytes -= bytes,
            }
            state
                .holders
                .retain(|holder| !Arc::ptr_eq(holder, &self.holder));
            // Under the lock: it cannot be marked from here on.
            if self.is_cut() {
                self.bodies.marked.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // Under the lock too, if there is one: the next holder of these bytes adds them after this.
        self.bodies.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "tests/body_budget.rs"]
mod tests;
