//! SYNTHETIC data: an invented comparison with effects we planted, to test verdicts and reports
//! against known true values. No number in here was measured.

use millpond_measure::environment::Environment;
use millpond_measure::flamegraph::Stacks;
use millpond_measure::histogram::{LatencyHistogram, LatencySummary};
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, CoursePhase, Engine, FlameGraph, FlameKind, HeapProfile,
    LatencyCurve, Library, LifetimeClass, Measure, MemoryCourse, Operation, PoolSetting, Quantity,
    Role, RoundMeasures, Settings, SizeClass, Subject,
};

/// A candidate with planted effects: factors against the baseline's true values.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) allocator: &'static str,
    pub(crate) pools: Option<PoolSetting>,
    pub(crate) role: Role,
    pub(crate) throughput: f64,
    pub(crate) latency: f64,
    pub(crate) memory: f64,
    pub(crate) work: f64,
}

impl Plan {
    pub(crate) fn new(allocator: &'static str, pools: PoolSetting) -> Self {
        Self {
            allocator,
            pools: Some(pools),
            role: Role::Candidate,
            throughput: 1.0,
            latency: 1.0,
            memory: 1.0,
            work: 1.0,
        }
    }

    fn name(&self) -> String {
        CandidateRounds::standard_name(self.allocator, self.pools, self.role)
    }
}

/// Random numbers that are not uniform.
pub(crate) struct Noise(pub(crate) fastrand::Rng);

impl Noise {
    pub(crate) fn normal(&mut self) -> f64 {
        let (a, b) = (self.0.f64().max(1e-300), self.0.f64());
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }

    #[allow(dead_code, reason = "only the simulation draws from it")]
    /// Student's t with two degrees of freedom: tails so heavy that it has no variance.
    pub(crate) fn t2(&mut self) -> f64 {
        let chi_square = -2.0 * self.0.f64().max(1e-300).ln();
        self.normal() / (chi_square / 2.0).sqrt()
    }

    #[allow(dead_code, reason = "only the simulation draws from it")]
    /// Normal, but 15 % of the draws come from a neighbour's burst.
    pub(crate) fn contaminated(&mut self, sigma: f64) -> f64 {
        if self.0.f64() < 0.15 {
            5.0 * sigma * self.t2()
        } else {
            sigma * self.normal()
        }
    }
}

#[allow(dead_code, reason = "not every test compares so many")]
/// The nine candidates of the default comparison.
pub(crate) fn nine_plans() -> Vec<Plan> {
    use PoolSetting::{Off, On};
    let plan = Plan::new;
    vec![
        Plan {
            role: Role::Baseline,
            ..plan("glibc", On)
        },
        Plan {
            role: Role::BaselineAgain,
            ..plan("glibc", On)
        },
        Plan {
            throughput: 0.93,
            latency: 1.06,
            memory: 1.02,
            work: 1.09,
            ..plan("glibc", Off)
        },
        Plan {
            throughput: 1.05,
            latency: 0.98,
            memory: 1.28,
            work: 0.96,
            ..plan("jemalloc", On)
        },
        Plan {
            throughput: 1.00,
            latency: 1.01,
            memory: 1.31,
            work: 1.01,
            ..plan("jemalloc", Off)
        },
        Plan {
            throughput: 1.04,
            latency: 0.97,
            memory: 1.55,
            work: 0.95,
            ..plan("tcmalloc", On)
        },
        Plan {
            throughput: 1.01,
            latency: 0.99,
            memory: 1.61,
            work: 0.99,
            ..plan("tcmalloc", Off)
        },
        Plan {
            throughput: 1.12,
            latency: 0.85,
            memory: 1.12,
            work: 0.91,
            ..plan("mimalloc", On)
        },
        Plan {
            throughput: 1.07,
            latency: 0.90,
            memory: 1.15,
            work: 0.94,
            ..plan("mimalloc", Off)
        },
    ]
}

/// Rounds of all plans: a round's own weather is shared, each run adds its own noise.
pub(crate) fn candidates(
    plans: &[Plan],
    rounds: u32,
    sigma: f64,
    seed: u64,
) -> Vec<CandidateRounds> {
    let mut noise = Noise(fastrand::Rng::with_seed(seed));
    let mut candidates: Vec<CandidateRounds> = plans
        .iter()
        .map(|plan| CandidateRounds {
            name: plan.name(),
            allocator: plan.allocator.to_owned(),
            pools: plan.pools,
            role: plan.role,
            library: (plan.allocator != "glibc").then(|| Library {
                path: format!("/usr/lib/lib{}.so", plan.allocator),
                sha256: None,
                size_bytes: 700_000,
                version: Some("synthetic".to_owned()),
            }),
            ..CandidateRounds::default()
        })
        .collect();
    for round in 0..rounds {
        let weather = (0.05 * noise.normal()).exp();
        for (place, (plan, candidate)) in plans.iter().zip(&mut candidates).enumerate() {
            let mut jitter = |share: f64| (share * sigma * noise.normal()).exp();
            let mut entry = RoundMeasures {
                round,
                position: place as u32,
                requests: 120_000,
                ..RoundMeasures::default()
            };
            fill(&mut entry, plan, weather, &mut jitter);
            candidate.rounds.push(entry);
        }
    }
    candidates
}

fn fill(entry: &mut RoundMeasures, plan: &Plan, weather: f64, jitter: &mut dyn FnMut(f64) -> f64) {
    use Operation::{Get, Put};
    let mut set = |operation, quantity, value| {
        entry.set(
            Measure {
                quantity,
                operation,
            },
            value,
        );
    };
    for (operation, rate, p50, p99, work) in [
        (Put, 21_000.0, 900_000.0, 3_100_000.0, 41_000.0),
        (Get, 38_000.0, 140_000.0, 610_000.0, 17_000.0),
    ] {
        let op = Some(operation);
        set(
            op,
            Quantity::Throughput,
            rate * plan.throughput * weather * jitter(1.0),
        );
        set(
            op,
            Quantity::ResponseP50,
            p50 * plan.latency.sqrt() / weather * jitter(1.0),
        );
        set(
            op,
            Quantity::ResponseP99,
            p99 * plan.latency / weather * jitter(3.0),
        );
        set(
            op,
            Quantity::ServiceP50,
            0.9 * p50 * plan.latency.sqrt() / weather * jitter(1.0),
        );
        set(
            op,
            Quantity::ServiceP99,
            0.9 * p99 * plan.latency / weather * jitter(3.0),
        );
        set(op, Quantity::Instructions, work * plan.work * jitter(0.02));
        set(op, Quantity::Cycles, 0.7 * work * plan.work * jitter(0.3));
        set(op, Quantity::CpuTime, work * 0.6 * plan.work * jitter(0.5));
        let calls = if plan.pools == Some(PoolSetting::On) {
            2.0
        } else {
            11.0
        };
        set(op, Quantity::HeapCalls, calls);
    }
    let after_work = 24e6 * plan.memory * jitter(0.2);
    let peak = 31e6 * plan.memory * jitter(0.25);
    set(None, Quantity::RssAfterWork, after_work);
    set(None, Quantity::PeakRss, peak);
    // Libraries are in RSS alone. Of the same draws, so that a seed gives what it gave before.
    let private = |rss: f64| 0.8 * rss;
    for (quantity, rss) in [
        (Quantity::MemoryAfterWork, after_work),
        (Quantity::MemoryAfterIdle, 0.98 * after_work),
        (Quantity::PeakMemory, peak),
        (Quantity::MeanMemory, 0.9 * after_work),
    ] {
        set(None, quantity, private(rss));
    }
    set(None, Quantity::FileMemory, 4e6);
    set(None, Quantity::Mappings, 210.0);
    set(None, Quantity::PageFaults, 0.64 * plan.memory * jitter(0.3));
}

/// A whole record, analysed, curves included.
#[allow(
    dead_code,
    reason = "each test binary and the example use a part of this module"
)]
pub(crate) fn record(plans: &[Plan], rounds: u32, sigma: f64, seed: u64) -> ComparisonRecord {
    let mut record = ComparisonRecord::new("0.1.0-SYNTHETIC");
    record.candidates = candidates(plans, rounds, sigma, seed);
    let mut noise = Noise(fastrand::Rng::with_seed(seed ^ 0xc0ffee));
    for (plan, candidate) in plans.iter().zip(&mut record.candidates) {
        candidate.heap = Some(heap(plan));
        for (operation, median_ns) in [(Operation::Put, 900e3), (Operation::Get, 140e3)] {
            candidate
                .curves
                .push(curve(operation, median_ns * plan.latency, &mut noise));
        }
    }
    decorate(&mut record);
    record.flame_graphs = flame_graphs(&record, &mut noise);
    record.command = [
        "millpond",
        "compare",
        "--rounds",
        "10",
        "--seed",
        "7",
        "# SYNTHETIC",
    ]
    .map(str::to_owned)
    .to_vec();
    record.started_unix_s = 1_795_294_616;
    record.duration_ns = 287_000_000_000;
    record.subject = Subject {
        title: "SYNTHETIC DATA, nothing was measured: millpond serve entity".to_owned(),
        command: vec!["millpond".into(), "serve".into(), "entity".into()],
        driver: Some("epoll".to_owned()),
        engine: Some(Engine {
            name: "rocksdb".to_owned(),
            version: "7.8.3".to_owned(),
            linkage: "system".to_owned(),
        }),
        ..Subject::default()
    };
    record.settings = Settings {
        load_command: None,
        rounds_planned: rounds,
        rounds_done: rounds,
        connections: 64,
        threads: 1,
        rate_per_s: [("put".to_owned(), 12_000.0), ("get".to_owned(), 21_000.0)].into(),
        memory_requests: 20_000,
        throughput_phase_ns: 800_000_000,
        latency_phase_ns: 1_000_000_000,
        value_bytes: Some(1024),
        keys: Some(10_000),
        placement: Some("server on CPU 0, generator on CPU 1".to_owned()),
        seed: 7,
        schedule: vec![plans.iter().map(Plan::name).collect()],
        ..Settings::default()
    };
    record.environment = Environment {
        kernel: "6.1.0-synthetic".to_owned(),
        distribution: Some("Debian GNU/Linux 12 (bookworm)".to_owned()),
        architecture: "x86_64".to_owned(),
        cpu_model: Some("Invented CPU @ 3.0 GHz".to_owned()),
        cpus: 2,
        memory_bytes: Some(8 << 30),
        transparent_huge_pages: Some("madvise".to_owned()),
        ..Environment::default()
    };
    record.counters = "instructions and cycles are counted (synthetic)".to_owned();
    record.analyse();
    record
}

/// Small blocks that die young and a few large ones that stay.
fn heap(plan: &Plan) -> HeapProfile {
    let live_bytes = 12_000_000;
    HeapProfile {
        requests: 8_000,
        allocations: 88_000,
        frees: 87_500,
        requested_bytes: 30_000_000,
        sizes: [(16, 17, 50_000), (64, 71, 30_000), (4096, 4607, 8_000)]
            .map(|(from_bytes, to_bytes, calls)| SizeClass {
                from_bytes,
                to_bytes,
                calls,
            })
            .to_vec(),
        lifetimes: [
            (16_384, 32_767, 80_000.0),
            (1 << 20, (1 << 21) - 1, 7_500.0),
        ]
        .map(|(from_ns, to_ns, blocks)| LifetimeClass {
            from_ns,
            to_ns,
            blocks,
            bytes: 300.0 * blocks,
        })
        .to_vec(),
        cross_thread_share: Some(0.125),
        live_bytes,
        live_blocks: 40_000,
        peak_live_bytes: 13_000_000,
        live_error: 0.02,
        anonymous_bytes: Some((20e6 * plan.memory) as u64),
        fragmentation: Some(20e6 * plan.memory / live_bytes as f64),
        sample_mean_bytes: 8_192,
        samples: 5_200,
        ..HeapProfile::default()
    }
}

fn curve(operation: Operation, median_ns: f64, noise: &mut Noise) -> LatencyCurve {
    let mut histogram = LatencyHistogram::new();
    for _ in 0..60_000 {
        let tail = if noise.0.f64() < 0.01 {
            1.0 + 4.0 * noise.0.f64()
        } else {
            1.0
        };
        histogram.record((median_ns * (0.35 * noise.normal()).exp() * tail) as u64);
    }
    LatencyCurve {
        operation,
        clock: "response".to_owned(),
        count: histogram.count(),
        points: histogram.spectrum(5),
    }
}

/// Of the baseline and two others: as many frames, with names as long, as a store in C++ has.
fn flame_graphs(record: &ComparisonRecord, noise: &mut Noise) -> Vec<FlameGraph> {
    let baseline = record.candidates.iter().take(1);
    let names = baseline.chain(record.candidates.iter().skip(2).rev().take(2));
    let mut graphs = Vec::new();
    for candidate in names {
        for (kind, weight) in [
            (FlameKind::CpuTime, 1),
            (FlameKind::AllocatedBytes, 100_000),
        ] {
            let mut stacks = Stacks::default();
            for leaf in 0..600_u32 {
                let depth = 6 + leaf % 9;
                let mut stack = vec!["millpond".to_owned(), "start_thread".to_owned()];
                stack.extend((0..depth).map(|level| {
                    let place = leaf >> (depth - level).min(9);
                    format!(
                        "invented::store::BlockBasedTable<Reader{place}>::synthetic_function_{level}"
                    )
                }));
                let jitter = (0.4 * noise.normal()).exp();
                let samples = (40.0 * jitter) as u64 + 1;
                stacks.add(stack.iter().map(String::as_str), samples * weight);
            }
            graphs.push(FlameGraph {
                candidate: candidate.name.clone(),
                samples: stacks.total() / weight,
                note: "cpu-clock at 997 Hz; stacks by frame pointers (synthetic)".to_owned(),
                directory: "flamegraphs/invented".to_owned(),
                ..FlameGraph::of(kind, &stacks)
            });
        }
    }
    graphs
}

/// The data that reports draw and no verdict uses: memory over time, every run's percentiles.
fn decorate(record: &mut ComparisonRecord) {
    for candidate in &mut record.candidates {
        for round in &mut candidate.rounds {
            let value = |quantity| round.measures.get(&Measure::whole(quantity)).copied();
            let after = value(Quantity::RssAfterWork).unwrap_or(24e6);
            let peak = value(Quantity::PeakRss).unwrap_or(31e6);
            let mut course = MemoryCourse::default();
            for step in 0..48_u64 {
                let grown = (step as f64 / 24.0).min(1.0).sqrt();
                let bytes = if step == 25 {
                    peak
                } else {
                    6e6 + (after - 6e6) * grown
                };
                course.at_ns.push(step * 90_000_000);
                course.rss_bytes.push(bytes as u64);
                course.memory_bytes.push((0.8 * bytes) as u64);
            }
            let phases = [
                ("put throughput", 0, 1_500),
                ("get throughput", 1_500, 2_160),
                ("idle", 2_160, 2_410),
                ("put latency", 2_410, 3_300),
                ("get latency", 3_300, 4_230),
            ];
            course.phases = phases
                .map(|(name, from_ms, to_ms)| CoursePhase {
                    name: name.to_owned(),
                    from_ns: from_ms * 1_000_000,
                    to_ns: to_ms * 1_000_000,
                })
                .to_vec();
            round.memory_course = Some(course);
            for (key, p50) in [("put.response", 900_000), ("get.response", 140_000)] {
                let summary = LatencySummary {
                    count: 12_000,
                    min: p50 / 3,
                    mean: p50,
                    stdev: p50 / 2,
                    p50,
                    p90: p50 * 2,
                    p99: p50 * 3 + u64::from(round.round) * 1_000,
                    p999: p50 * 6,
                    max: p50 * 9,
                };
                round.latencies.insert(key.to_owned(), summary);
            }
        }
    }
}
