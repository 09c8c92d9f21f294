//! How much to do in the time there is, once it is known how fast every candidate is.
//!
//! Between `preflight` and the first generation. Pure arithmetic: figures in, plan out.
//!
//! A generation costs each candidate a start, a memory phase of fixed work, so many cycles of slices, and a block.
//! Differences between processes are averaged by processes only, so cycles are few as long as a start is cheap
//! (Kalibera and Jones, "Rigorous benchmarking in reasonable time", 2013). Cycles are dropped before generations; where
//! fewer generations could give no verdict at all, the budget gives. What is left after ten becomes further interim
//! analyses; a long budget buys longer memory phases too.

mod phased;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use millpond_measure::statistics::{InterimAnalyses, interim_rounds, smallest_rounds};
use millpond_measure::units::{format_duration_ns, format_percent, format_rate};
use phased::UnpinnedShare;

use crate::config::ROUNDS_DEFAULT;

pub use phased::Phased;
pub use phased::{Known, Lengths, MemoryWork};

/// The common rate, as a part of what the slowest candidate can do: enough that queues form now and
/// then, little enough that all keep up, the generator too, when the machine becomes slower by a quarter.
pub const RATE_SHARE: f64 = 0.4;
/// Shortest useful phase: below it, start-up and the clocks' steps are too large a part.
const PHASE_MIN: Duration = Duration::from_millis(300);
/// Memory phases get longer once there is time for this many rounds: fragmentation takes a while to show.
const ROUNDS_BEFORE_LONGER_PHASES: u32 = 30;
/// The share of a run that time then goes to the memory phase.
const LONGER_PHASE_SHARE: u32 = 2;
/// The least counted time of a slice.
const SLICE_MIN: Duration = Duration::from_millis(100);
/// Slices at the constant rate become at most this long for the sake of a p99.
const SLICE_MAX: Duration = Duration::from_secs(1);
/// A block is so many times as long as a slice.
const BLOCK_SLICES: u32 = 3;
/// Slices of the closed loop become at most this long, however slow a server is.
const SLICE_CLOSED_MAX: Duration = Duration::from_secs(2);
/// Requests per connection that a slice counts, at least, where that is not too long.
const REQUESTS_PER_CONNECTION: f64 = 8.0;
/// The work before memory is read: so many requests per operation, and so many per connection.
const WORK_MIN: u64 = 1_000;
const REQUESTS_PER_CONNECTION_OF_WORK: u64 = 16;
/// A process that stood still finds its caches cold: after this time the CPU time per request of every
/// server that was tried was level.
const SETTLE: Duration = Duration::from_millis(80);
/// The further time of a slice: thawing, connecting, the last responses, freezing.
const SLICE_OVERHEAD: Duration = Duration::from_millis(25);
/// Slices that are repeated because the machine disturbed them, for each one that is kept.
const REPEATED_SHARE: f64 = 0.2;
/// How much more cycles differ than processes do, as variances: the guess behind the number of cycles.
const CYCLE_VARIANCE: f64 = 5.0;
const CYCLES_MIN: u32 = 2;
const CYCLES_MAX: u32 = 5;
/// Slices at the constant rate in a round, where there is time for so many. One in fifteen has a stall of 1 to 2 ms that
/// nothing shows: of six slices it is less than a hundredth, and no part of the p99; of three it is one in some rounds.
const PACED_SLICES: [u32; 3] = [6, 3, 1];
const PACED_MAX: u32 = 10;
/// 10,000 responses let a round have a p99; half as many again, since beside other load three in ten are left out.
const P99_ANSWERS: f64 = 15_000.0;
/// A slice of writes counts so many of them, in the closed loop and at the constant rate. Our store flushes a memtable after
/// 14,500 values of 1 KiB, and compacts after four flushes: in the closed loop each slice has all of its tasks once, and
/// each p99 has a flush. In slices of 100 ms PUT made 48,000 per second with a flush and 88,000 without, and p99 was
/// 11 ms or 0.1.
const WRITES: f64 = 58_000.0;
const WRITES_PACED: f64 = 16_000.0;
/// So many shorter slices of reads there are for each slice of writes.
const READS_PER_WRITE: u32 = 3;
/// Users do not wait for more rounds; a plan has to end.
const ROUNDS_MAX: u32 = 1_000;
/// The part of a run that the warm-up may take.
const WARM_UP_SHARE: f64 = 1.0 / 3.0;
/// Kept back for the analysis and the report.
pub(crate) const REPORT_RESERVE: Duration = Duration::from_secs(3);

/// The time of starting and stopping a target, estimated for the question whether there is time at all.
const OVERHEAD_GUESS: Duration = Duration::from_millis(300);
/// The time of trying out a candidate and counting its heap calls, estimated for the same.
const TRY_GUESS: Duration = Duration::from_millis(2500);

/// The shortest comparison of `candidates`, the second baseline included, that can give a verdict,
/// guessed before any of them was started. `rounds`: what the user insists on.
#[must_use]
pub fn shortest(candidates: u32, operations: u32, rounds: Option<u32>, idle: Duration) -> Duration {
    let rounds = rounds.unwrap_or_else(|| rounds_min(candidates));
    let slices = (SLICE_MIN + SETTLE + SLICE_OVERHEAD) * 2;
    let run = OVERHEAD_GUESS + idle + (PHASE_MIN + slices) * operations;
    run * candidates * rounds + TRY_GUESS * candidates + REPORT_RESERVE
}

/// How long `candidates` are tried out, guessed before any of them was started.
#[must_use]
pub fn tried_out(candidates: u32) -> Duration {
    TRY_GUESS * candidates
}

/// Below this many rounds no exact test can claim anything, however large the difference: all
/// candidates but the baseline are compared with it at once.
fn rounds_min(candidates: u32) -> u32 {
    let comparisons = candidates.saturating_sub(1) as usize;
    u32::try_from(smallest_rounds(comparisons)).unwrap_or(u32::MAX)
}

/// The plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Rounds at most: those until the last analysis.
    pub rounds: u32,
    /// The rounds after which the data are analysed. More than one: the comparison ends at the first interim analysis
    /// that finds every verdict decided.
    pub looks: Vec<u32>,
    /// Fewer cannot give a verdict.
    pub rounds_min: u32,
    /// Requests of the memory phase, per operation.
    pub requests: Vec<u64>,
    /// Keys that the first of them writes, and all read: a longer memory phase writes them again.
    pub keys: u64,
    /// The requests per operation that memory would need, if there is no time for so many: it gets no verdict then.
    pub missed_floor: Option<u64>,
    /// The time of the memory phase for the slowest candidate, all operations together.
    pub work: Duration,
    /// The constant rate, per operation.
    pub rate_per_s: Vec<f64>,
    /// Length of each operation's memory phase for the slowest candidate; of the load program, if that makes
    /// the load.
    pub throughput_phase: Duration,
    /// Slices of the closed loop per operation, round and candidate.
    pub cycles: u32,
    /// Slices at the constant rate.
    pub paced: u32,
    /// Length of each slice before its counted part.
    pub settle: Duration,
    /// The counted time of a slice of the closed loop.
    pub slice: Duration,
    /// The counted time of a block: the closed loop for so long that a slice, if the others' slices in between changed
    /// what it measures, would differ from it. Zero: there is no time for blocks.
    pub block: Duration,
    /// The counted time of a slice at the constant rate.
    pub latency_phase: Duration,
    /// The operations that write, by their place.
    pub writes: Vec<bool>,
    /// The counted time of a slice of writes in the closed loop; there are fewer of them than of others, and no block,
    /// because they replace blocks. Zero: they are as long and as many as all others.
    pub write_slice: Duration,
    /// The same at the constant rate.
    pub write_latency_phase: Duration,
    /// The further time of a slice.
    pub tail: Duration,
    /// Estimate of one run.
    pub run: Duration,
    /// True if even the smallest plan needs more than what is left.
    pub over_budget: bool,
    /// Requests that precede the closed loop and count nowhere, per operation; the same for all.
    pub warm_up_requests: Vec<u64>,
    /// True if that is less than what was found to be needed.
    pub warm_up_is_cut: bool,
    /// Between the end of the work and the reading of what was retained.
    pub idle: Duration,
    /// Rounds in which each candidate is started once more and does the work of the memory phase on all CPUs.
    pub unpinned_rounds: u32,
    /// Phases instead of equal work and slices.
    pub phased: Option<Phased>,
}

impl Plan {
    /// The plan for what is known.
    #[must_use]
    pub fn make(known: &Known) -> Self {
        if let Some(phases) = &known.phases {
            return Self::of_phases(known, phases);
        }
        if let Some(load) = known.load_command {
            return Self::of_command(known, load);
        }
        Self::with_unpinned(known)
    }

    /// The same, with memory on all CPUs in this part of the rounds.
    fn of_slices(known: &Known, unpinned: UnpinnedShare) -> Self {
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let (warm_up_requests, warm_up) = Self::warm_up(known, left);
        let mut plan = Self {
            rounds: known.rounds_min(),
            looks: Vec::new(),
            rounds_min: known.rounds_min(),
            requests: Vec::new(),
            keys: 1,
            missed_floor: None,
            work: Duration::ZERO,
            rate_per_s: known
                .slowest_per_s
                .iter()
                .map(|&per_s| known.rate_per_s(per_s))
                .collect(),
            throughput_phase: PHASE_MIN,
            cycles: CYCLES_MAX,
            settle: known.lengths.settle.unwrap_or(SETTLE),
            slice: known.slice(),
            block: known.block(),
            paced: 1,
            latency_phase: known.slice(),
            writes: known.writes.clone(),
            write_slice: Duration::ZERO,
            write_latency_phase: Duration::ZERO,
            tail: known.tail.max(SLICE_OVERHEAD),
            run: Duration::ZERO,
            over_budget: false,
            warm_up_is_cut: warm_up_requests != known.warm_up_requests,
            warm_up_requests,
            idle: known.idle,
            unpinned_rounds: 0,
            phased: None,
        };
        let fixed = known.overhead + known.idle + warm_up;
        let candidates = known.candidates.max(1);
        let comparisons = known.comparisons();
        // On average: not each round has a process on all CPUs.
        let run_for = |plan: &Self, rounds: u32| {
            let count = unpinned.rounds(rounds, plan.looks.len(), comparisons);
            let on_all_cpus = (known.overhead + warm_up + plan.work) * count / rounds.max(1);
            fixed + plan.phases() + on_all_cpus
        };
        let fits = |plan: &Self, rounds: u32| run_for(plan, rounds) * candidates * rounds <= left;
        let rounds_wanted = known.rounds.unwrap_or(plan.rounds_min);
        plan.set_work(known, PHASE_MIN, known.work_floor());
        plan.keys = known.keys(PHASE_MIN);
        plan.fit_slices(known, fixed, |plan| fits(plan, rounds_wanted));
        if !fits(&plan, rounds_wanted) && known.lengths.memory.is_none() {
            plan.set_work(known, PHASE_MIN, 1);
            let has_floor = plan
                .requests
                .iter()
                .all(|&requests| requests >= known.work_floor());
            plan.missed_floor = (!has_floor).then(|| known.work_floor());
        }
        let longer = left / (candidates * known.rounds.unwrap_or(ROUNDS_BEFORE_LONGER_PHASES));
        let spare = longer.saturating_sub(run_for(&plan, rounds_wanted)) / LONGER_PHASE_SHARE;
        let spare = spare / plan.operations().max(1);
        if !spare.is_zero() && plan.missed_floor.is_none() {
            plan.set_work(known, PHASE_MIN + spare, known.work_floor());
        }
        plan.looks = Self::looks(known, |rounds| fits(&plan, rounds));
        plan.rounds = plan.looks.last().copied().unwrap_or(1);
        plan.over_budget = !fits(&plan, plan.rounds);
        plan.run = run_for(&plan, plan.rounds);
        plan.unpinned_rounds = unpinned.rounds(plan.rounds, plan.looks.len(), comparisons);
        plan
    }

    /// Memory phases of this length, with at least `floor` requests, unless the user insists on something.
    fn set_work(&mut self, known: &Known, phase: Duration, floor: u64) {
        self.requests = known.memory_work(phase, floor);
        self.work = known.time_of(&self.requests) + known.tail * self.operations();
        self.throughput_phase = phase;
    }

    /// As many slices of each kind as are good where a round costs `fixed` besides, and as fit.
    fn fit_slices(&mut self, known: &Known, fixed: Duration, fits: impl Fn(&Self) -> bool) {
        // A p99 or none: more responses than a median needs and fewer than a p99 needs are of no use.
        let all = known.p99_phase(|_| true);
        let of_reads = known.p99_phase(|is_write| !is_write);
        let with_p99 = [(of_reads, true), (all, false)]
            .into_iter()
            .filter(|&(_, has_long_writes)| !has_long_writes || known.may_have_long_writes())
            .flat_map(|(wanted, is_long)| PACED_SLICES.map(|least| (wanted, least, is_long)));
        for (paced, slices, has_long_writes) in with_p99.chain([(self.slice, 1, false)]) {
            self.pace_for(paced, slices);
            (self.write_slice, self.write_latency_phase) = known.write_slices(has_long_writes);
            self.cycles = self.cycles_for(fixed);
            while self.cycles > 1 && !fits(self) {
                self.cycles -= 1;
            }
            if fits(self) {
                return;
            }
        }
        if known.lengths.block.is_none() {
            self.block = Duration::ZERO;
        }
    }

    /// Slices at the constant rate that count so long together, `least` or more.
    fn pace_for(&mut self, wanted: Duration, least: u32) {
        let longest = SLICE_MAX.max(self.slice);
        let slices = wanted.as_secs_f64() / longest.as_secs_f64();
        self.paced = (slices.ceil() as u32).clamp(least, PACED_MAX);
        self.latency_phase = (wanted / self.paced).clamp(self.slice, longest);
    }

    /// As many cycles as make the interval narrowest, if a round costs `fixed` besides.
    fn cycles_for(&self, fixed: Duration) -> u32 {
        let none = Self {
            cycles: 0,
            ..self.clone()
        };
        let fixed = fixed + none.phases();
        let cycle = self.length_of(self.slice).mul_f64(1.0 + REPEATED_SHARE) * self.operations();
        let best = (CYCLE_VARIANCE * fixed.as_secs_f64() / cycle.as_secs_f64()).sqrt();
        (best.round() as u32).clamp(CYCLES_MIN, CYCLES_MAX)
    }

    /// Each has a rate.
    fn operations(&self) -> u32 {
        u32::try_from(self.rate_per_s.len()).unwrap_or(u32::MAX)
    }

    /// The time of a slice of which `window` counts; one that does not exist takes nothing.
    fn length_of(&self, window: Duration) -> Duration {
        match window.is_zero() {
            true => Duration::ZERO,
            false => window + self.settle + self.tail,
        }
    }

    /// Whether the slices of an operation are those of writes.
    fn has_long_slices(&self, place: usize) -> bool {
        !self.write_slice.is_zero() && phased::is_write(&self.writes, place)
    }

    /// Slices of the closed loop, those at the constant rate, and blocks of an operation, per round and candidate.
    pub(crate) fn counts(&self, place: usize) -> [u32; 3] {
        let has_block = !self.block.is_zero();
        match self.has_long_slices(place) {
            true => [
                self.cycles.div_ceil(READS_PER_WRITE),
                self.paced.div_ceil(READS_PER_WRITE),
                0,
            ],
            false => [self.cycles, self.paced, u32::from(has_block)],
        }
    }

    /// The counted time of each.
    pub(crate) fn windows(&self, place: usize) -> [Duration; 3] {
        match self.has_long_slices(place) {
            true => [self.write_slice, self.write_latency_phase, Duration::ZERO],
            false => [self.slice, self.latency_phase, self.block],
        }
    }

    /// The time of slices and blocks of all operations for a candidate in a round, without those that are repeated.
    fn slices(&self) -> Duration {
        let of_operation = |place: usize| -> Duration {
            let parts = self.counts(place).into_iter().zip(self.windows(place));
            parts
                .map(|(count, window)| self.length_of(window) * count)
                .sum()
        };
        (0..self.rate_per_s.len()).map(of_operation).sum()
    }

    /// Time for slices that are repeated, for each candidate in each round.
    pub(crate) fn kept_back(&self) -> Duration {
        self.slices().mul_f64(REPEATED_SHARE)
    }

    /// The time of memory phase, slices and blocks of all operations for the slowest candidate.
    pub(crate) fn phases(&self) -> Duration {
        self.work + self.slices() + self.kept_back()
    }

    /// One phase in each run, as long as the user's program takes: only rounds can be dropped.
    fn of_command(known: &Known, load: Duration) -> Self {
        let left = known.left.saturating_sub(REPORT_RESERVE);
        let run = known.overhead + known.idle + load;
        let fits = |rounds: u32| run * known.candidates.max(1) * rounds <= left;
        Self {
            work: load,
            throughput_phase: load,
            ..Self::of_runs(known, run, fits)
        }
    }

    /// Runs of a given length: only the number of rounds follows from the time budget.
    fn of_runs(known: &Known, run: Duration, fits: impl Fn(u32) -> bool) -> Self {
        let looks = Self::looks(known, &fits);
        let rounds = looks.last().copied().unwrap_or(1);
        Self {
            rounds,
            looks,
            rounds_min: known.rounds_min(),
            requests: Vec::new(),
            keys: 1,
            missed_floor: None,
            work: Duration::ZERO,
            rate_per_s: Vec::new(),
            throughput_phase: Duration::ZERO,
            cycles: 0,
            paced: 0,
            settle: Duration::ZERO,
            slice: Duration::ZERO,
            block: Duration::ZERO,
            latency_phase: Duration::ZERO,
            writes: known.writes.clone(),
            write_slice: Duration::ZERO,
            write_latency_phase: Duration::ZERO,
            tail: Duration::ZERO,
            run,
            over_budget: !fits(rounds),
            warm_up_requests: Vec::new(),
            warm_up_is_cut: false,
            idle: known.idle,
            unpinned_rounds: 0,
            phased: None,
        }
    }

    /// When to analyse the data: once, if the user insists on a number or time has no room for more; else after the
    /// usual rounds first, and the last time where `is_ample` ends.
    fn looks(known: &Known, fits: impl Fn(u32) -> bool) -> Vec<u32> {
        if let Some(rounds) = known.rounds {
            return vec![rounds];
        }
        let usual = ROUNDS_DEFAULT.max(known.rounds_min());
        let mut fewer = (known.rounds_min()..=usual).rev();
        let first = fewer
            .find(|&rounds| fits(rounds))
            .unwrap_or(known.rounds_min());
        if first < usual {
            return vec![first];
        }
        let more = (first + 1..=ROUNDS_MAX).take_while(|&rounds| fits(rounds));
        interim_rounds(first, more.last().unwrap_or(first), known.comparisons())
    }

    /// The warm-up of each run and what it takes: all that is needed, or what is a bearable part of the
    /// time that there is.
    fn warm_up(known: &Known, left: Duration) -> (Vec<u64>, Duration) {
        let needed = known.warm_up();
        let rounds = known
            .rounds
            .unwrap_or_else(|| ROUNDS_DEFAULT.max(known.rounds_min()));
        let run = left / (known.candidates.max(1) * rounds.max(1));
        let bearable = run.mul_f64(WARM_UP_SHARE);
        if needed <= bearable {
            return (known.warm_up_requests.clone(), needed);
        }
        let part = bearable.as_secs_f64() / needed.as_secs_f64();
        let requests = known.warm_up_requests.iter();
        let cut = requests.map(|&requests| (requests as f64 * part) as u64);
        (cut.collect(), bearable)
    }

    /// The same rounds with more slices of each kind in them, if each candidate has `spare` more time in a round. Memory
    /// phases stay as they are: what they read is compared over all rounds.
    pub(crate) fn with_more_slices(&self, spare: Duration) -> Self {
        let mut more = self.clone();
        loop {
            let mut next = more.clone();
            // A missing median or p99 costs more time than a missing throughput.
            match next.paced < PACED_MAX && next.paced <= 2 * next.cycles {
                true => next.paced += 1,
                false => next.cycles += 1,
            }
            let longer = next.phases().saturating_sub(self.phases());
            if longer > spare || next.cycles > 2 * CYCLES_MAX {
                more.run = self.run + more.phases() - self.phases();
                return more;
            }
            more = next;
        }
    }

    /// Estimate of all runs.
    #[must_use]
    pub fn duration(&self, candidates: u32) -> Duration {
        self.run * candidates * self.rounds
    }
}

// The plan in sentences, before the first round.

impl Plan {
    /// The decisions as sentences.
    #[must_use]
    pub fn describe(&self, operations: &[&str], candidates: u32, known: &Known) -> Vec<String> {
        let nanoseconds = |duration: Duration| format_duration_ns(duration.as_nanos() as f64);
        let at_most = if self.looks.len() > 1 { "at most " } else { "" };
        let mut lines = vec![format!(
            "{at_most}{} rounds of {candidates} candidates, about {} each: {} in all",
            self.rounds,
            nanoseconds(self.run),
            nanoseconds(self.duration(candidates)),
        )];
        lines.extend(self.describe_looks());
        if let Some(phased) = &self.phased {
            lines.extend(phased.describe(self.rate_per_s.first().copied()));
            lines.extend(self.describe_warm_up(operations));
        } else if known.load_command.is_some() {
            lines.push(format!(
                "in each run the load command, about {} with its warm-up",
                nanoseconds(self.throughput_phase)
            ));
        } else {
            lines.extend(self.describe_phases(operations, known));
        }
        lines.extend(self.describe_limits(known));
        lines
    }

    /// When it ends, and what interim analyses cost.
    fn describe_looks(&self) -> Option<String> {
        let (last, earlier) = self.looks.split_last()?;
        if earlier.is_empty() {
            return None;
        }
        let earlier: Vec<String> = earlier.iter().map(u32::to_string).collect();
        let looks = InterimAnalyses::planned(self.looks.len());
        Some(format!(
            "over when every verdict is decided, after {} or {last} rounds: each interim analysis may err in {} \
             of the 5 % of comparisons",
            earlier.join(", "),
            format_percent(looks.significance())
        ))
    }

    fn describe_warm_up(&self, operations: &[&str]) -> Option<String> {
        let parts: Vec<String> = operations
            .iter()
            .zip(&self.warm_up_requests)
            .filter(|(_, requests)| **requests > 0)
            .map(|(operation, requests)| format!("{requests} {}", plural(operation)))
            .collect();
        let why = if self.warm_up_is_cut {
            "less than it took until all were steady, to keep the time budget"
        } else {
            "what it took until all were steady"
        };
        (!parts.is_empty()).then(|| format!("warm-up per run: {} ({why})", parts.join(", ")))
    }

    fn describe_writes(&self, operations: &[&str]) -> Option<String> {
        let place = (0..operations.len()).find(|&place| self.has_long_slices(place))?;
        let ([closed, paced, _], [slice, latency, _]) = (self.counts(place), self.windows(place));
        Some(format!(
            "but for {}: {closed} of {} ms, {paced} of {} ms and no block, so that each has its flushes and a compaction",
            operations.get(place)?,
            slice.as_millis(),
            latency.as_millis(),
        ))
    }

    fn describe_phases(&self, operations: &[&str], known: &Known) -> Vec<String> {
        let milliseconds = |duration: Duration| format!("{} ms", duration.as_millis());
        let mut work = String::from("memory after equal work:");
        let mut rates = String::from("the same rate for all:");
        for (index, operation) in operations.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let requests = self.requests.get(index).copied().unwrap_or(0);
            let rate = self.rate_per_s.get(index).copied().unwrap_or(0.0);
            let name = plural(operation);
            let _ = write!(work, "{separator} {requests} {name}");
            let _ = write!(rates, "{separator} {name} at {}", format_rate(rate));
        }
        let block = match self.block.is_zero() {
            true => ", unchecked by blocks, for which there is no time".to_owned(),
            false => format!(
                " and one block of {} which they have to agree with",
                milliseconds(self.block)
            ),
        };
        let slices = format!(
            "slices on fresh connections, in each round and for each candidate: in the closed loop {} of {}{block}; \
             at the constant rate {} of {}; each after {} to settle",
            self.cycles,
            milliseconds(self.slice),
            self.paced,
            milliseconds(self.latency_phase),
            milliseconds(self.settle),
        );
        let mut lines = vec![slices, work, rates];
        lines.extend(self.describe_writes(operations));
        lines.extend(self.describe_warm_up(operations));
        if known.rate_per_s.is_none() {
            lines.push(format!(
                "(that is {RATE_SHARE} of what the slowest candidate can do)"
            ));
        }
        lines
    }

    /// Notes for the reader on the number of rounds.
    fn describe_limits(&self, known: &Known) -> Vec<String> {
        let mut lines = Vec::new();
        if known.rounds.is_none() && self.rounds < ROUNDS_DEFAULT {
            lines.push(format!(
                "fewer than the usual {ROUNDS_DEFAULT} rounds, to keep the time budget; small \
                 differences may stay undecided"
            ));
        }
        if let Some(floor) = self.missed_floor {
            lines.push(format!(
                "memory gets no verdict: a run has no time for the {floor} requests that it would take; a longer \
                 --time-budget has"
            ));
        }
        lines.extend(self.describe_unpinned(known));
        if self.rounds < self.rounds_min {
            lines.push(format!(
                "below {} rounds no difference between so many candidates can be called \
                 significant, however large",
                self.rounds_min
            ));
        }
        if self.over_budget {
            lines.push(
                "this is longer than the time budget allows: fewer candidates (--allocators, \
                 --pools) or a larger --time-budget help"
                    .to_owned(),
            );
        }
        lines
    }
}

/// The plural of an operation: methods have none.
fn plural(operation: &str) -> &str {
    match operation {
        "request" => "requests",
        method => method,
    }
}

// Time that the plan keeps back for what cannot be planned: slices that the machine disturbed are repeated, and
// what needs CPUs that are near each other waits for them.
//
// Each round adds its part. The time left by a quiet round serves a later one, or becomes more slices of it (`rounds`).
// Without a bound a noisy hour would make a comparison of five minutes last ten.

/// The rest of the reserved time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reserve {
    left: Duration,
}

impl Reserve {
    /// A round begins that keeps back `part`.
    pub(crate) fn add(&mut self, part: Duration) {
        self.left += part;
    }

    /// True if there is more than `kept`.
    pub(crate) fn exceeds(&self, kept: Duration) -> bool {
        self.left > kept
    }

    /// The time since `began` was not planned.
    pub(crate) fn spend_since(&mut self, began: Instant) {
        self.left = self.left.saturating_sub(began.elapsed());
    }
}

#[cfg(test)]
#[path = "tests/plan.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/reserve.rs"]
mod reserve_tests;
