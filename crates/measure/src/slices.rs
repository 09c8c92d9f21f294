//! From slices to the figures of a round: throughput and CPU time per request.
//!
//! Slices of one cycle follow each other at once, so a candidate is compared with the baseline's slice of the
//! same cycle: throughput is the mean of the cycles' log ratios, trimmed by a tenth at each end. CPU time per
//! request is a ratio of sums with nothing left out, since a pause that falls into one slice of twenty is part
//! of what an allocator costs.
//!
//! On a shared machine half of a core belongs to another user, and its state can change between two slices of a cycle.
//! It shows in the time of a system call on the CPU. Virtual CPUs are also moved: the time of a cache line from the
//! server's CPU to the generator's and back says how far apart they are, which moves throughput by half. All three are
//! measured around each slice, and no candidate has an influence on them. So both figures are adjusted for it, as in
//! any analysis of covariance: the slope comes from all slices of the comparison, each against the mean of its own
//! candidate and round, and every slice is moved along it to the mean state of its round.

use std::collections::BTreeMap;

use crate::record::{
    BlockCheck, CORE_DISTANCE_CHANGE_MIN, CandidateRounds, Measure, Operation, PacedColumns,
    Quantity, Role, RoundMeasures, RoundStatus, SliceColumns,
};
use crate::statistics::{
    Estimate, SIGNIFICANCE, hodges_lehmann, holm, sign_flip_p, signed_rank_interval,
    smallest_rounds,
};

/// The share of cycles that is left out at each end.
const TRIMMED_SHARE: f64 = 0.1;
/// Below this variance of its logarithm the state of a CPU has not changed, and has no slope.
const STATE_VARIANCE_MIN: f64 = 1e-4;
/// The part of its variance that a state has to have by itself, beside those solved before it.
const OWN_SHARE_MIN: f64 = 0.05;
/// A slope beyond this would say that a server slows down more than system calls do by themselves.
const SLOPE_MAX: f64 = 2.0;

/// Logarithms of what a system call took on the CPUs of server and generator, and a cache line between them.
type State = [f64; DIMENSIONS];
const DIMENSIONS: usize = 3;

/// Works out throughput and CPU time of every round that has slices, from those of all rounds together, and
/// checks them against uninterrupted blocks; then the percentiles of slices at the constant rate.
pub fn work_out(candidates: &mut [CandidateRounds]) {
    paced_work_out(candidates);
    for candidate in candidates.iter_mut() {
        candidate.block_checks.clear();
    }
    for operation in Operation::ALL {
        let fit = Fit::of(candidates, operation);
        let found: Vec<Vec<RoundFigures>> = candidates
            .iter()
            .map(|candidate| fit.figures(candidate))
            .collect();
        let checks = check(&found, operation);
        for ((candidate, figures), check) in candidates.iter_mut().zip(found).zip(checks) {
            let is_from_blocks = check.as_ref().is_some_and(|check| check.is_used);
            for one in &figures {
                one.note(candidate, operation, is_from_blocks);
            }
            candidate.block_checks.extend(check);
        }
    }
}

/// Throughput and CPU time per request, as logarithms: of a candidate's slices in one round, or of its block.
/// Unmeasured values are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    pub(crate) throughput: Option<f64>,
    pub(crate) cpu_ns: Option<f64>,
}

impl Figures {
    const SAME: Self = Self {
        throughput: Some(0.0),
        cpu_ns: Some(0.0),
    };

    /// How far these lie from `other`.
    fn relative_to(self, other: Self) -> Self {
        let difference = |one: Option<f64>, two: Option<f64>| Some(one? - two?);
        Self {
            throughput: difference(self.throughput, other.throughput),
            cpu_ns: difference(self.cpu_ns, other.cpu_ns),
        }
    }

    fn plus(self, other: Self) -> Self {
        let sum = |one: Option<f64>, two: Option<f64>| Some(one? + two?);
        Self {
            throughput: sum(self.throughput, other.throughput),
            cpu_ns: sum(self.cpu_ns, other.cpu_ns),
        }
    }
}

/// The figures of one candidate in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundFigures {
    pub(crate) round: u32,
    /// The baseline's slices and block.
    baseline: Figures,
    /// How far the candidate's slices and block lie from those of the baseline.
    together: Figures,
    /// How far the candidate's slices lie from those of the baseline.
    pub(crate) slices: Figures,
    /// How far its block lies from that of the baseline.
    pub(crate) block: Figures,
    /// Minor faults per request in the slices and in the block.
    pub(crate) minor_faults: (Option<f64>, Option<f64>),
    /// Calls of `madvise` likewise.
    pub(crate) madvise_calls: (Option<f64>, Option<f64>),
}

impl RoundFigures {
    /// How far the blocks' result lies from that of the slices.
    pub(crate) fn disagreement(&self) -> Figures {
        self.block.relative_to(self.slices)
    }

    /// Sets the figures of the round. A round without a block has none if they are to come from blocks.
    fn note(&self, candidate: &mut CandidateRounds, operation: Operation, is_from_blocks: bool) {
        let ratio = match is_from_blocks {
            true => self.block,
            false => self.together,
        };
        let figures = self.baseline.plus(ratio);
        let mut rounds = candidate.rounds.iter_mut();
        let Some(entry) = rounds.find(|entry| entry.round == self.round) else {
            return;
        };
        let pairs = [
            (Quantity::Throughput, figures.throughput),
            (Quantity::CpuTime, figures.cpu_ns),
        ];
        for (quantity, logarithm) in pairs {
            let measure = Measure::of(operation, quantity);
            match logarithm {
                Some(logarithm) => entry.set(measure, logarithm.exp()),
                None if is_from_blocks => drop(entry.measures.remove(&measure)),
                None => {}
            }
        }
    }
}

/// The slopes, and what ratios of one operation are against.
struct Fit<'a> {
    operation: Operation,
    rate: State,
    cpu: State,
    /// Of each round.
    means: BTreeMap<u32, State>,
    baseline: BTreeMap<u32, &'a RoundMeasures>,
}

impl<'a> Fit<'a> {
    fn of(candidates: &'a [CandidateRounds], operation: Operation) -> Self {
        let baseline = candidates
            .iter()
            .filter(|candidate| candidate.role == Role::Baseline)
            .flat_map(|candidate| rounds_of(candidate, operation))
            .map(|(entry, _)| (entry.round, entry));
        Self {
            operation,
            rate: slopes(candidates, operation, |slices, index| slices.per_s[index]),
            cpu: slopes(candidates, operation, |slices, index| slices.cpu_ns[index]),
            means: mean_states(candidates, operation),
            baseline: baseline.collect(),
        }
    }

    fn figures(&self, candidate: &CandidateRounds) -> Vec<RoundFigures> {
        let rounds = rounds_of(candidate, self.operation);
        rounds
            .map(|(entry, slices)| self.round(entry, slices))
            .collect()
    }

    fn round(&self, entry: &RoundMeasures, slices: &SliceColumns) -> RoundFigures {
        let key = self.operation.key();
        let mean = self.means.get(&entry.round).copied().unwrap_or_default();
        let rates =
            |columns: &SliceColumns| adjusted_logs(columns, &columns.per_s, &self.rate, &mean);
        let costs = |columns: &SliceColumns| {
            let logs = adjusted_logs(columns, &columns.cpu_ns, &self.cpu, &mean);
            mean_cost(columns, &logs).map(f64::ln)
        };
        let alone = |columns: &SliceColumns| Figures {
            throughput: trimmed_mean(rates(columns).values().copied().collect()),
            cpu_ns: costs(columns),
        };
        let block = |entry: &RoundMeasures| {
            entry
                .blocks
                .get(key)
                .filter(|one| one.is_whole())
                .map(alone)
        };
        let in_both = |of: fn(&SliceColumns) -> &[f64]| {
            let block = entry.blocks.get(key);
            let in_block = block.and_then(|block| mean_per_request(block, of));
            (mean_per_request(slices, of), in_block)
        };
        let others = self.baseline.get(&entry.round).copied();
        let pair = others.and_then(|other| Some((other, other.slices.get(key)?)));
        let ratio = |one: &SliceColumns, other: &SliceColumns| Figures {
            throughput: trimmed_mean(differences(&rates(one), &rates(other))),
            ..alone(one).relative_to(alone(other))
        };
        let (baseline, slices_only, together) = match pair {
            Some((entry_of_other, other)) => {
                let both = (
                    with_block(entry, slices, self.operation),
                    with_block(entry_of_other, other, self.operation),
                );
                (
                    alone(&both.1),
                    ratio(slices, other),
                    ratio(&both.0, &both.1),
                )
            }
            // Only its own level is known.
            None => (alone(slices), Figures::SAME, Figures::SAME),
        };
        let blocks = block(entry).zip(others.and_then(block));
        RoundFigures {
            round: entry.round,
            baseline,
            together,
            slices: slices_only,
            block: blocks.map_or_else(Figures::default, |(own, other)| own.relative_to(other)),
            minor_faults: in_both(|columns| &columns.minor_faults),
            madvise_calls: in_both(|columns| &columns.madvise_calls),
        }
    }
}

/// The rounds that count, with their slices.
fn rounds_of(
    candidate: &CandidateRounds,
    operation: Operation,
) -> impl Iterator<Item = (&RoundMeasures, &SliceColumns)> {
    rounds_with(candidate, move |entry| {
        let slices = entry.slices.get(operation.key())?;
        (slices.is_whole() && !slices.is_empty()).then_some(slices)
    })
}

/// The slices, and the block of their round as one more.
fn with_block(entry: &RoundMeasures, slices: &SliceColumns, operation: Operation) -> SliceColumns {
    match entry.blocks.get(operation.key()) {
        Some(block) if block.is_whole() => slices.followed_by(block),
        _ => slices.clone(),
    }
}

/// The rounds that did not fail and that have what `of` finds in them.
pub(crate) fn rounds_with<'a, T: 'a>(
    candidate: &'a CandidateRounds,
    of: impl Fn(&'a RoundMeasures) -> Option<T> + 'a,
) -> impl Iterator<Item = (&'a RoundMeasures, T)> {
    candidate.rounds.iter().filter_map(move |entry| {
        let has_failed = matches!(entry.status, RoundStatus::Failed { .. });
        if has_failed {
            return None;
        }
        Some((entry, of(entry)?))
    })
}

fn state(slices: &SliceColumns, index: usize) -> State {
    let columns = [
        &slices.server_call_ns,
        &slices.generator_call_ns,
        &slices.core_distance_ns,
    ];
    columns.map(|column| {
        // Unmeasured values do not vary.
        Some(column[index])
            .filter(|&ns| ns > 0.0)
            .map_or(0.0, f64::ln)
    })
}

/// The mean state of each round, over the slices of all candidates.
fn mean_states(candidates: &[CandidateRounds], operation: Operation) -> BTreeMap<u32, State> {
    let mut sums: BTreeMap<u32, (State, f64)> = BTreeMap::new();
    for (entry, slices) in candidates.iter().flat_map(|one| rounds_of(one, operation)) {
        let (sum, count) = sums.entry(entry.round).or_default();
        for index in 0..slices.len() {
            let state = state(slices, index);
            (0..DIMENSIONS).for_each(|one| sum[one] += state[one]);
            *count += 1.0;
        }
    }
    let means = sums.into_iter();
    means
        .map(|(round, (sum, count))| (round, sum.map(|total| total / count)))
        .collect()
}

/// A state and the logarithm of a value that was measured in it.
type Point = (State, f64);

/// How much the logarithm of a value changes with the state, by least squares over all slices and blocks, each as the
/// difference from their mean of its candidate in its round. What a candidate has one of in a round, as of long slices of
/// writes, is taken as the difference from the mean of all its rounds like that.
fn slopes(
    candidates: &[CandidateRounds],
    operation: Operation,
    value: impl Fn(&SliceColumns, usize) -> f64,
) -> State {
    let mut sums = Sums::default();
    for candidate in candidates {
        let mut single = Vec::new();
        for (entry, slices) in rounds_of(candidate, operation) {
            let slices = with_block(entry, slices, operation);
            let points: Vec<Point> = (0..slices.len())
                .filter(|&index| value(&slices, index) > 0.0)
                .map(|index| (state(&slices, index), value(&slices, index).ln()))
                .collect();
            match points.len() {
                1 => single.extend(points),
                _ => sums.add(&points),
            }
        }
        sums.add(&single);
    }
    solve(sums.squares, sums.products, STATE_VARIANCE_MIN * sums.count)
}

/// The sums for least squares.
#[derive(Default)]
struct Sums {
    squares: [[f64; DIMENSIONS]; DIMENSIONS],
    products: [f64; DIMENSIONS],
    count: f64,
}

impl Sums {
    /// Points that have their mean in common.
    fn add(&mut self, points: &[Point]) {
        if points.is_empty() {
            return;
        }
        let share = 1.0 / points.len() as f64;
        let mean = |of: &dyn Fn(&Point) -> f64| points.iter().map(of).sum::<f64>() * share;
        let mut means = [0.0; DIMENSIONS];
        (0..DIMENSIONS).for_each(|one| means[one] = mean(&|point| point.0[one]));
        let mean_value = mean(&|point| point.1);
        for (state, value) in points {
            let mut x = *state;
            (0..DIMENSIONS).for_each(|one| x[one] -= means[one]);
            for row in 0..DIMENSIONS {
                (0..DIMENSIONS).for_each(|column| self.squares[row][column] += x[row] * x[column]);
                self.products[row] += x[row] * (value - mean_value);
            }
        }
        self.count += points.len() as f64;
    }
}

/// The slopes, by elimination. What did not vary has none, nor has what cannot be distinguished from what was
/// solved before it; the one that varies most comes first.
fn solve(mut squares: [[f64; DIMENSIONS]; DIMENSIONS], mut products: State, least: f64) -> State {
    let whole: State = std::array::from_fn(|one| squares[one][one]);
    let mut order: [usize; DIMENSIONS] = std::array::from_fn(|one| one);
    order.sort_by(|&one, &other| whole[other].total_cmp(&whole[one]));
    let mut solved: Vec<usize> = Vec::with_capacity(DIMENSIONS);
    for pivot in order {
        let own = squares[pivot][pivot];
        if whole[pivot] <= least || own <= OWN_SHARE_MIN * whole[pivot] {
            continue;
        }
        for row in (0..DIMENSIONS).filter(|&row| row != pivot) {
            let factor = squares[row][pivot] / own;
            let of_pivot = squares[pivot];
            for (value, of_pivot) in squares[row].iter_mut().zip(of_pivot) {
                *value -= factor * of_pivot;
            }
            products[row] -= factor * products[pivot];
        }
        solved.push(pivot);
    }
    let mut slopes = [0.0; DIMENSIONS];
    for one in solved {
        slopes[one] = (products[one] / squares[one][one]).clamp(-SLOPE_MAX, SLOPE_MAX);
    }
    slopes
}

/// Logarithms by cycle, as they would have been in the mean state.
fn adjusted_logs(
    slices: &SliceColumns,
    values: &[f64],
    slopes: &State,
    mean: &State,
) -> BTreeMap<u32, f64> {
    // Unmeasured values have no logarithm.
    let measured = values.iter().enumerate().filter(|(_, value)| **value > 0.0);
    let adjusted = measured.map(|(index, value)| {
        let state = state(slices, index);
        let shift: f64 = (0..DIMENSIONS)
            .map(|one| slopes[one] * (state[one] - mean[one]))
            .sum();
        (slices.cycle[index], value.ln() - shift)
    });
    adjusted.collect()
}

/// How far the candidate's cycles lie from those of the baseline.
pub(crate) fn differences(rates: &BTreeMap<u32, f64>, baseline: &BTreeMap<u32, f64>) -> Vec<f64> {
    let common = rates
        .iter()
        .filter_map(|(cycle, rate)| Some(rate - baseline.get(cycle)?));
    common.collect()
}

/// The mean cost of a request, weighted by requests.
fn mean_cost(slices: &SliceColumns, costs: &BTreeMap<u32, f64>) -> Option<f64> {
    let (mut sum, mut requests) = (0.0, 0.0);
    for (cycle, count) in slices.cycle.iter().zip(&slices.requests) {
        if let Some(cost) = costs.get(cycle) {
            let weight = *count as f64;
            sum += cost.exp() * weight;
            requests += weight;
        }
    }
    (requests > 0.0).then(|| sum / requests)
}

/// The value of `of` per request, weighted by requests; `None` of nothing.
fn mean_per_request(slices: &SliceColumns, of: fn(&SliceColumns) -> &[f64]) -> Option<f64> {
    let requests: u64 = slices.requests.iter().sum();
    let values = of(slices);
    let pairs = values.iter().zip(&slices.requests);
    let sum: f64 = pairs.map(|(each, &count)| each * count as f64).sum();
    let is_known = requests > 0 && slices.is_whole() && !values.is_empty();
    is_known.then(|| sum / requests as f64)
}

/// The mean without the highest and the lowest tenth, one each at least where that leaves something; `None` of
/// nothing.
pub(crate) fn trimmed_mean(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let least = usize::from(values.len() > 2);
    let cut = ((values.len() as f64 * TRIMMED_SHARE) as usize).max(least);
    let kept = values.get(cut..values.len() - cut)?;
    (!kept.is_empty()).then(|| kept.iter().sum::<f64>() / kept.len() as f64)
}

// From slices at the constant rate to the percentiles of a round.
//
// The 99th percentile is that of all responses of a round together: a pause that falls into one slice of several
// belongs to a server's p99, and a mean or a median of slices' own would hide it. The median is compared within cycles,
// whose slices follow each other at once and, as far as the lab can measure, at one distance of the CPUs of server and
// generator: a round's ratio is the mean of the cycles' log ratios, trimmed by a tenth at each end and by one value at
// least. Where responses come in two groups, the median of all together jumps from one to the other.
//
// While the CPUs are far apart, a p99 is several times as large and varies by several times from slice to slice. No
// candidate causes that, so where enough rounds have cycles measured near, only those count.

/// With fewer responses in a slice, the median is that of all slices together.
const ANSWERS_MIN: u64 = 40;

/// The medians, and where each is in the columns.
type Median = (Quantity, fn(&PacedColumns) -> &Vec<u64>);
const MEDIANS: [Median; 2] = [
    (Quantity::ResponseP50, |columns| &columns.p50_ns),
    (Quantity::ServiceP50, |columns| &columns.service_p50_ns),
];
const TAILS: [Quantity; 2] = [Quantity::ResponseP99, Quantity::ServiceP99];

/// Works out the medians of every round that has slices at the constant rate, from those of the baseline and the
/// cycles that both have, and takes the percentiles away from rounds that do not count.
pub(crate) fn paced_work_out(candidates: &mut [CandidateRounds]) {
    let others = candidates.len().saturating_sub(1);
    for operation in Operation::ALL {
        let baseline = candidates.iter().find(|one| one.role == Role::Baseline);
        let baseline: BTreeMap<u32, PacedColumns> = baseline
            .into_iter()
            .flat_map(|one| columns_of(one, operation))
            .map(|(entry, columns)| (entry.round, columns.clone()))
            .collect();
        let chosen = choose(&baseline, smallest_rounds(others));
        // Decided for all at once: a median of single slices is not to be compared with one of all together.
        let fewest = candidates
            .iter()
            .flat_map(|one| columns_of(one, operation))
            .flat_map(|(_, columns)| &columns.requests)
            .min();
        let is_enough = fewest.is_some_and(|&fewest| fewest >= ANSWERS_MIN);
        for candidate in candidates.iter_mut() {
            for entry in &mut candidate.rounds {
                let pair = baseline.get(&entry.round).zip(chosen.get(&entry.round));
                if let Some((baseline, cycles)) = pair {
                    note_medians(entry, operation, is_enough, baseline, cycles);
                }
            }
        }
    }
}

/// The rounds that count, with their slices.
fn columns_of(
    candidate: &CandidateRounds,
    operation: Operation,
) -> impl Iterator<Item = (&RoundMeasures, &PacedColumns)> {
    rounds_with(candidate, move |entry| {
        let columns = entry.paced.get(operation.key())?;
        columns.is_whole().then_some(columns)
    })
}

/// The cycles that count, by round: those measured near if `rounds_min` rounds have one, else all.
fn choose(baseline: &BTreeMap<u32, PacedColumns>, rounds_min: usize) -> BTreeMap<u32, Vec<u32>> {
    let distances = baseline
        .values()
        .flat_map(|columns| &columns.core_distance_ns);
    let known = distances.copied().filter(|&ns| ns > 0.0);
    let nearest = known.reduce(f64::min);
    let is_near = |ns: f64| match nearest {
        Some(nearest) if ns > 0.0 => (ns / nearest).ln() <= CORE_DISTANCE_CHANGE_MIN,
        _ => true,
    };
    let near: BTreeMap<u32, Vec<u32>> = baseline
        .iter()
        .map(|(&round, columns)| {
            let all = columns.cycle.iter().zip(&columns.core_distance_ns);
            let near = all.filter(|&(_, &ns)| is_near(ns));
            (round, near.map(|(&cycle, _)| cycle).collect())
        })
        .collect();
    if near.values().filter(|cycles| !cycles.is_empty()).count() >= rounds_min {
        return near;
    }
    let all = baseline.iter();
    all.map(|(&round, columns)| (round, columns.cycle.clone()))
        .collect()
}

/// Sets the medians of a round; where none of its cycles counts, it has no percentiles.
fn note_medians(
    entry: &mut RoundMeasures,
    operation: Operation,
    is_enough: bool,
    baseline: &PacedColumns,
    cycles: &[u32],
) {
    let own = entry.paced.get(operation.key());
    let Some(own) = own.filter(|own| own.is_whole()).cloned() else {
        return;
    };
    if cycles.is_empty() {
        let medians = MEDIANS.into_iter().map(|(quantity, _)| quantity);
        for quantity in medians.chain(TAILS) {
            entry.measures.remove(&Measure::of(operation, quantity));
        }
        return;
    }
    for (quantity, of) in MEDIANS {
        let by_cycle = |columns: &PacedColumns| -> BTreeMap<u32, f64> {
            let all = columns.cycle.iter().zip(of(columns));
            let counted = all.filter(|&(cycle, &ns)| cycles.contains(cycle) && ns > 0);
            counted
                .map(|(&cycle, &ns)| (cycle, (ns as f64).ln()))
                .collect()
        };
        let of_baseline = by_cycle(baseline);
        let ratio = trimmed_mean(differences(&by_cycle(&own), &of_baseline));
        let level = trimmed_mean(of_baseline.into_values().collect());
        let measure = Measure::of(operation, quantity);
        if let Some((ratio, level)) = ratio.zip(level)
            && is_enough
            && entry.measures.contains_key(&measure)
        {
            entry.set(measure, (level + ratio).exp());
        }
    }
}

// Whether slices show what uninterrupted blocks show.
//
// While one candidate is measured in slices the others stand still, but the clock runs on: what a server or an
// allocator does every second of it comes several times as often per unit of work. So each round has one block
// of each candidate beside the slices, several times as long and uninterrupted. Per round the candidate's ratio
// to the baseline in blocks is divided by its ratio in slices; if that differs from 1 (exact sign-flip test,
// Holm over all candidates and both measures of an operation, 5 %), the candidate's figures come from blocks
// alone; else the block counts as one more slice.
// Minor faults and calls of `madvise` per request are noted for both; nothing is decided by them.

/// Fewer rounds have no interval of 95 %.
const ROUNDS_MIN: usize = 6;
const CONFIDENCE: f64 = 1.0 - SIGNIFICANCE;

/// One check for each candidate, whose figures by round are in `found`; `None` for one that has no block beside
/// the baseline's, and for the baseline, which does not differ from itself.
pub(crate) fn check(found: &[Vec<RoundFigures>], operation: Operation) -> Vec<Option<BlockCheck>> {
    let differences: Vec<[Vec<f64>; 2]> =
        found.iter().map(|rounds| disagreements(rounds)).collect();
    let varies = |values: &Vec<f64>| values.iter().any(|&value| value != 0.0);
    let tested = |values: &Vec<f64>| values.len() >= ROUNDS_MIN && varies(values);
    let all = || differences.iter().flatten();
    let p_values: Vec<f64> = all()
        .filter(|values| tested(values))
        .map(|values| sign_flip_p(values))
        .collect();
    let mut adjusted = holm(&p_values).into_iter();
    let differs: Vec<bool> = all()
        .map(|values| {
            tested(values)
                && adjusted.next().is_some_and(|p| p <= SIGNIFICANCE)
                && signed_rank_interval(values, CONFIDENCE)
                    .is_some_and(|interval| !interval.contains(0.0))
        })
        .collect();
    let pairs = found.iter().zip(&differences).zip(differs.chunks(2));
    pairs
        .map(|((rounds, differences), differs)| {
            let [throughput, cpu_time] = differences;
            if !varies(throughput) && !varies(cpu_time) {
                return None;
            }
            let mean_of = |of: fn(&RoundFigures) -> Option<f64>| {
                let values: Vec<f64> = rounds.iter().filter_map(of).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            Some(BlockCheck {
                operation,
                rounds: u32::try_from(throughput.len()).unwrap_or(u32::MAX),
                throughput: estimate(throughput),
                cpu_time: estimate(cpu_time),
                minor_faults_in_slices: mean_of(|one| one.minor_faults.0),
                minor_faults_in_blocks: mean_of(|one| one.minor_faults.1),
                madvise_calls_in_slices: mean_of(|one| one.madvise_calls.0),
                madvise_calls_in_blocks: mean_of(|one| one.madvise_calls.1),
                is_used: differs.contains(&true),
            })
        })
        .collect()
}

/// For the list of warnings: whose figures come from blocks, and why.
pub(crate) fn warnings(candidates: &[CandidateRounds]) -> Vec<String> {
    let used = candidates.iter().flat_map(|one| {
        let checks = one.block_checks.iter().filter(|check| check.is_used);
        checks.map(move |check| (&one.name, check))
    });
    used.map(|(name, check)| {
        let figures = check.throughput.map_or_else(String::new, |found| {
            format!(
                ": against the baseline it does {:.3}x [{:.3}, {:.3}] of what slices show",
                found.ratio, found.low, found.high
            )
        });
        format!(
            "{name}: {} throughput and CPU time come from uninterrupted blocks, since slices differ from \
             them{figures}",
            check.operation.label()
        )
    })
    .collect()
}

/// Of throughput and of CPU time, by round.
fn disagreements(rounds: &[RoundFigures]) -> [Vec<f64>; 2] {
    let each = || rounds.iter().map(RoundFigures::disagreement);
    [
        each().filter_map(|one| one.throughput).collect(),
        each().filter_map(|one| one.cpu_ns).collect(),
    ]
}

/// `None` of too few rounds.
fn estimate(differences: &[f64]) -> Option<Estimate> {
    if differences.len() < ROUNDS_MIN {
        return None;
    }
    let interval = signed_rank_interval(differences, CONFIDENCE)?;
    Some(Estimate {
        ratio: hodges_lehmann(differences)?.exp(),
        low: interval.low.exp(),
        high: interval.high.exp(),
    })
}

#[cfg(test)]
#[path = "tests/slices.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/paced.rs"]
mod paced_tests;

#[cfg(test)]
#[path = "tests/blocks.rs"]
mod blocks_tests;
