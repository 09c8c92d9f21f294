//! How far memory falls after a burst, how soon, and whether it grows from burst to burst.
//!
//! [`floor_after`] reads one burst of one run, [`growth_per_cycle`] the floors of one run. The combined result of a
//! candidate's runs is a Hodges-Lehmann estimate with its exact signed-rank interval ([`of_all`]): samples and cycles
//! of one run depend on each other, runs do not.

use crate::record::{
    CandidateRounds, Floor, GrowthCause, Held, Holder, Measure, MemoryParts, Operation, PhaseHeap,
    PhasePlan, PhasesAnswer, Quantity, Role, RoundMeasures, RoundStatus, RoundsEstimate,
};
use crate::series::Series;
use crate::statistics::{hodges_lehmann, median, signed_rank_interval};
use crate::units::{format_bytes, format_duration_ns, format_percent};

const CONFIDENCE: f64 = 0.95;
/// Fewer samples after a burst show no floor.
const SAMPLES_MIN: usize = 2;
/// The floor is reached where this share of the fall is left, but at least this many bytes.
const LEFT_SHARE: f64 = 0.02;
const LEFT_BYTES_MIN: f64 = 128.0 * 1024.0;
/// Memory is sampled as often as this at most.
const AT_ONCE_NS: f64 = 100e6;
/// A smaller share of a burst's peak is nothing that came back.
const FALL_SHARE_MIN: f64 = 0.02;
/// A floor that is reached in the last part of its time may not be the last one.
const LATE_SHARE: f64 = 0.9;
/// Growth per cycle below this share of the floor is none for operators of a service.
const GROWTH_SHARE_MIN: f64 = 0.002;
/// From this share on growth is attributed to one cause.
const CAUSE_SHARE_MIN: f64 = 0.5;

/// The course of a burst's memory from `burst_ns.0` to `burst_ns.1`, until `until_ns`; `None` with too few samples.
#[must_use]
pub fn floor_after(
    memory: &Series,
    cycle: u32,
    burst_ns: (u64, u64),
    until_ns: u64,
) -> Option<Floor> {
    let (from_ns, end_ns) = burst_ns;
    let within = |from_ns: u64, to_ns: u64| -> Vec<(u64, f64)> {
        let points = memory.points.iter();
        points
            .filter(|point| (from_ns..=to_ns).contains(&point.at_ns))
            .map(|point| (point.at_ns, point.value))
            .collect()
    };
    let after = smoothed(&within(end_ns, until_ns));
    if after.len() < SAMPLES_MIN {
        return None;
    }
    let burst_end = memory.value_at(end_ns)?;
    let in_burst = within(from_ns, end_ns).into_iter().map(|(_, bytes)| bytes);
    let peak = in_burst.fold(burst_end, f64::max);
    let floor = after.iter().map(|&(_, bytes)| bytes).reduce(f64::min)?;
    let fall = peak - floor;
    let has_fallen = fall > LEFT_BYTES_MIN && fall > peak * FALL_SHARE_MIN;
    let level = floor + (fall * LEFT_SHARE).max(LEFT_BYTES_MIN);
    let reached = after.iter().find(|&&(_, bytes)| bytes <= level);
    let reached_ns = reached
        .map(|&(at_ns, _)| at_ns.saturating_sub(end_ns))
        .filter(|_| has_fallen);
    let late_ns = (until_ns.saturating_sub(end_ns)) as f64 * LATE_SHARE;
    Some(Floor {
        cycle,
        peak_bytes: peak as u64,
        burst_end_bytes: burst_end as u64,
        floor_bytes: floor as u64,
        reached_ns,
        is_falling: reached_ns.is_some_and(|reached_ns| reached_ns as f64 > late_ns),
    })
}

/// Each sample's median with its neighbours: a single one that was read between two steps of the server is no level.
fn smoothed(points: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let value = |index: usize| points.get(index).map(|&(_, value)| value);
    let of = |(index, &(at_ns, own)): (usize, &(u64, f64))| {
        let before = index.checked_sub(1).and_then(value).unwrap_or(own);
        let mut three = [before, own, value(index + 1).unwrap_or(own)];
        (at_ns, median(&mut three).unwrap_or(own))
    };
    points.iter().enumerate().map(of).collect()
}

/// Growth of the floor per cycle in one run: the median of the slopes between all pairs of cycles (Theil 1950, Sen 1968).
/// The first cycle fills what is filled once, and is left out where there are three or more.
#[must_use]
pub fn growth_per_cycle(floors: &[Floor]) -> Option<f64> {
    let counted = match floors.len() {
        0..=2 => floors,
        _ => &floors[1..],
    };
    let mut slopes = Vec::new();
    for (index, early) in counted.iter().enumerate() {
        slopes.extend(counted.iter().skip(index + 1).map(|late| {
            let cycles = f64::from(late.cycle) - f64::from(early.cycle);
            (late.floor_bytes as f64 - early.floor_bytes as f64) / cycles
        }));
    }
    slopes.retain(|slope| slope.is_finite());
    median(&mut slopes)
}

/// The measures that floors give.
#[must_use]
pub fn measures_of(floors: &[Floor]) -> Vec<(Measure, f64)> {
    let mut values: Vec<f64> = floors.iter().map(|one| one.floor_bytes as f64).collect();
    let mut times: Vec<f64> = floors
        .iter()
        .filter_map(|one| Some(one.reached_ns? as f64))
        .collect();
    // Where most bursts gave nothing back there is no meaningful time.
    let has_time = times.len() * 2 > floors.len();
    let of = |quantity, value: Option<f64>| Some((Measure::whole(quantity), value?));
    [
        of(Quantity::FloorAfterBurst, median(&mut values)),
        of(
            Quantity::TimeToFloor,
            median(&mut times).filter(|_| has_time),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The phases' results of every candidate, the baseline's double left out.
#[must_use]
pub fn of_all(candidates: &[CandidateRounds], plan: &PhasePlan) -> Vec<PhasesAnswer> {
    let once = candidates
        .iter()
        .filter(|one| one.role != Role::BaselineAgain);
    once.filter_map(|one| of_one(one, plan)).collect()
}

fn of_one(candidate: &CandidateRounds, plan: &PhasePlan) -> Option<PhasesAnswer> {
    let rounds: Vec<&RoundMeasures> = candidate
        .rounds
        .iter()
        .filter(|round| round.status == RoundStatus::Done && !round.phase_ends.is_empty())
        .collect();
    if rounds.is_empty() {
        return None;
    }
    let of_rounds = |value: &dyn Fn(&RoundMeasures) -> Option<f64>| {
        estimate(rounds.iter().filter_map(|round| value(round)).collect())
    };
    let over_cycles = |value: &dyn Fn(&Floor) -> Option<f64>| {
        of_rounds(&|round| {
            let mut all: Vec<f64> = round.floors.iter().filter_map(value).collect();
            median(&mut all)
        })
    };
    let end_of = |place: usize| {
        of_rounds(&|round| {
            let ends = round.phase_ends.iter();
            let mut all: Vec<f64> = ends
                .filter(|end| end.place as usize == place)
                .map(|end| end.memory_bytes as f64)
                .collect();
            median(&mut all)
        })
    };
    let parts_of = |place: usize| {
        let ends = rounds.iter().flat_map(|round| &round.phase_ends);
        let ends = ends.filter(|end| end.place as usize == place);
        MemoryParts::medians(&ends.map(|end| end.parts).collect::<Vec<_>>())
    };
    let floors = || rounds.iter().flat_map(|round| &round.floors);
    let falling = floors().filter(|floor| floor.is_falling).count();
    let mut answer = PhasesAnswer {
        candidate: candidate.name.clone(),
        ends_bytes: (0..plan.phases.len()).map(end_of).collect(),
        ends_parts: (0..plan.phases.len()).map(parts_of).collect(),
        peak_bytes: over_cycles(&|floor| Some(floor.peak_bytes as f64)),
        floor_bytes: over_cycles(&|floor| Some(floor.floor_bytes as f64)),
        reached_ns: of_rounds(&|round| round.get(Measure::whole(Quantity::TimeToFloor))),
        falling_share: falling as f64 / floors().count().max(1) as f64,
        growth_bytes: of_rounds(&|round| growth_per_cycle(&round.floors)),
        aged_cpu_ratio: aged_cpu(&rounds),
        ..PhasesAnswer::default()
    };
    let heap = HeapGrowth::of(&candidate.phase_heaps);
    answer.cause = cause(&answer, heap.as_ref());
    answer.live_bytes = heap.as_ref().and_then(|heap| heap.live_bytes);
    answer.malloc_bytes = heap.as_ref().map(|heap| heap.malloc_bytes);
    answer.sentence = sentence(&answer);
    answer.heap_sentence = heap.map_or_else(String::new, |heap| heap_sentence(&answer, &heap));
    Some(answer)
}

/// CPU time per request of an aged heap against that of a fresh one, estimated from logarithms, so that a ratio and its
/// inverse weigh the same.
fn aged_cpu(rounds: &[&RoundMeasures]) -> Option<RoundsEstimate> {
    let ratios = Operation::ALL.map(|operation| {
        let measure = Measure::of(operation, Quantity::AgedCpu);
        let ratios = rounds.iter().filter_map(|round| round.get(measure));
        ratios
            .filter(|ratio| *ratio > 0.0)
            .map(f64::ln)
            .collect::<Vec<_>>()
    });
    let logarithms = ratios.into_iter().find(|all| !all.is_empty())?;
    let found = estimate(logarithms)?;
    Some(RoundsEstimate {
        value: found.value.exp(),
        low: found.low.exp(),
        high: found.high.exp(),
        ..found
    })
}

fn estimate(values: Vec<f64>) -> Option<RoundsEstimate> {
    let values: Vec<f64> = values.into_iter().filter(|it| it.is_finite()).collect();
    let interval = signed_rank_interval(&values, CONFIDENCE)?;
    Some(RoundsEstimate {
        value: hodges_lehmann(&values)?,
        low: interval.low,
        high: interval.high,
        confidence: interval.confidence,
        rounds: u32::try_from(values.len()).unwrap_or(u32::MAX),
    })
}

/// The memory that malloc held of blocks that the program had freed, at the end of the traced run's last cycle.
pub(crate) fn retained_bytes(candidate: &CandidateRounds) -> Option<u64> {
    let heap = HeapGrowth::of(&candidate.phase_heaps)?;
    Some(heap.malloc_bytes.saturating_sub(heap.live_bytes?))
}

/// The traced run's memory at the end of its last cycle, and how it came there.
struct HeapGrowth {
    live_bytes: Option<u64>,
    malloc_bytes: u64,
    /// Per cycle.
    live_growth: Option<f64>,
    malloc_growth: f64,
    /// Of all others, the one that grew most first.
    others: Vec<(Holder, f64)>,
}

impl HeapGrowth {
    /// `None` of no cycle. The first one fills what is filled once, and is left out where there are three or more.
    fn of(heaps: &[PhaseHeap]) -> Option<Self> {
        let last = heaps.last()?;
        let first = heaps.get(usize::from(heaps.len() > 2))?;
        let cycles = f64::from(last.cycle.saturating_sub(first.cycle)).max(1.0);
        let malloc = |heap: &PhaseHeap| held_by(heap, &Holder::Malloc);
        let per_cycle = |then: u64, now: u64| (now as f64 - then as f64) / cycles;
        let others = last
            .held
            .iter()
            .filter(|held| held.holder != Holder::Malloc);
        let mut others: Vec<(Holder, f64)> = others
            .map(|Held { holder, bytes }| {
                let growth = per_cycle(held_by(first, holder), *bytes);
                (holder.clone(), growth)
            })
            .collect();
        others.sort_by(|a, b| b.1.total_cmp(&a.1));
        Some(Self {
            live_bytes: last.live_bytes,
            malloc_bytes: malloc(last),
            live_growth: first
                .live_bytes
                .zip(last.live_bytes)
                .map(|(then, now)| per_cycle(then, now)),
            malloc_growth: per_cycle(malloc(first), malloc(last)),
            others,
        })
    }

    fn total(&self) -> f64 {
        let others: f64 = self.others.iter().map(|(_, growth)| growth.max(0.0)).sum();
        self.malloc_growth.max(0.0) + others
    }
}

fn held_by(heap: &PhaseHeap, holder: &Holder) -> u64 {
    let held = heap.held.iter().filter(|held| held.holder == *holder);
    held.map(|held| held.bytes).sum()
}

/// Whether the floor grows from cycle to cycle, by more than a negligible amount.
fn grows(answer: &PhasesAnswer) -> bool {
    let floor = answer.floor_bytes.map_or(0.0, |floor| floor.value);
    answer.growth_bytes.is_some_and(|growth| {
        growth.confidence >= CONFIDENCE
            && growth.low > 0.0
            && growth.value > floor * GROWTH_SHARE_MIN
    })
}

fn cause(answer: &PhasesAnswer, heap: Option<&HeapGrowth>) -> GrowthCause {
    if !grows(answer) {
        return GrowthCause::None;
    }
    let Some(heap) = heap.filter(|heap| heap.total() > 0.0) else {
        return GrowthCause::Unknown;
    };
    let total = heap.total();
    let is_most = |growth: f64| growth >= total * CAUSE_SHARE_MIN;
    match heap.live_growth {
        Some(live) if is_most(live) => GrowthCause::Live,
        _ if !is_most(heap.malloc_growth) => GrowthCause::Elsewhere,
        Some(_) => GrowthCause::Retained,
        None => GrowthCause::Unknown,
    }
}

/// `42.1 MiB [41.0, 43.2]`.
fn bytes_text(estimate: RoundsEstimate) -> String {
    let RoundsEstimate {
        value, low, high, ..
    } = estimate;
    let [value, low, high] = [value, low, high].map(format_bytes);
    format!("{value} [{low}, {high}]")
}

fn sentence(answer: &PhasesAnswer) -> String {
    let name = &answer.candidate;
    let aged = aged_text(answer);
    let Some(floor) = answer.floor_bytes else {
        return match aged {
            Some(aged) => format!("{name}: {aged}."),
            None => format!("{name}: too few samples after the bursts."),
        };
    };
    let mut text = format!("{name}: ");
    let peak = answer.peak_bytes.map_or(0.0, |peak| peak.value);
    let time = answer.reached_ns.map(|reached| {
        if reached.high < AT_ONCE_NS {
            return "at once".to_owned();
        }
        let [value, low, high] = [reached.value, reached.low, reached.high].map(format_duration_ns);
        format!("in {value} [{low}, {high}]")
    });
    match time {
        Some(time) => {
            text += &format!(
                "falls from {} to {} {time}",
                format_bytes(peak),
                bytes_text(floor)
            );
            if answer.falling_share > 0.5 {
                text += " and was still falling when the cycle ended";
            }
        }
        None => {
            text += &format!(
                "keeps {} of the {} of a burst",
                bytes_text(floor),
                format_bytes(peak)
            );
        }
    }
    text += &growth_text(answer);
    let aged = aged.map_or_else(String::new, |aged| format!("; {aged}"));
    text + &aged + "."
}

/// The effect of age on CPU time, if the heap was aged.
fn aged_text(answer: &PhasesAnswer) -> Option<String> {
    let ratio = answer.aged_cpu_ratio?;
    let RoundsEstimate {
        value, low, high, ..
    } = ratio;
    let interval = format!("{value:.3} times [{low:.3}, {high:.3}] that before");
    Some(if ratio.confidence < CONFIDENCE {
        format!(
            "CPU per request on the aged heap is {value:.3} times that before, of too few rounds to tell from noise"
        )
    } else if low > 1.0 {
        format!("an aged heap costs it: CPU per request is {interval}")
    } else if high < 1.0 {
        format!("on the aged heap it needs less CPU per request: {interval}")
    } else {
        format!("age costs it no significant CPU: CPU per request is {interval}")
    })
}

fn growth_text(answer: &PhasesAnswer) -> String {
    let Some(growth) = answer.growth_bytes else {
        return String::new();
    };
    if growth.confidence < CONFIDENCE {
        let rounds = match growth.rounds {
            1 => "1 round is".to_owned(),
            rounds => format!("{rounds} rounds are"),
        };
        return format!("; {rounds} too few to say whether it grows from cycle to cycle");
    }
    if grows(answer) {
        return format!("; it grows by {} with every cycle", bytes_text(growth));
    }
    match growth.high < 0.0 {
        true => "; from cycle to cycle it does not grow".to_owned(),
        false => format!(
            "; from cycle to cycle it does not grow (less than {})",
            format_bytes(growth.high.max(LEFT_BYTES_MIN))
        ),
    }
}

/// Leak, retained, or live?
fn heap_sentence(answer: &PhasesAnswer, heap: &HeapGrowth) -> String {
    let name = &answer.candidate;
    let level = match heap.live_bytes {
        Some(live) => {
            let retained = heap.malloc_bytes.saturating_sub(live);
            let share = retained as f64 / heap.malloc_bytes.max(1) as f64;
            format!(
                "after the last cycle malloc holds {}: {} that the program uses (live), {} ({}) that it has given \
                 back (retained)",
                format_bytes(heap.malloc_bytes as f64),
                format_bytes(live as f64),
                format_bytes(retained as f64),
                format_percent(share)
            )
        }
        None => format!(
            "after the last cycle malloc holds {}; too few of its blocks were sampled to say how much of it lives",
            format_bytes(heap.malloc_bytes as f64)
        ),
    };
    let growth = match answer.cause {
        GrowthCause::None => String::new(),
        GrowthCause::Live => format!(
            "; the growth is the program's: live bytes grow by {} with every cycle, no allocator gives that back",
            format_bytes(heap.live_growth.unwrap_or(0.0).max(0.0))
        ),
        GrowthCause::Retained => format!(
            "; the growth is the allocator's: the program gives its memory back (live bytes {}), and malloc keeps {} \
             more with every cycle",
            match heap.live_growth {
                Some(live) if live > 0.0 => format!("grow by {}", format_bytes(live)),
                _ => "do not grow".to_owned(),
            },
            format_bytes(heap.malloc_growth.max(0.0))
        ),
        GrowthCause::Elsewhere => {
            let first = heap.others.first();
            let (whose, bytes) = first.map_or(("unknown".to_owned(), 0.0), |(holder, bytes)| {
                (holder.label(), *bytes)
            });
            format!(
                "; the growth is not malloc's: {whose} grows by {} with every cycle",
                format_bytes(bytes.max(0.0))
            )
        }
        GrowthCause::Unknown => "; the traced run does not show where the growth is".to_owned(),
    };
    format!("{name}: {level}{growth}.")
}

#[cfg(test)]
#[path = "tests/phases.rs"]
mod tests;
