//! One thread and all it owns: its driver, timers, pools and protocol.
//!
//! A shard is a loop: wait, hand events to the [`Protocol`], fire timers, end the tick. It shares
//! nothing; a [`StopHandle`] is how the rest of the process ends it.

use crate::clock::earlier;
use crate::driver::{Driver, DriverCounters, Event};
use crate::error::IoError;
use crate::pools::ShardPools;
use crate::scheduler::TIMERS_PER_TICK_MAX;
use crate::thread_placement::pin_to;
use crate::time_slice;
use crate::timer_wheel::TimerWheel;
use crate::waker::Waker;
use millpond_mempool::{PoolMode, PoolStats, flush_remote_frees};
use rustix::thread::set_current_timer_slack;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How a shard is set up.
#[derive(Clone, Copy, Debug)]
pub struct ShardConfig {
    /// The shard's number, from 0.
    pub index: usize,
    /// The CPU its thread is bound to, if any.
    pub cpu: Option<usize>,
    /// Whether its pools are on.
    pub pool_mode: PoolMode,
}

/// The shard's resources for a protocol while it handles an event.
pub struct ShardContext<'a, D: Driver> {
    /// The sockets.
    pub driver: &'a mut D,
    /// The deadlines.
    pub timers: &'a mut TimerWheel,
    /// The memory.
    pub pools: &'a mut ShardPools,
    /// When the current tick's wait ended; [`Driver::clock_ns`] is more exact and costs more.
    pub now_ns: u64,
    /// The shard's number.
    pub shard_index: usize,
}

impl<D: Driver> fmt::Debug for ShardContext<'_, D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ShardContext")
            .field("now_ns", &self.now_ns)
            .field("shard_index", &self.shard_index)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> ShardContext<'_, D> {
    /// Gives back half of the memory that every pool of the shard, the driver's included, left unused since the last
    /// call; returns how many bytes. A protocol calls it about once a second, as long as it returns more than 0: idle
    /// memory halves each time.
    pub fn trim_pools(&mut self) -> usize {
        self.pools.trim() + self.driver.trim_pools()
    }

    /// Calls `visit` with the accounting of every pool of the shard, the driver's included.
    pub fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        self.pools.visit_stats(visit);
        self.driver.visit_pool_stats(visit);
    }
}

/// How long the next wait may last.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WaitPlan {
    /// When the protocol wants to run again at the latest (absolute), beyond events and timers.
    pub deadline_ns: Option<u64>,
    /// Wake this much earlier and poll without sleeping until the deadline: the price for waking
    /// to the microsecond.
    pub spin_ns: u64,
}

/// Handles the events of a shard.
pub trait Protocol<D: Driver> {
    /// The shard's thread runs; its driver may listen and connect now.
    fn started(&mut self, _shard: &mut ShardContext<'_, D>) -> Result<(), IoError> {
        Ok(())
    }

    /// Something happened.
    fn event(&mut self, shard: &mut ShardContext<'_, D>, event: Event<'_>);

    /// A timer of [`ShardContext::timers`] fired; `user` is what it was created with. At most a few
    /// fire in a tick; the others do in the next ones, before anything sleeps.
    fn timer_expired(&mut self, _shard: &mut ShardContext<'_, D>, _user: u64) {}

    /// All events and timers of a tick are handled: flush dirty connections, hand batches over.
    fn tick_ended(&mut self, _shard: &mut ShardContext<'_, D>) {}

    /// Stop gracefully: stop listening, finish what runs, then let [`Self::finished`] return true.
    fn stop_requested(&mut self, shard: &mut ShardContext<'_, D>);

    /// Nothing is left to do; the shard returns once its closing sockets are closed. Asked at the
    /// end of every tick, after a stop request at the earliest one full tick later, so that
    /// connections which waited for acceptance are seen.
    fn finished(&self) -> bool;

    /// How long the next wait may last; asked before every wait.
    fn wait_plan(&mut self, _now_ns: u64) -> WaitPlan {
        WaitPlan::default()
    }
}

/// When nothing else is left to do, a peer that has been sent all has this long to respond to our FIN: a request that
/// crossed the FIN is discarded meanwhile, and a reset does not destroy a response it is reading.
const LINGER_AT_END_NS: u64 = 30_000_000;

/// The shortest that the kernel gives: a shard that has been woken is to run before threads that compute.
const TIME_SLICE_NS: u64 = 100_000;

const RUNNING: u8 = 0;
const STOPPING: u8 = 1;
const ABORTING: u8 = 2;

/// Ends one shard, from any thread.
#[derive(Clone, Debug)]
pub struct StopHandle {
    level: Arc<AtomicU8>,
    waker: Waker,
}

impl StopHandle {
    /// Asks the protocol to stop gracefully; once is enough.
    pub fn request_stop(&self) {
        self.raise_to(STOPPING);
    }

    /// Makes the shard return after its current tick; open sockets are closed as they are.
    pub fn request_abort(&self) {
        self.raise_to(ABORTING);
    }

    fn raise_to(&self, level: u8) {
        self.level.fetch_max(level, Ordering::Release);
        self.waker.wake();
    }
}

/// Report of a shard that has returned.
#[derive(Clone, Copy, Debug)]
pub struct ShardReport {
    /// The shard's number.
    pub shard_index: usize,
    /// [`StopHandle::request_abort`] ended it.
    pub aborted: bool,
    /// From start to return.
    pub duration_ns: u64,
    /// Timers fired.
    pub timers_fired: u64,
    /// The driver's work.
    pub driver: DriverCounters,
}

/// One shard, ready to run on the thread that made it.
pub struct Shard<D: Driver> {
    config: ShardConfig,
    driver: D,
    timers: TimerWheel,
    pools: ShardPools,
    stop: StopHandle,
    timers_fired: u64,
}

impl<D: Driver> fmt::Debug for Shard<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Shard")
            .field("config", &self.config)
            .field("timers_fired", &self.timers_fired)
            .finish_non_exhaustive()
    }
}

impl<D: Driver> Shard<D> {
    /// A shard around `driver`. Make it on the thread that runs it: pools belong to a thread.
    pub fn new(config: ShardConfig, driver: D) -> Self {
        let stop = StopHandle {
            level: Arc::new(AtomicU8::new(RUNNING)),
            waker: driver.waker(),
        };
        Self {
            config,
            timers: TimerWheel::new(driver.clock_ns()),
            driver,
            pools: ShardPools::new(config.pool_mode),
            stop,
            timers_fired: 0,
        }
    }

    /// How other threads end this shard.
    #[must_use]
    pub fn stop_handle(&self) -> StopHandle {
        self.stop.clone()
    }

    /// How other threads wake this shard.
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.driver.waker()
    }

    /// The shard's memory, for what must exist before it runs.
    pub fn pools(&mut self) -> &mut ShardPools {
        &mut self.pools
    }

    /// The shard's driver, for what must exist before it runs.
    pub fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    /// The shard's deadlines, checked after it has run.
    pub fn timers(&self) -> &TimerWheel {
        &self.timers
    }

    /// Calls `visit` with the accounting of every pool of the shard, the driver's included.
    pub fn visit_pool_stats(&self, visit: &mut dyn FnMut(PoolStats)) {
        self.pools.visit_stats(visit);
        self.driver.visit_pool_stats(visit);
    }

    /// Runs until the protocol has finished or is aborted. Once: a stop request is not taken back.
    pub fn run<P: Protocol<D>>(&mut self, protocol: &mut P) -> Result<ShardReport, IoError> {
        if let Some(cpu) = self.config.cpu {
            pin_to(cpu)?;
        }
        // The default slack lets the kernel wake a thread 50 us late, which pacing would feel.
        // Refusal only means that default.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        // Refused, or not known to the kernel: threads of other work on this CPU are waited for longer.
        let _ = time_slice::ask_for(TIME_SLICE_NS);
        let start_ns = self.driver.clock_ns();
        protocol.started(&mut self.context(start_ns))?;
        let aborted = self.serve(protocol)?;
        Ok(ShardReport {
            shard_index: self.config.index,
            aborted,
            duration_ns: self.driver.clock_ns() - start_ns,
            timers_fired: self.timers_fired,
            driver: self.driver.counters(),
        })
    }

    /// Ticks until the end; true when aborted.
    fn serve<P: Protocol<D>>(&mut self, protocol: &mut P) -> Result<bool, IoError> {
        let mut stopping = false;
        loop {
            self.tick(protocol)?;
            let level = self.stop.level.load(Ordering::Acquire);
            if level == ABORTING {
                return Ok(true);
            }
            let just_stopped = level == STOPPING && !stopping;
            if just_stopped {
                stopping = true;
                let now_ns = self.driver.now_ns();
                protocol.stop_requested(&mut self.context(now_ns));
            }
            let now_ns = self.driver.now_ns();
            protocol.tick_ended(&mut self.context(now_ns));
            if !just_stopped && protocol.finished() {
                if self.driver.closing_count() == 0 {
                    return Ok(false);
                }
                self.driver.shorten_lingering(LINGER_AT_END_NS);
            }
            if just_stopped {
                // The next tick must not sleep: it is the one that takes the last connections.
                self.stop.waker.wake();
            }
        }
    }

    fn tick<P: Protocol<D>>(&mut self, protocol: &mut P) -> Result<(), IoError> {
        flush_remote_frees();
        let plan = protocol.wait_plan(self.driver.now_ns());
        let planned_ns = plan
            .deadline_ns
            .map(|deadline_ns| deadline_ns.saturating_sub(plan.spin_ns));
        let wait_until_ns = match self.pools.blocks.go_on_trimming() {
            // It is to be done soon, but not at once.
            true => Some(0),
            false => earlier(planned_ns, self.timers.next_deadline_ns()),
        };
        let Self {
            config,
            driver,
            timers,
            pools,
            ..
        } = self;
        let shard_index = config.index;
        driver.tick(wait_until_ns, pools, |driver, pools, event| {
            let now_ns = driver.now_ns();
            let context = &mut ShardContext {
                driver,
                timers,
                pools,
                now_ns,
                shard_index,
            };
            protocol.event(context, event);
        })?;
        self.pools.blocks.drain_remote();
        let now_ns = self.driver.now_ns();
        for _ in 0..TIMERS_PER_TICK_MAX {
            let Some((user, _)) = self.timers.pop_expired(now_ns) else {
                break;
            };
            self.timers_fired += 1;
            protocol.timer_expired(&mut self.context(now_ns), user);
        }
        Ok(())
    }

    fn context(&mut self, now_ns: u64) -> ShardContext<'_, D> {
        ShardContext {
            driver: &mut self.driver,
            timers: &mut self.timers,
            pools: &mut self.pools,
            now_ns,
            shard_index: self.config.index,
        }
    }
}
