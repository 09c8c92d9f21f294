//! One generation of phases (`--phases`): every candidate is started once and goes through all cycles.
//!
//! ```text
//! start each, in the round's order; warm up
//! per cycle, each in turn: its phases under load -> memory at their ends; then its idle phase
//! wait for the last idle phases; stop each
//! ```
//!
//! Only one candidate is under load at a time. Meanwhile the others are idle and keep running, because some allocators
//! return memory by threads of their own; so the wait between the idle phase of a cycle and the next cycle grows with
//! the number of candidates, is the same for all, and counts nowhere. Memory is sampled all along, but for a
//! candidate's own steady phases: reading it holds a lock of its address space, which would be in its p99.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use millpond_measure::phases::{floor_after, measures_of};
use millpond_measure::record::{
    CoursePhase, Measure, MemoryCourse, MemoryParts, MemorySeries, Operation, PhaseEnd, PhaseHeap,
    PhaseKind, PhasePlan, PhaseSpec, Quantity, Reach,
};

use super::member::Part;
use super::{Generation, note_latency, note_limits};
use crate::churn::{self, Churn, ChurnMode};
use crate::drive::{Driver, Pace, SliceKind, SliceLoad};
use crate::embedded::PrivateDirectory;
use crate::error::RunError;
use crate::heap_pass;
use crate::isolation::HostNoise;
use crate::load_command::{CommandLoad, LoadCommand};
use crate::matrix::Candidate;
use crate::memory_owners;
use crate::outcome::{ScoredRun, sleep_unless_stopped};
use crate::plan::Phased;
use crate::rounds::nanoseconds;
use crate::sampler::EdgeMemory;
use crate::sampler::Sampler;
use crate::slice;
use crate::started_candidate::{RunContext, StartedCandidate};
use crate::trace::{HeapReading, Trace};
use crate::usage::Costs;
use crate::usage::{Edge, MachineUse};

/// The part of a phase that its connections have to settle, and the longest that takes.
const SETTLE_SHARE: u32 = 8;
const SETTLE_MAX: Duration = Duration::from_millis(250);
/// The part of a churn in which blocks are freed again.
const CHURN_SETTLE_PART: u64 = 8;
/// The steps before the first phase.
const WARM_UP: &str = "warm-up";
/// Points of a drawn course: enough to distinguish its cycles.
const POINTS_MAX: usize = 240;

impl Generation<'_> {
    /// Takes candidates, given as in [`Generation::run`], through all phases. With `is_traced` their heaps are traced, and
    /// nothing is scored.
    pub(crate) fn run_phases(
        &mut self,
        order: &[(u32, usize)],
        phased: &Phased,
        is_traced: bool,
        begins: &mut dyn FnMut(usize),
    ) -> Vec<(usize, ScoredRun)> {
        let mut all = Vec::new();
        for group in self.groups(order) {
            let mut runs = Vec::new();
            for &(position, index) in group {
                if self.is_stopped() {
                    break;
                }
                begins(index);
                let instrument = match (is_traced, phased.plan.has_churn()) {
                    (true, _) => Instrument::Trace,
                    (false, true) => Instrument::Churn,
                    (false, false) => Instrument::None,
                };
                runs.push(self.start_phases(index, position, group.len(), instrument));
            }
            self.go_through(&mut runs, phased);
            all.extend(runs.into_iter().map(|run| run.finish(phased, self)));
        }
        all
    }

    fn start_phases(
        &mut self,
        index: usize,
        position: u32,
        count: usize,
        instrument: Instrument,
    ) -> Run {
        let mut run = Run::new(index, self.round, position);
        let Some(candidate) = self.candidates.get(index) else {
            return run;
        };
        let label = match instrument {
            Instrument::Trace => "phases-heap".to_owned(),
            _ => format!("round{}", self.round + 1),
        };
        match run.start(self.workshop, candidate, &label, instrument, self.stop) {
            Ok(session) => {
                run.scored.start_duration = session.start_duration;
                let sampler = session.sampler_beside(count);
                run.began = sampler.began();
                (run.session, run.sampler) = (Some(session), Some(sampler));
            }
            Err(error) => run.fail(error),
        }
        run
    }

    fn go_through(&mut self, runs: &mut [Run], phased: &Phased) {
        for run in runs.iter_mut() {
            run.while_alive(|run, session| self.warm_up(run, session));
        }
        for cycle in 0..phased.plan.cycles {
            for run in runs.iter_mut() {
                run.while_alive(|run, session| {
                    run.end_idle(session, self.stop)?;
                    let phases = (0..).zip(&phased.plan.phases);
                    for (place, spec) in phases {
                        self.phase(run, session, (cycle, place), spec, phased)?;
                    }
                    Ok(())
                });
            }
        }
        for run in runs.iter_mut() {
            run.while_alive(|run, session| run.end_idle(session, self.stop));
        }
    }

    fn warm_up(&self, run: &mut Run, session: &mut StartedCandidate) -> Result<(), RunError> {
        if let Some(command) = &self.workshop.load_command {
            let from_ns = run.now_ns();
            command.warm_up(self.workshop, session, self.stop)?;
            run.mark(WARM_UP, from_ns, run.now_ns());
            return Ok(());
        }
        let (Some(&operation), Some(&requests)) = (
            self.workshop.driver.target.operations().first(),
            self.plan.warm_up_requests.first(),
        ) else {
            return Ok(());
        };
        if requests == 0 {
            return Ok(());
        }
        let from_ns = run.now_ns();
        self.work(session, operation, requests)?;
        run.mark(WARM_UP, from_ns, run.now_ns());
        Ok(())
    }

    fn phase(
        &self,
        run: &mut Run,
        session: &mut StartedCandidate,
        (cycle, place): (u32, u32),
        spec: &PhaseSpec,
        phased: &Phased,
    ) -> Result<(), RunError> {
        run.end_idle(session, self.stop)?;
        let label = phased.plan.label(place as usize);
        let length = Duration::from_nanos(spec.duration_ns);
        let from_ns = run.now_ns();
        if spec.kind == PhaseKind::Idle {
            run.idle = Some(Idle {
                label,
                cycle,
                place,
                from_ns,
                until: Instant::now() + length,
            });
            return Ok(());
        }
        let is_steady = spec.kind == PhaseKind::Steady;
        if is_steady {
            run.read_edge(session)?;
        }
        run.pause_sampler(is_steady);
        let churned_before = run.churned_blocks()?;
        let requests = match spec.kind {
            PhaseKind::Churn => self.churn(run, session, (cycle, place), spec, phased),
            _ => self.load(run, session, (cycle, place), spec, phased),
        };
        run.pause_sampler(false);
        let requests = requests?;
        let parts = run.read_edge(session)?;
        let to_ns = run.now_ns();
        let churned = run.churned_blocks()?.zip(churned_before);
        let churned = churned.map(|(after, before)| after.saturating_sub(before));
        let end = PhaseEnd {
            cycle,
            place,
            requests,
            parts,
            churned_blocks: churned.filter(|_| spec.kind == PhaseKind::Churn),
            ..PhaseEnd::default()
        };
        run.end_phase(&label, end, (from_ns, to_ns));
        run.read_heap_at_end(session, cycle, place, &phased.plan)
    }

    /// A phase under the load of the user's program, which gets its purpose as input and takes as long as it takes.
    fn run_command(
        &self,
        command: &LoadCommand,
        run: &mut Run,
        session: &mut StartedCandidate,
        (cycle, place): (u32, u32),
        spec: &PhaseSpec,
    ) -> Result<u64, RunError> {
        let kind = spec.kind.label();
        let variables = [
            ("MILLPOND_PHASE", kind.to_owned()),
            ("MILLPOND_CYCLE", (cycle + 1).to_string()),
            (
                "MILLPOND_SECONDS",
                (spec.duration_ns as f64 / 1e9).to_string(),
            ),
        ];
        let label = format!("{kind}{}-cycle{}", place + 1, cycle + 1);
        let before = Edge::read(session)?;
        let weather = HostNoise::before(!self.workshop.driver.placement.is_raised);
        let load = command.run_with(self.workshop, session, &label, &variables, self.stop)?;
        let after = Edge::read(session)?;
        let part = run.part_of(spec.kind);
        weather.add_to(&mut part.weather);
        part.machine_use.add(&before, &after, load.cpu_ns);
        let requests = load.requests.unwrap_or(0);
        run.commands.push(CommandPhase {
            cycle,
            place,
            kind: spec.kind,
            costs: after.usage.costs_since(&before.usage),
            load,
        });
        Ok(requests)
    }

    /// Loads the server while its heap is aged, and at last while the blocks are freed again that do not stay.
    fn churn(
        &self,
        run: &mut Run,
        session: &mut StartedCandidate,
        at: (u32, u32),
        spec: &PhaseSpec,
        phased: &Phased,
    ) -> Result<u64, RunError> {
        let mut requests = 0;
        let settle_ns = spec.duration_ns / CHURN_SETTLE_PART;
        let parts = [
            (ChurnMode::Churn, spec.duration_ns - settle_ns),
            (ChurnMode::Settle, settle_ns),
        ];
        for (mode, duration_ns) in parts {
            run.set_churn(mode)?;
            let part = PhaseSpec {
                duration_ns,
                ..spec.clone()
            };
            requests += self.load(run, session, at, &part, phased)?;
        }
        run.set_churn(ChurnMode::Rest)?;
        Ok(requests)
    }

    /// Loads the server for one phase; how many right responses there were.
    fn load(
        &self,
        run: &mut Run,
        session: &mut StartedCandidate,
        (cycle, place): (u32, u32),
        spec: &PhaseSpec,
        phased: &Phased,
    ) -> Result<u64, RunError> {
        if let Some(command) = &self.workshop.load_command {
            return self.run_command(command, run, session, (cycle, place), spec);
        }
        let Some(&operation) = self.workshop.driver.target.operations().first() else {
            return Ok(0);
        };
        let length = Duration::from_nanos(spec.duration_ns);
        let settle = (length / SETTLE_SHARE).min(SETTLE_MAX);
        let pace = match (spec.rate_per_s, spec.kind) {
            (Some(per_s), _) => Pace::Rate { per_s },
            (None, PhaseKind::Steady) => Pace::Rate {
                per_s: self.plan.rate_per_s.first().copied().unwrap_or(1.0),
            },
            (None, _) => Pace::Block,
        };
        let load = SliceLoad {
            kind: SliceKind { operation, pace },
            keys: self.plan.keys,
            settle,
            window: length - settle,
        };
        let driver = Driver {
            connections: spec
                .connections
                .map_or(phased.connections, |count| count as usize),
            path: spec.path.clone(),
            ..self.workshop.driver.clone()
        };
        let part = run.part_of(spec.kind);
        let weather = HostNoise::before(false);
        let mut machine_use = MachineUse::default();
        let slice = slice::run(&driver, session, load, &mut machine_use, self.stop)?;
        weather.add_to(&mut part.weather);
        part.machine_use.merge(&machine_use);
        part.disturbed += u32::from(slice.is_disturbed);
        let requests = slice.requests;
        let places = u32::try_from(phased.plan.phases.len()).unwrap_or(u32::MAX);
        part.slices.add(cycle * places + place, slice);
        if matches!(pace, Pace::Rate { .. }) && spec.kind == PhaseKind::Burst {
            run.has_paced_bursts = true;
        }
        Ok(requests)
    }
}

/// The results of one phase of the user's load program.
#[derive(Debug)]
struct CommandPhase {
    cycle: u32,
    place: u32,
    kind: PhaseKind,
    load: CommandLoad,
    costs: Costs,
}

/// The object in front of the allocator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Instrument {
    None,
    /// Counts calls, and samples what lives.
    Trace,
    /// Ages the heap in phases with that setting.
    Churn,
}

/// An idle phase that is under way while others are under load.
#[derive(Debug)]
struct Idle {
    label: String,
    cycle: u32,
    place: u32,
    from_ns: u64,
    until: Instant,
}

/// One candidate on its way through all cycles.
#[derive(Debug)]
struct Run {
    index: usize,
    /// `None` once it has failed.
    session: Option<StartedCandidate>,
    sampler: Option<Sampler>,
    trace: Option<(Trace, PrivateDirectory)>,
    churn: Option<Churn>,
    first_reading: Option<HeapReading>,
    /// The zero of all its times.
    began: Instant,
    edges: EdgeMemory,
    course: Vec<CoursePhase>,
    ends: Vec<PhaseEnd>,
    /// From when to when each of `ends` was.
    end_times_ns: Vec<(u64, u64)>,
    idle: Option<Idle>,
    steady: Part,
    bursts: Part,
    /// No figure is made of them.
    churns: Part,
    /// Under a load program of the user's, instead of slices.
    commands: Vec<CommandPhase>,
    /// A burst at a rate is no closed loop and has no throughput.
    has_paced_bursts: bool,
    scored: ScoredRun,
}

impl Run {
    fn new(index: usize, round: u32, position: u32) -> Self {
        Self {
            index,
            session: None,
            sampler: None,
            trace: None,
            churn: None,
            first_reading: None,
            began: Instant::now(),
            edges: EdgeMemory::default(),
            course: Vec::new(),
            ends: Vec::new(),
            end_times_ns: Vec::new(),
            idle: None,
            steady: Part::default(),
            bursts: Part::default(),
            churns: Part::default(),
            commands: Vec::new(),
            has_paced_bursts: false,
            scored: ScoredRun::new(round, position),
        }
    }

    fn start(
        &mut self,
        workshop: &mut RunContext,
        candidate: &Candidate,
        label: &str,
        instrument: Instrument,
        stop: &AtomicBool,
    ) -> Result<StartedCandidate, RunError> {
        let failed = |error| RunError::Prepare {
            path: PathBuf::from("a private temporary directory"),
            error,
        };
        if instrument == Instrument::Churn {
            let churn = self.churn.insert(Churn::create().map_err(failed)?);
            let front = Some(churn.front());
            return StartedCandidate::start_behind(workshop, candidate, label, front, stop);
        }
        if instrument == Instrument::Trace {
            // One each: writing the object again would change the code of those that run.
            let directory = PrivateDirectory::create().map_err(failed)?;
            let trace = Trace::create(&directory.path).map_err(failed)?;
            self.trace = Some((trace, directory));
        }
        let trace = self.trace.as_ref().map(|(trace, _)| trace);
        StartedCandidate::start(workshop, candidate, label, trace, stop)
    }

    /// An error ends it, and with it what this generation has of it.
    fn while_alive(
        &mut self,
        act: impl FnOnce(&mut Self, &mut StartedCandidate) -> Result<(), RunError>,
    ) {
        let Some(mut session) = self.session.take() else {
            return;
        };
        match act(self, &mut session) {
            Ok(()) => self.session = Some(session),
            Err(error) => {
                let explained = session.explain::<()>(Err(error));
                if let Err(error) = explained {
                    self.fail(error);
                }
            }
        }
    }

    fn fail(&mut self, error: RunError) {
        self.scored.measures.status = error.into();
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    fn mark(&mut self, name: &str, from_ns: u64, to_ns: u64) {
        self.course.push(CoursePhase {
            name: name.to_owned(),
            from_ns,
            to_ns,
        });
    }

    /// A phase of the plan has ended; how much memory there was in all is known once the samples are.
    fn end_phase(&mut self, label: &str, end: PhaseEnd, times_ns: (u64, u64)) {
        self.mark(label, times_ns.0, times_ns.1);
        self.ends.push(end);
        self.end_times_ns.push(times_ns);
    }

    fn set_churn(&self, mode: ChurnMode) -> Result<(), RunError> {
        let set = self.churn.as_ref().map(|churn| churn.set(mode));
        set.unwrap_or(Ok(())).map_err(churn_error)
    }

    /// Blocks that were allocated and freed to age its heap, so far; `None` if it is not aged.
    fn churned_blocks(&self) -> Result<Option<u64>, RunError> {
        let blocks = self.churn.as_ref().map(Churn::blocks);
        blocks.transpose().map_err(churn_error)
    }

    fn part_of(&mut self, kind: PhaseKind) -> &mut Part {
        match kind {
            PhaseKind::Steady => &mut self.steady,
            PhaseKind::Churn => &mut self.churns,
            PhaseKind::Burst | PhaseKind::Idle => &mut self.bursts,
        }
    }

    fn pause_sampler(&self, is_paused: bool) {
        if let Some(sampler) = &self.sampler {
            sampler.pause(is_paused);
        }
    }

    fn read_edge(&mut self, session: &mut StartedCandidate) -> Result<MemoryParts, RunError> {
        let edge = Edge::read(session)?;
        self.edges.add(&edge);
        Ok(edge.memory_parts())
    }

    /// Waits for the end of the idle phase, if one is under way.
    fn end_idle(
        &mut self,
        session: &mut StartedCandidate,
        stop: &AtomicBool,
    ) -> Result<(), RunError> {
        let Some(idle) = self.idle.take() else {
            return Ok(());
        };
        let left = idle.until.saturating_duration_since(Instant::now());
        sleep_unless_stopped(left, stop)?;
        // The remaining memory is known even where the sampler got few samples on a busy machine.
        let parts = self.read_edge(session)?;
        let to_ns = nanoseconds(idle.until.saturating_duration_since(self.began));
        let end = PhaseEnd {
            cycle: idle.cycle,
            place: idle.place,
            parts,
            ..PhaseEnd::default()
        };
        self.end_phase(&idle.label, end, (idle.from_ns, to_ns));
        self.read_heap(session, idle.cycle)
    }

    /// A cycle that ends under load is read there.
    fn read_heap_at_end(
        &mut self,
        session: &StartedCandidate,
        cycle: u32,
        place: u32,
        plan: &PhasePlan,
    ) -> Result<(), RunError> {
        match place as usize + 1 == plan.phases.len() {
            true => self.read_heap(session, cycle),
            false => Ok(()),
        }
    }

    /// The owners of the memory now, if that is traced: the last reading of a cycle counts.
    fn read_heap(&mut self, session: &StartedCandidate, cycle: u32) -> Result<(), RunError> {
        let Some((trace, _)) = &self.trace else {
            return Ok(());
        };
        let reading = heap_pass::read(trace, session)?;
        let mut held = Reach::default();
        memory_owners::add_holders(&mut held, &session.tree.members(), &reading, trace);
        let first = self.first_reading.get_or_insert_with(|| reading.clone());
        // Any size of the whole will do: whether enough is known of what lives is asked.
        let profile = reading.profile_since(first, 1, Some(1));
        let heap = PhaseHeap {
            cycle,
            live_bytes: profile.fragmentation.map(|_| profile.live_bytes),
            held: held.held,
        };
        let heaps = &mut self.scored.phase_heaps;
        heaps.retain(|one| one.cycle != cycle);
        heaps.push(heap);
        Ok(())
    }

    /// Stops the server, and turns what was seen into figures.
    fn finish(mut self, phased: &Phased, generation: &Generation<'_>) -> (usize, ScoredRun) {
        if let Some(sampler) = self.sampler.take() {
            self.scored.memory = self.edges.finish(sampler);
        }
        match self.session.take().map(StartedCandidate::stop) {
            Some(Ok(report)) => self.scored.stop_duration = Some(report.duration),
            Some(Err(error)) => self.fail(error),
            None => {}
        }
        self.note_memory(phased);
        let driver = &generation.workshop.driver;
        let operation = driver.target.operations().first().copied();
        let operation = operation.unwrap_or(Operation::Request);
        match generation.workshop.load_command {
            Some(_) => self.note_commands(operation),
            None => self.note_load(operation, driver.placement.server_threads()),
        }
        self.note_age(operation, phased);
        (self.index, self.scored)
    }

    fn note_memory(&mut self, phased: &Phased) {
        let (memory, measures) = (&self.scored.memory, &mut self.scored.measures);
        let best = memory.best();
        for (end, &(_, to_ns)) in self.ends.iter_mut().zip(&self.end_times_ns) {
            end.memory_bytes = best.value_at(to_ns).unwrap_or(0.0) as u64;
        }
        for cycle in 0..phased.plan.cycles {
            let of_cycle = || {
                let ends = self.ends.iter().zip(&self.end_times_ns);
                ends.filter(|(end, _)| end.cycle == cycle)
            };
            let burst = phased.plan.last_burst().and_then(|place| {
                let mut all = of_cycle();
                all.find(|(end, _)| end.place as usize == place)
            });
            let is_whole = of_cycle().count() == phased.plan.phases.len();
            let until_ns = of_cycle().map(|(_, times)| times.1).max().unwrap_or(0);
            if let Some((_, &times)) = burst.filter(|_| is_whole) {
                let floor = floor_after(best, cycle, times, until_ns);
                measures.floors.extend(floor);
            }
        }
        for (measure, value) in measures_of(&measures.floors) {
            measures.set(measure, value);
        }
        self.edges.note(memory, &self.course, measures);
        let mappings = self.ends.iter().filter_map(|end| end.parts.mappings);
        if let Some(most) = mappings.max() {
            measures.set(Measure::whole(Quantity::Mappings), most as f64);
        }
        if phased.plan.last_burst().is_none() {
            let last = self.ends.last().map_or(0.0, |end| end.memory_bytes as f64);
            measures.set(Measure::whole(Quantity::MemoryAfterWork), last);
        }
        measures.phase_ends = std::mem::take(&mut self.ends);
        let (own, phases) = without_waits(memory, &self.course);
        measures.memory_course = MemoryCourse::thinned_to(&own, POINTS_MAX);
        if let Some(course) = &mut measures.memory_course {
            course.phases = phases;
        }
    }

    /// CPU and latency of the steady phases, throughput of bursts in the closed loop.
    fn note_load(&mut self, operation: Operation, server_cpus: usize) {
        let measures = &mut self.scored.measures;
        let (steady, bursts) = (&self.steady, &self.bursts);
        if !steady.slices.is_empty() {
            let cycles = steady.slices.cycles().collect();
            let latency = note_latency(steady, &cycles, operation, measures);
            self.scored.latencies.extend(latency);
            if let Some((costs, requests)) = steady.slices.costs() {
                costs.note(operation, requests, measures);
            }
        }
        if !bursts.slices.is_empty() {
            bursts.slices.count_requests(measures);
            if !self.has_paced_bursts {
                note_limits(bursts, operation, server_cpus, measures);
                let measure = Measure::of(operation, Quantity::Throughput);
                measures.set(measure, bursts.slices.mean_per_s());
            }
        }
        measures.disturbed_slices += steady.disturbed + bursts.disturbed;
    }

    /// The values that the user's program printed for steady phases, or for bursts where there are none, on the
    /// average; CPU time per request, if it printed their number.
    fn note_commands(&mut self, operation: Operation) {
        let has_steady = self
            .commands
            .iter()
            .any(|one| one.kind == PhaseKind::Steady);
        let (kind, part) = match has_steady {
            true => (PhaseKind::Steady, &self.steady),
            false => (PhaseKind::Burst, &self.bursts),
        };
        let measures = &mut self.scored.measures;
        let counted: Vec<&CommandPhase> = self
            .commands
            .iter()
            .filter(|one| one.kind == kind)
            .collect();
        let mut sums: BTreeMap<Quantity, (f64, f64)> = BTreeMap::new();
        for &(quantity, value) in counted.iter().flat_map(|one| &one.load.values) {
            let (sum, count) = sums.entry(quantity).or_default();
            *sum += value;
            *count += 1.0;
        }
        for (quantity, (sum, count)) in sums {
            measures.set(Measure::of(operation, quantity), sum / count);
        }
        let costs = sum_of_costs(counted.into_iter());
        if let Some((costs, requests)) = costs {
            costs.note(operation, requests, measures);
        }
        measures.requests += self
            .commands
            .iter()
            .filter_map(|one| one.load.requests)
            .sum::<u64>();
        part.weather.note(kind.label(), measures);
        measures.noise.extend(part.machine_use.flags(kind.label()));
    }

    /// The cost of steady phases, of an aged heap or of a fresh one, and their requests.
    fn steady_costs(&self, phased: &Phased, is_aged: bool) -> Option<(Costs, u64)> {
        let is_meant = |cycle, place: u32| phased.plan.is_aged(cycle, place as usize) == is_aged;
        if !self.commands.is_empty() {
            let steady = self
                .commands
                .iter()
                .filter(|one| one.kind == PhaseKind::Steady && is_meant(one.cycle, one.place));
            return sum_of_costs(steady);
        }
        let places = u32::try_from(phased.plan.phases.len()).unwrap_or(u32::MAX);
        let slices = &self.steady.slices;
        slices.costs_of(|index| is_meant(index / places, index % places))
    }

    /// CPU time per request behind the first churn, against that before it.
    fn note_age(&mut self, operation: Operation, phased: &Phased) {
        let of = |is_aged: bool| {
            let (costs, requests) = self.steady_costs(phased, is_aged)?;
            Some(costs.cpu_ns() / requests as f64)
        };
        let mut ends = self.scored.measures.phase_ends.iter();
        let first = ends.find_map(|end| end.churned_blocks);
        if !first.is_some_and(churn::is_enough) {
            return;
        }
        if let Some((aged, fresh)) = of(true).zip(of(false)) {
            let measure = Measure::of(operation, Quantity::AgedCpu);
            self.scored.measures.set(measure, aged / fresh);
        }
    }
}

/// `None` if the program did not print the number of requests for one of them.
fn sum_of_costs<'a>(phases: impl Iterator<Item = &'a CommandPhase>) -> Option<(Costs, u64)> {
    let costs: Option<Vec<(Costs, u64)>> = phases
        .map(|one| Some((one.costs.clone(), one.load.requests?)))
        .collect();
    let mut costs = costs?.into_iter();
    let first = costs.next()?;
    Some(costs.fold(first, |sum, one| (sum.0.plus(&one.0), sum.1 + one.1)))
}

fn churn_error(error: io::Error) -> RunError {
    RunError::Prepare {
        path: PathBuf::from("the file that ages heaps"),
        error,
    }
}

/// The course as if no other candidate had been under load: without the waits between cycles and without the warm-up,
/// so that the phases of all candidates lie at the same times.
fn without_waits(
    memory: &MemorySeries,
    phases: &[CoursePhase],
) -> (MemorySeries, Vec<CoursePhase>) {
    let (mut own, mut marks) = (MemorySeries::default(), Vec::new());
    let mut began_ns = 0;
    for phase in phases.iter().filter(|phase| phase.name != WARM_UP) {
        let private = memory.memory().map(|series| &series.points);
        for (index, point) in memory.rss.points.iter().enumerate() {
            if (phase.from_ns..phase.to_ns).contains(&point.at_ns) {
                let private = private.and_then(|points| points.get(index));
                own.push(
                    began_ns + point.at_ns - phase.from_ns,
                    point.value as u64,
                    private.map(|point| point.value as u64),
                );
            }
        }
        let length_ns = phase.to_ns.saturating_sub(phase.from_ns);
        marks.push(CoursePhase {
            name: phase.name.clone(),
            from_ns: began_ns,
            to_ns: began_ns + length_ns,
        });
        began_ns += length_ns;
    }
    (own, marks)
}

#[cfg(test)]
#[path = "tests/phased.rs"]
mod tests;
