//! The published schema of `results.json` and what is written are one.

mod schema_check;
mod synthetic;

use millpond_measure::environment::InheritedVariables;
use millpond_measure::record::{
    BlockCheck, CandidateRounds, ComparisonRecord, FailureCause, Floor, FoundLimit, HeapUse, Held,
    Holder, InterimSettings, LeftOut, LeftOutWhen, LoadAddress, LoadConnectionSet,
    LoadConnectionSets, LoadConnectionsOpen, LoadHistograms, LoadOutage, LoadRateWindow,
    LoadReport, LoadTls, Measure, MeasureComparisons, MemoryParts, NoiseFlag, NoiseKind, Operation,
    PacedColumns, PhaseEnd, PhaseHeap, PhaseKind, PhasePlan, PhaseSpec, Quantity, Reach, Role,
    RoundStatus, SentRequest, SentRequests, SentScript, SentTls, SliceColumns, SteadyState,
};
use millpond_measure::regression::{self, RegressionRule};
use millpond_measure::statistics::Estimate;
use serde_json::Value;

const SCHEMA: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/results.schema.json"
);

fn problems(record: &ComparisonRecord) -> Vec<String> {
    let json = serde_json::to_value(record).expect("a record is JSON");
    schema_check::problems(SCHEMA, &json)
}

fn sample() -> ComparisonRecord {
    synthetic::record(&synthetic::nine_plans(), 10, 0.03, 7)
}

fn add_blocks(candidate: &mut CandidateRounds) {
    let columns = SliceColumns {
        cycle: vec![0],
        requests: vec![900],
        per_s: vec![9e3],
        cpu_ns: vec![1e5],
        server_call_ns: vec![60.0],
        generator_call_ns: vec![0.0],
        minor_faults: vec![0.1],
        madvise_calls: vec![0.02],
        core_distance_ns: vec![2e3],
    };
    let run = &mut candidate.rounds[1];
    run.growth.insert("put".to_owned(), -3.5);
    run.server_busy.insert("put".to_owned(), 0.05);
    run.slices.insert("put".to_owned(), columns.clone());
    run.blocks.insert("put".to_owned(), columns);
    let paced = PacedColumns {
        cycle: vec![3],
        requests: vec![9_000],
        p50_ns: vec![60_000],
        p99_ns: vec![90_000],
        service_p50_ns: vec![50_000],
        service_p99_ns: vec![80_000],
        cpu_ns: vec![1e5],
        core_distance_ns: vec![55.0],
        left_out_share: vec![0.03],
    };
    run.paced.insert("put".to_owned(), paced);
    candidate.block_checks.push(BlockCheck {
        operation: Operation::Put,
        rounds: 7,
        throughput: Some(Estimate {
            ratio: 1.0,
            low: 0.98,
            high: 1.01,
        }),
        cpu_time: None,
        minor_faults_in_slices: Some(0.1),
        minor_faults_in_blocks: None,
        madvise_calls_in_slices: Some(0.02),
        madvise_calls_in_blocks: Some(0.03),
        is_used: false,
    });
}

fn add_identity(candidate: &mut CandidateRounds) {
    candidate.allocator_version = Some("5.3.0".to_owned());
    candidate.environment = vec!["A=1".to_owned()];
    candidate.command = vec!["server".to_owned()];
}

/// A comparison of phases, of which one candidate has everything.
fn add_phases(record: &mut ComparisonRecord) {
    record.settings.memory_limit_bytes = Some(1 << 30);
    record.settings.huge_pages = Some(false);
    let spec = |kind| PhaseSpec {
        kind,
        duration_ns: 1_000_000_000,
        connections: Some(3),
        rate_per_s: Some(4.5),
        path: Some("/a".to_owned()),
    };
    record.settings.phases = Some(PhasePlan {
        phases: vec![spec(PhaseKind::Burst), spec(PhaseKind::Idle)],
        cycles: 1,
    });
    let mut all = record.candidates.iter_mut();
    let candidate = all.rfind(|one| one.role == Role::Candidate);
    let candidate = candidate.expect("there are candidates");
    candidate.limit = Some(FoundLimit {
        limit_bytes: 2,
        died_at_bytes: 1,
        peak_bytes: 3,
        needed: 2,
        of: 3,
        throughput_ratio: Some(0.9),
    });
    candidate.phase_heaps = vec![PhaseHeap {
        cycle: 0,
        live_bytes: Some(5),
        held: vec![Held {
            holder: Holder::Malloc,
            bytes: 9,
        }],
    }];
    for run in &mut candidate.rounds {
        run.phase_ends = vec![PhaseEnd {
            cycle: 0,
            place: 1,
            requests: 7,
            memory_bytes: 8,
            parts: parts(),
            churned_blocks: Some(9),
        }];
        run.floors = vec![Floor {
            cycle: 0,
            peak_bytes: 9,
            burst_end_bytes: 8,
            floor_bytes: 7,
            reached_ns: Some(6),
            is_falling: true,
        }];
    }
}

/// All of them.
fn parts() -> MemoryParts {
    MemoryParts {
        anonymous_bytes: Some(1),
        shared_bytes: Some(2),
        swapped_bytes: Some(3),
        lazy_free_bytes: Some(4),
        huge_page_bytes: Some(5),
        hugetlb_bytes: Some(6),
        file_bytes: Some(7),
        kernel_bytes: Some(8),
        working_set_bytes: Some(9),
        mappings: Some(10),
    }
}

/// The role of malloc in the baseline, and memory that is another without pins.
fn add_reach(record: &mut ComparisonRecord) {
    let holders = [
        Holder::Malloc,
        Holder::Embedded {
            name: "mimalloc".to_owned(),
            object: "server".to_owned(),
        },
        Holder::Runtime {
            name: "V8".to_owned(),
        },
    ];
    record.candidates[0].reach = Some(Reach {
        per_request: [("put".to_owned(), HeapUse::default())].into(),
        held: holders
            .map(|holder| Held { holder, bytes: 1 })
            .into_iter()
            .collect(),
        live_bytes: Some(1),
        ..Reach::default()
    });
    let unpinned = Measure::whole(Quantity::UnpinnedMemory);
    for round in record.candidates.iter_mut().flat_map(|one| &mut one.rounds) {
        round.set(unpinned, 1e12);
    }
}

/// A candidate of each cause.
fn left_out() -> Vec<LeftOut> {
    let causes = [
        FailureCause::Hung {
            after_requests: 200_000,
            silent_ns: 10_000_000_000,
        },
        FailureCause::KilledForMemory {
            limit_bytes: Some(1 << 30),
            is_counted: true,
        },
        FailureCause::RefusedSettings {
            last_lines: Vec::new(),
        },
        FailureCause::NoAddressSpace {
            limit_bytes: None,
            last_lines: Vec::new(),
        },
        FailureCause::FailedRequests {
            failed: 14,
            requests: 140,
            statuses: [("500".to_owned(), 12)].into(),
            timeouts: 2,
            connects: 0,
        },
        FailureCause::WrongAnswers,
        FailureCause::NotInUse,
        FailureCause::NeverServed { waited_ns: 20 },
        FailureCause::Other,
    ];
    let entry = |(round, cause): (u32, FailureCause)| LeftOut {
        candidate: format!("candidate {round}"),
        cause,
        sentence: "it failed".to_owned(),
        when: match round {
            0 => LeftOutWhen::TriedOut,
            _ => LeftOutWhen::Round(round),
        },
        rounds_done: round,
    };
    (0..).zip(causes).map(entry).collect()
}

fn sent_requests() -> SentRequests {
    SentRequests {
        requests: vec![SentRequest::default(); 2],
        script: Some(SentScript::default()),
        tls: Some(SentTls::default()),
        unix: Some("/run/x".to_owned()),
    }
}

/// Goal: whole, interrupted, disturbed and empty records are valid, and have no field that the
/// schema does not describe.
#[test]
fn what_is_written_is_described() {
    let whole = sample();
    assert_eq!(problems(&whole), [""; 0]);
    let mut disturbed = whole.clone();
    disturbed.interrupted = true;
    disturbed.candidates[1].rounds[2].status = RoundStatus::Failed {
        reason: "it died".to_owned(),
        cause: Some(FailureCause::Crashed {
            signal: Some(11),
            exit_status: None,
            last_lines: vec!["ouch".to_owned()],
        }),
    };
    disturbed.left_out = left_out();
    disturbed.settings.errors_allowed = Some(0.001);
    disturbed.subject.requests = Some(sent_requests());
    disturbed.candidates[2].rounds[2].status = RoundStatus::Interrupted;
    for round in &mut disturbed.candidates[3].rounds {
        round.noise.push(NoiseFlag {
            kind: NoiseKind::ForeignCpu,
            value: 0.5,
            limit: 0.05,
            phase: Some("put throughput".to_owned()),
        });
    }
    let run = &mut disturbed.candidates[4].rounds[1];
    run.cpu_frequency_hz
        .insert("put throughput".to_owned(), 3e9);
    run.cpu_pressure.insert("put throughput".to_owned(), 0.25);
    for kind in [NoiseKind::Frequency, NoiseKind::Pressure] {
        run.noise.push(NoiseFlag {
            kind,
            value: 0.1,
            limit: 0.05,
            phase: None,
        });
    }
    disturbed.candidates[0].steady_state = Some(SteadyState {
        requests: [("put".to_owned(), 900)].into(),
        ..SteadyState::default()
    });
    disturbed.settings.looks = InterimSettings {
        planned: vec![10, 18],
        done: vec![10],
        significance: 0.025,
        stopped: "every verdict is decided".to_owned(),
    };
    disturbed
        .settings
        .warm_up_requests
        .insert("put".to_owned(), 900);
    disturbed.environment.page_bytes = Some(4096);
    disturbed.environment.c_library = Some("2.36".to_owned());
    disturbed.environment.inherited_variables = Some(InheritedVariables {
        allocator: vec!["MALLOC_ARENA_MAX=1".to_owned()],
        ..InheritedVariables::default()
    });
    add_identity(&mut disturbed.candidates[2]);
    add_blocks(&mut disturbed.candidates[5]);
    add_reach(&mut disturbed);
    add_phases(&mut disturbed);
    disturbed.analyse();
    assert_eq!(disturbed.analysis.phases.len(), 1);
    assert!(!disturbed.analysis.unpinned.is_empty());
    assert_eq!(problems(&disturbed), [""; 0]);
    let mut checked = whole.clone();
    let found = regression::check(&checked, &disturbed, RegressionRule::default());
    checked.regression = Some(found.unwrap());
    assert_eq!(problems(&checked), [""; 0]);
    assert_eq!(problems(&ComparisonRecord::new("0")), [""; 0]);
}

/// Goal: results on settings are described, with all that may be absent.
#[test]
fn settings_are_described() {
    let mut record = sample();
    for candidate in &mut record.candidates[2..] {
        candidate.what_it_changes = "something".to_owned();
    }
    record.analyse();
    let front = record.analysis.settings_front.as_mut().unwrap();
    assert!(front.settings.len() > 2 && !front.front.is_empty());
    front.settings[1].alike = vec!["like".to_owned()];
    assert_eq!(problems(&record), [""; 0]);
}

/// Goal: the checker finds all kinds of errors: an undescribed field, a missing one, a value of
/// another type, beyond its bounds, or outside its words.
#[test]
fn what_is_wrong_is_found() {
    let json: Value = serde_json::from_str(&sample().to_json().unwrap()).unwrap();
    type Spoil = fn(&mut Value);
    let spoilt: [(Spoil, &str); 8] = [
        (
            |json| json["moon"] = "full".into(),
            "moon: is not described",
        ),
        (
            |json| {
                json.as_object_mut().unwrap().remove("candidates");
            },
            "candidates is missing",
        ),
        (
            |json| json["started_unix_s"] = "now".into(),
            "started_unix_s",
        ),
        (|json| json["settings"]["seed"] = (-1).into(), "beyond 0"),
        (
            |json| json["verdicts"]["memory"]["comparisons"][0]["verdict"] = "nice".into(),
            "against enum",
        ),
        (|json| json["format_version"] = 2.into(), "against const"),
        (
            |json| json["candidates"][0]["rounds"][0]["measures"]["put.Speed!"] = 1.into(),
            "against pattern",
        ),
        (
            |json| json["subject"]["engine"]["name"] = 5.into(),
            "none of its choices",
        ),
    ];
    for (spoil, part) in spoilt {
        let mut json = json.clone();
        spoil(&mut json);
        let found = schema_check::problems(SCHEMA, &json);
        assert!(
            found.iter().any(|one| one.contains(part)),
            "{part}: {found:?}"
        );
    }
}

/// Goal: every measure's key is one by the schema.
#[test]
fn every_measure_is_one() {
    use millpond_measure::record::{Measure, Operation, Quantity};
    let mut record = ComparisonRecord::new("0");
    let operations = [None].into_iter().chain(Operation::ALL.map(Some));
    let measures = operations.flat_map(|operation| {
        let with = move |&quantity: &Quantity| Measure {
            quantity,
            operation,
        };
        Quantity::ALL.iter().map(with)
    });
    let detail = |measure| MeasureComparisons {
        measure,
        comparisons: Vec::new(),
    };
    record.analysis.details = measures.map(detail).collect();
    assert_eq!(problems(&record), [""; 0]);
}

/// Goal: a checker that is not ours agrees: the schema is one of its draft, and a record is valid.
#[test]
fn another_checker_agrees() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("results.json");
    std::fs::write(&file, sample().to_json().unwrap()).unwrap();
    assert_eq!(schema_check::ask_another(SCHEMA, &file), Ok(()));
}

/// Goal: the schema of a load describes an empty record, and the checker supports the parts that only that schema has:
/// fields by a pattern, and text by one.
#[test]
fn a_load_is_described_too() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/load.schema.json");
    let mut report = LoadReport::default();
    let found = |report: &LoadReport| {
        schema_check::problems(schema, &serde_json::to_value(report).unwrap())
    };
    report.statuses = [(200, 5), (404, 1)].into();
    report.histograms = Some(LoadHistograms::default());
    report.rate_window = Some(LoadRateWindow::default());
    report.connections_open = Some(LoadConnectionsOpen::default());
    report.tls = Some(LoadTls {
        tls12: 1,
        tls13: 1,
        ..LoadTls::default()
    });
    report.connections_with_unasked_bytes = 1;
    report.addresses = vec![LoadAddress::default(); 2];
    report.outages = vec![LoadOutage::default()];
    let sets = vec![LoadConnectionSet::default(); 2];
    report.connection_sets = Some(LoadConnectionSets::of(sets, 2));
    report.verdict.notes.push("a note".to_owned());
    assert_eq!(found(&report), [""; 0]);
    report.statuses = [(99, 1)].into();
    assert_eq!(found(&report), ["record.statuses.99: is not described"]);
    report.statuses = [(200, 0)].into();
    assert_eq!(found(&report), ["record.statuses.200: 0 is beyond 1"]);
    let mut json = serde_json::to_value(LoadReport::default()).unwrap();
    json["histograms"] = serde_json::to_value(LoadHistograms::default()).unwrap();
    json["histograms"]["response"] = "something else".into();
    let problems = schema_check::problems(schema, &json);
    assert!(
        problems.iter().any(|one| one.contains("against pattern")),
        "{problems:?}"
    );
}
