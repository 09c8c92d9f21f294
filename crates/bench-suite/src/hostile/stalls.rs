//! When a CPU was not this machine's: the host of a virtual machine takes it away for milliseconds,
//! and firmware for shorter times.
//!
//! Two thousand requests a second for 800 ms have their p99 at the 16th slowest: one stall of 8 ms
//! decides it, alone or beside an attack as it happens to fall. So a watcher for each CPU, at the
//! highest real-time priority, sleeps in short steps and notes when it woke late. Requests under way
//! in a stall, or while what it left was worked off, are not compared.
//!
//! A kernel that is not preempted in its own work holds a watcher up as well: a server's long system
//! call, or its closing of what is large, is no stall of the machine. So where more would be left out for
//! the server's CPU beside an attack than alone, and the hypervisor does not own up to it, its stalls are
//! left in; see [`Stalls::to_leave_out`].
//! The other CPU is the generator's and the attack's: what happens there is never the server's doing.
//!
//! How many requests were left out is recorded. Where real-time priority is forbidden there is no
//! watcher, and nothing is left out.

use crate::bench::{lasting, real_time_at};
use std::io::Read;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Above all that is measured.
const PRIORITY: &str = "99";
/// Between two checks. A stall that ends before the next one is due is not seen: with 1 ms those of half a millisecond
/// were missed, which are a p99 beside one of 100 us.
const STEP: Duration = Duration::from_micros(250);
/// A CPU that stays awake (`bench::Awake`) has a watcher back within 20 to 50 us, and within 100 us in 99 of 100
/// checks; one that sleeps in a virtual machine takes twice that and more.
const LATE_MIN_NS: u64 = 120_000;
/// How much larger the share of disturbed requests may be by chance: half of what a p99 leaves out.
const EXCESS_MAX: f64 = 0.005;

/// Of /proc/stat on every system that this runs on.
const TICK_NS: u64 = 10_000_000;

/// A time in which a CPU did not run what was ready, in nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stall {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
}

impl Stall {
    /// Whether it disturbed a request that began and ended then. The work that waited meanwhile
    /// takes a time like the stall's.
    pub(super) fn disturbs(self, start_ns: u64, end_ns: u64) -> bool {
        let over_ns = self.end_ns + (self.end_ns - self.start_ns);
        self.start_ns < end_ns && start_ns < over_ns
    }
}

/// The process of a watcher: runs until its stdin ends, then prints a line for each stall.
pub(crate) fn run_watcher() -> Result<(), String> {
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    std::thread::spawn(move || {
        // However it ends: no thread needs the result any more.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        seen.store(true, Ordering::Relaxed);
    });
    for stall in watch(&is_over) {
        println!("{} {}", stall.start_ns, stall.end_ns);
    }
    Ok(())
}

/// Watches until told to stop.
fn watch(is_over: &AtomicBool) -> Vec<Stall> {
    let mut stalls = Vec::new();
    let step_ns = STEP.as_nanos() as u64;
    let mut before_ns = unix_ns();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(STEP);
        let now_ns = unix_ns();
        let due_ns = before_ns + step_ns;
        if now_ns > due_ns + LATE_MIN_NS {
            stalls.push(Stall {
                start_ns: due_ns,
                end_ns: now_ns,
            });
        }
        before_ns = now_ns;
    }
    stalls
}

pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos() as u64
}

/// A CPU's time since the machine started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct CpuTicks {
    total: u64,
    /// Taken by the hypervisor while a thread of ours was ready to run.
    steal: u64,
}

impl CpuTicks {
    /// `None` where the system does not report it.
    pub(super) fn read(cpu: usize) -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/stat").ok()?, cpu)
    }

    /// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`: guests are part of
    /// user and nice already.
    fn parse(text: &str, cpu: usize) -> Option<Self> {
        let name = format!("cpu{cpu} ");
        let fields = text.lines().find_map(|line| line.strip_prefix(&name))?;
        let ticks = fields.split_ascii_whitespace().take(8).map(str::parse);
        let ticks: Vec<u64> = ticks.collect::<Result<_, _>>().ok()?;
        Some(Self {
            total: ticks.iter().sum(),
            steal: *ticks.get(7)?,
        })
    }

    /// The share that the hypervisor took since `before`.
    pub(super) fn steal_share_since(self, before: Self) -> f64 {
        let total = self.total.saturating_sub(before.total);
        self.steal.saturating_sub(before.steal) as f64 / total.max(1) as f64
    }

    /// The time that the hypervisor took since `before`, give or take a tick.
    pub(super) fn steal_ns_since(self, before: Self) -> u64 {
        self.steal.saturating_sub(before.steal) * TICK_NS
    }
}

/// How long the server's CPU stood still beside an attack, as a watcher saw it, and how long of that
/// the hypervisor says it had taken it away.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Stood {
    pub(super) seen_ns: u64,
    pub(super) stolen_ns: u64,
}

impl Stood {
    /// Whether nothing is left that the server could have caused. Each reading of the hypervisor's clock is off by a
    /// tick at most, half of them too high, so that of many one is left.
    fn is_stolen(self) -> bool {
        self.seen_ns <= self.stolen_ns + TICK_NS
    }
}

impl std::ops::AddAssign for Stood {
    fn add_assign(&mut self, other: Self) {
        self.seen_ns += other.seen_ns;
        self.stolen_ns += other.stolen_ns;
    }
}

/// The observations of the watchers.
#[derive(Debug, Default)]
pub(super) struct Stalls {
    pub(super) of_server: Vec<Stall>,
    pub(super) of_generator: Vec<Stall>,
}

impl Stalls {
    pub(super) fn of_both(&self) -> Vec<Stall> {
        [&self.of_server[..], &self.of_generator].concat()
    }

    pub(super) fn extend(&mut self, later: Self) {
        self.of_server.extend(later.of_server);
        self.of_generator.extend(later.of_generator);
    }

    /// How long the server's CPU stood still in all from then on.
    pub(super) fn of_server_since(&self, unix_ns: u64) -> u64 {
        let since = self
            .of_server
            .iter()
            .filter(|stall| stall.start_ns >= unix_ns);
        since.map(|stall| stall.end_ns - stall.start_ns).sum()
    }

    /// Those that are the machine's doing: by the shares of requests that stalls of the server's CPU
    /// disturbed alone and beside an attack, or because the hypervisor says that it took all that time.
    pub(super) fn to_leave_out(&self, [alone, beside]: [f64; 2], beside_ns: Stood) -> Vec<Stall> {
        match beside <= alone + EXCESS_MAX || beside_ns.is_stolen() {
            true => self.of_both(),
            false => self.of_generator.clone(),
        }
    }
}

/// Watchers at work; dropping them ends them.
#[derive(Default)]
pub(super) struct Watchers {
    running: Vec<(Child, Option<ChildStdin>)>,
}

impl Watchers {
    /// One for the server's CPU and one for the generator's; none where the system forbids it.
    pub(super) fn start(cpus: [usize; 2]) -> Result<Self, String> {
        let before = real_time_at(PRIORITY);
        let mut watchers = Self::default();
        if before.is_empty() {
            return Ok(watchers);
        }
        let myself = std::env::current_exe().map_err(|error| format!("who am I: {error}"))?;
        for cpu in cpus {
            let mut command: Command = lasting(cpu);
            command.args(&before).arg(&myself).arg("hostile-stalls");
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
            let stdin = child.stdin.take();
            watchers.running.push((child, stdin));
        }
        Ok(watchers)
    }

    pub(super) fn finish(mut self) -> Result<Stalls, String> {
        let mut seen = self.running.iter_mut().map(|(child, stdin)| {
            drop(stdin.take());
            let mut text = String::new();
            if let Some(stdout) = &mut child.stdout {
                let read = stdout.read_to_string(&mut text);
                read.map_err(|error| format!("a watcher's stalls: {error}"))?;
            }
            let stalls: Option<Vec<Stall>> = text.lines().map(parse).collect();
            stalls.ok_or_else(|| format!("a watcher said {text}"))
        });
        let mut next = || seen.next().unwrap_or(Ok(Vec::new()));
        Ok(Stalls {
            of_server: next()?,
            of_generator: next()?,
        })
    }
}

fn parse(line: &str) -> Option<Stall> {
    let (start, end) = line.split_once(' ')?;
    let (start_ns, end_ns) = (start.parse().ok()?, end.parse().ok()?);
    (start_ns <= end_ns).then_some(Stall { start_ns, end_ns })
}

impl Drop for Watchers {
    fn drop(&mut self) {
        for (child, _) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
#[path = "tests/stalls.rs"]
mod tests;
