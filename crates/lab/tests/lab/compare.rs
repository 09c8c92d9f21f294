//! Whole comparisons of other people's servers, small but real, and every way they can go wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_lab::plan::MemoryWork;
use millpond_lab::{
    CompareConfig, CompareOutcome, LabError, LabEvent, ServerRequests, Target, compare,
};
use millpond_measure::record::{
    CandidateRounds, ComparisonRecord, Measure, Operation, Quantity, Role, RoundStatus,
};
use millpond_measure::statistics::Verdict;

use crate::common::{free_address, is_taken, nginx, preloadable, python_server, short_comparison};
use crate::presence::compile_c;

/// A comparison of `words` at `address`, as short as it can be.
fn config(directory: &Path, words: &[String], address: std::net::SocketAddr) -> CompareConfig {
    let second = preloadable().pop().map(|allocator| allocator.name);
    let allocators = std::iter::once("glibc".to_owned()).chain(second).collect();
    short_comparison(directory, words, address, allocators)
}

fn run(config: &CompareConfig) -> (Result<CompareOutcome, LabError>, Vec<LabEvent>) {
    let mut events = Vec::new();
    let result = compare(
        config,
        &mut |event| events.push(event.clone()),
        &AtomicBool::new(false),
    );
    (result, events)
}

/// Goal: a comparison of nginx with two workers gives every figure, in every place it is promised.
#[test]
fn nginx_is_compared() {
    let Some(allocator) = preloadable().pop() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let words = nginx(directory.path(), address, "daemon off;");
    let (outcome, events) = run(&config(directory.path(), &words, address));
    let outcome = outcome.unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let record = &outcome.record;
    let roles: Vec<Role> = record
        .candidates
        .iter()
        .map(|candidate| candidate.role)
        .collect();
    assert_eq!(
        roles,
        [Role::Baseline, Role::BaselineAgain, Role::Candidate]
    );
    for candidate in &record.candidates {
        assert_eq!(candidate.rounds.len(), 2);
        assert!(
            candidate
                .rounds
                .iter()
                .all(|run| run.status == RoundStatus::Done)
        );
        for quantity in [
            Quantity::Throughput,
            Quantity::CpuTime,
            Quantity::UserCpu,
            Quantity::SystemCpu,
            Quantity::PageFaults,
            Quantity::MinorFaults,
            Quantity::MajorFaults,
            Quantity::ContextSwitches,
        ] {
            let measure = Measure::of(Operation::Request, quantity);
            assert_eq!(
                candidate.values(measure).len(),
                2,
                "{measure} of {}",
                candidate.name
            );
        }
        memory_is_complete(candidate);
        assert!(
            candidate
                .curves
                .iter()
                .any(|curve| curve.clock == "response" && curve.count > 0)
        );
    }
    let requests: Vec<u64> = record.candidates[0]
        .rounds
        .iter()
        .map(|run| run.requests)
        .collect();
    assert!(record.settings.memory_requests <= requests[0]);
    let library = record.candidates[2].library.as_ref().unwrap();
    assert_eq!(Some(&library.path), allocator.library_title().as_ref());
    runs_stand_where_they_ran(record);
    written_files_agree(&outcome, &events, directory.path());
    assert!(!is_taken(address), "nginx is gone");
}

/// The schedule names each run's candidate at the run's own place.
fn runs_stand_where_they_ran(record: &ComparisonRecord) {
    let schedule = &record.settings.schedule;
    for candidate in &record.candidates {
        for run in &candidate.rounds {
            let scheduled = &schedule[run.round as usize][run.position as usize];
            assert_eq!(scheduled, &candidate.name, "{schedule:?}");
        }
    }
}

/// Where `smaps_rollup` can be read, the parts of memory are there and fit each other.
fn memory_is_complete(candidate: &CandidateRounds) {
    let whole = |quantity| candidate.median(Measure::whole(quantity));
    let rss = whole(Quantity::RssAfterWork).expect("always there");
    assert!(
        rss > 1e6,
        "three processes of nginx need more than {rss} bytes"
    );
    assert!(whole(Quantity::PeakRss).expect("always there") >= rss);
    let Some(pss) = whole(Quantity::PssAfterWork) else {
        return;
    };
    let uss = whole(Quantity::UssAfterWork).expect("as PSS");
    assert!(uss <= pss && pss <= rss, "{uss} {pss} {rss}");
    assert!(whole(Quantity::PssAfterIdle).expect("as PSS") > 0.0);
    assert!(whole(Quantity::HugePages).expect("as PSS") <= rss);
    private_memory_is_complete(candidate);
}

/// No more than PSS, and a peak that is above all that was read of a run.
fn private_memory_is_complete(candidate: &CandidateRounds) {
    for run in &candidate.rounds {
        let of = |quantity| run.get(Measure::whole(quantity)).expect("as PSS");
        let (memory, files) = (of(Quantity::MemoryAfterWork), of(Quantity::FileMemory));
        let pss = of(Quantity::PssAfterWork);
        assert!(memory <= 1.01 * pss && files > 0.0, "{run:?}");
        let idle = of(Quantity::MemoryAfterIdle);
        let (peak, mean) = (of(Quantity::PeakMemory), of(Quantity::MeanMemory));
        assert!(peak >= memory && peak >= idle && peak >= mean, "{run:?}");
        let course = run.memory_course.as_ref().expect("sampled");
        assert!(course.is_private(), "{course:?}");
        assert!(
            course
                .memory_bytes
                .iter()
                .all(|&bytes| bytes as f64 <= peak)
        );
        let peak_rss = of(Quantity::PeakRss);
        assert!(
            course
                .rss_bytes
                .iter()
                .all(|&bytes| bytes as f64 <= peak_rss)
        );
        assert!(of(Quantity::Mappings) > 10.0);
    }
}

fn written_files_agree(outcome: &CompareOutcome, events: &[LabEvent], directory: &Path) {
    let record = &outcome.record;
    let heap = Measure::of(Operation::Request, Quantity::HeapCalls);
    assert_eq!(
        record.candidates[0].values(heap).len(),
        1,
        "one pass, one figure"
    );
    let profile = record.candidates[0].heap.as_ref().expect("counted");
    let by_size: u64 = profile.sizes.iter().map(|class| class.calls).sum();
    assert_eq!(by_size, profile.allocations + profile.reallocations);
    assert!(by_size > 0 && profile.live_bytes > 0 && profile.samples > 0);
    let advice = &record.analysis.recommendation;
    assert!(!advice.sentence.is_empty() && !advice.caution.is_empty());
    assert_eq!(record.settings.rounds_done, 2);
    assert_eq!(record.settings.schedule.len(), 2);
    assert!(!record.interrupted);
    let finished = events
        .iter()
        .filter(|event| matches!(event, LabEvent::RunFinished { .. }));
    assert_eq!(finished.count(), 6);
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(&outcome.results).expect("results.json"))
            .expect("as promised");
    for question in ["throughput", "latency", "memory"] {
        assert!(
            json["verdicts"][question]["comparisons"].is_array(),
            "{question}"
        );
    }
    assert!(fs::metadata(&outcome.report).expect("as promised").len() > 0);
    let lines = fs::read_to_string(directory.join("report/raw/runs.ndjson")).expect("as promised");
    assert_eq!(lines.lines().count(), 2 + 6, "two heap passes and six runs");
    for line in lines.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("as promised");
    }
    assert!(!directory.join("report/data").exists());
}

fn sentence(config: &CompareConfig) -> String {
    run(config).0.expect_err("a refusal").to_string()
}

/// Goal: mistakes that can be found before anything starts are refused with what to do.
#[test]
fn wrong_settings_are_sentences() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let good = config(directory.path(), &python_server(address), address);
    let with = |change: &dyn Fn(&mut CompareConfig)| {
        let mut config = good.clone();
        change(&mut config);
        sentence(&config)
    };
    let unknown = with(&|config| config.allocators = Some(vec!["jemaloc".to_owned()]));
    assert!(
        unknown.starts_with("unknown allocator \"jemaloc\""),
        "{unknown}"
    );
    let missing = with(&|config| config.allocators = Some(vec!["x=/no/lib.so".to_owned()]));
    assert!(missing.contains("/no/lib.so cannot be opened"), "{missing}");
    assert!(with(&|config| config.connections = 0).contains("--connections"));
    assert!(with(&|config| config.rounds = Some(0)).contains("--rounds"));
    assert!(with(&|config| config.rate_per_s = Some(-1.0)).contains("--rate"));
    let out = with(&|config| config.out = PathBuf::from("/proc/nowhere"));
    assert!(out.contains("--out"), "{out}");
    let absent = with(&|config| {
        let address = "127.0.0.1:1".parse().expect("address");
        config.target = Target::Command {
            words: vec!["no-such-server".into()],
            requests: Box::new(ServerRequests::get(address, "/")),
        };
    });
    assert_eq!(absent, "the command no-such-server was not found");
}

/// Goal: a server that goes into the background gives advice on how to stay in the foreground.
#[test]
fn daemonizing_nginx_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let words = nginx(directory.path(), address, "");
    let told = sentence(&config(directory.path(), &words, address));
    assert!(told.contains("nginx left the foreground"), "{told}");
    assert!(told.contains("daemon off"), "{told}");
    assert!(!is_taken(address), "the daemon is gone too");
}

/// Goal: another server on the address is not measured by mistake.
#[test]
fn taken_port_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let told = sentence(&config(directory.path(), &python_server(address), address));
    assert!(told.contains("something already listens"), "{told}");
}

/// Goal: a static server gives no comparison at all, with the reason.
#[test]
fn static_server_gives_no_verdict() {
    if preloadable().is_empty() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let source = directory.path().join("server.c");
    let text = "#include <arpa/inet.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int n, char **words) {\n\
          int one = 1, server = socket(AF_INET, SOCK_STREAM, 0);\n\
          struct sockaddr_in at = {AF_INET, htons(atoi(words[1])), {htonl(INADDR_LOOPBACK)}};\n\
          setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);\n\
          if (bind(server, (void *)&at, sizeof at) || listen(server, 64)) return 1;\n\
          for (;;) { int client = accept(server, 0, 0); if (fork() == 0) { char b[4096];\n\
            while (read(client, b, sizeof b) > 0)\n\
              write(client, \"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\", 40);\n\
            _exit(0); } close(client); } }\n";
    fs::write(&source, text).unwrap();
    let program = directory.path().join("server");
    let mut compiler = std::process::Command::new("cc");
    let status = compiler
        .args(["-static", "-o"])
        .arg(&program)
        .arg(&source)
        .status()
        .unwrap();
    assert!(status.success());
    let words = [program.display().to_string(), address.port().to_string()];
    let told = sentence(&config(directory.path(), &words, address));
    assert!(
        told.starts_with("allocators cannot be compared under"),
        "{told}"
    );
    assert!(told.contains("statically linked"), "{told}");
    // Behind a script it is found where it serves.
    let wrapper = directory.path().join("wrapper.sh");
    fs::write(&wrapper, "#!/bin/sh\nexec \"$@\"\n").unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let words: Vec<String> = std::iter::once(wrapper.display().to_string())
        .chain(words)
        .collect();
    let told = sentence(&config(directory.path(), &words, address));
    assert!(told.starts_with("nothing to compare with glibc"), "{told}");
    assert!(
        told.contains("allocator not in use") && told.contains("statically linked"),
        "{told}"
    );
}

/// Goal: a server that dies in the middle gives a sentence with its last output.
#[test]
fn dying_server_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let wrapper = directory.path().join("dies.sh");
    let log = directory.path().join("access.log");
    // It serves for a while, then exits with a message.
    let text = format!(
        "#!/bin/sh\n\"$@\" & server=$!\n\
         until [ \"$(wc -l < '{}')\" -ge 200 ]; do sleep 0.01; done\n\
         echo out of cheese >&2\nkill -9 $server\nexit 9\n",
        log.display()
    );
    fs::write(&log, "").unwrap();
    fs::write(&wrapper, text).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let mut words = vec![wrapper.display().to_string()];
    words.extend(nginx(
        directory.path(),
        address,
        "daemon off; master_process off;",
    ));
    let conf = directory.path().join("nginx.conf");
    let text = fs::read_to_string(&conf).unwrap();
    let logged = format!("access_log {}", log.display());
    fs::write(&conf, text.replace("access_log off", &logged)).unwrap();
    let told = sentence(&config(directory.path(), &words, address));
    assert!(
        told.contains("died while it was measured (exit status 9)"),
        "{told}"
    );
    assert!(told.contains("out of cheese"), "{told}");
}

/// Goal: Ctrl-C in the middle of the rounds leaves a report of what was measured and no process.
#[test]
fn interruption_keeps_what_was_measured() {
    if preloadable().is_empty() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let words = nginx(directory.path(), address, "daemon off;");
    let stop = AtomicBool::new(false);
    let mut started = 0;
    let config = config(directory.path(), &words, address);
    let outcome = compare(
        &config,
        &mut |event| {
            started += u32::from(matches!(event, LabEvent::RunStarted { .. }));
            if started == 5 {
                stop.store(true, Ordering::Relaxed);
            }
        },
        &stop,
    );
    let outcome = outcome.unwrap();
    assert!(outcome.interrupted && outcome.record.interrupted);
    assert_eq!(outcome.record.settings.rounds_done, 1);
    let runs: usize = outcome
        .record
        .candidates
        .iter()
        .map(|candidate| candidate.rounds.len())
        .sum();
    assert_eq!(runs, 5);
    assert!(outcome.results.exists() && outcome.report.exists());
    assert!(!is_taken(address));
}

/// Goal: Ctrl-C before anything was measured reports that and leaves nothing behind.
#[test]
fn early_interruption_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let config = config(directory.path(), &python_server(address), address);
    let result = compare(&config, &mut |_| {}, &AtomicBool::new(true));
    assert!(matches!(result, Err(LabError::InterruptedEarly)));
    assert!(!is_taken(address));
}

/// Goal: without a number of rounds they end by themselves, at a planned interim analysis, and the record says at
/// which, why, and what each analysis was allowed to claim. The load's figure is always the same; memory varies.
#[test]
fn rounds_end_by_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let mut config = short_comparison(
        directory.path(),
        &python_server(address),
        address,
        vec!["glibc".to_owned()],
    );
    config.rounds = None;
    config.rate_per_s = None;
    config.time_budget = std::time::Duration::from_secs(25);
    config.idle = std::time::Duration::from_millis(5);
    config.lock = Some(directory.path().join("lock"));
    config.load_command = Some(millpond_lab::LoadCommand {
        line: "echo 1000 a second".to_owned(),
        metrics: vec![
            millpond_lab::metric::Metric::parse("throughput=regex:([0-9]+) a second")
                .expect("metric"),
        ],
        timeout: std::time::Duration::from_secs(5),
        warm_ups: 0,
    });
    let (outcome, events) = run(&config);
    let record = outcome.unwrap().record;
    let looks = &record.settings.looks;
    assert!(!looks.stopped.is_empty(), "{looks:?}");
    assert_eq!(looks.done.last(), Some(&record.settings.rounds_done));
    assert_eq!(looks.planned.last(), Some(&record.settings.rounds_planned));
    let claimed = looks.significance * looks.planned.len() as f64;
    assert!((claimed - 0.05).abs() < 1e-9, "{looks:?}");
    let begun = record.candidates[0].rounds.len();
    assert_eq!(record.settings.schedule.len(), begun);
    let verdicts = &record.analysis.verdicts;
    let verdict = &verdicts.throughput.comparisons[0].verdict;
    // The figure decides, unless the machine was too busy for any trusted one, or for a second round.
    let expected = match record.settings.rounds_done {
        0 | 1 => ["undecided", "not trusted"],
        _ => ["equivalent", "not trusted"],
    };
    assert!(expected.contains(&verdict.label()), "{verdict:?}");
    // The margin stands beside an answer: where a busy machine leaves none, there is a reason instead.
    let memory = &verdicts.memory;
    let (text, expected) = match memory.trusted {
        true => (&memory.resolution, "up to 5 % counts as the same"),
        false => (&memory.sentence, "Memory: not "),
    };
    assert!(text.contains(expected), "{memory:?}");
    let planned = events.iter().find_map(|event| match event {
        LabEvent::Planned { lines, .. } => Some(lines.clone()),
        _ => None,
    });
    let lines = planned.expect("a plan").join("; ");
    assert_eq!(
        looks.planned.len() > 1,
        lines.contains("over when every verdict is decided")
    );
}

/// Three false alarms in a row are one in eight thousand.
const ATTEMPTS_AGAINST_CHANCE: u32 = 3;

/// Goal: a server with a thread for each connection keeps freed blocks in as many arenas as the C library allows: with
/// one arena it needs a part of the memory, and that is the answer. From a single request, or with the threads gone
/// when memory was read, the same comparison once had the opposite result.
#[test]
fn arena_bloat_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let source = include_str!("arena_server.c");
    let program = compile_c(directory.path(), "arenas", source, &["-pthread"]);
    let address = free_address();
    let words = [program, "{port}".to_owned()];
    let allocators = ["glibc", "glibc:arena_max=1"].map(str::to_owned).to_vec();
    let mut config = short_comparison(directory.path(), &words, address, allocators);
    config.connections = 32;
    config.rounds = Some(7);
    config.lengths.memory = Some(MemoryWork::Requests(1_000));
    // Of twenty baselines run twice one differs from itself by chance, and then there is no answer.
    let mut answers = (0..ATTEMPTS_AGAINST_CHANCE).map(|_| {
        let record = run(&config).0.unwrap().record;
        record.analysis.verdicts.memory
    });
    let memory = answers.find(|memory| memory.trusted).expect("an answer");
    let found = memory.comparisons.iter();
    let mut found = found.filter(|one| one.candidate == "glibc:arena_max=1");
    let found = found.next().unwrap();
    assert_eq!(found.verdict, Verdict::Better, "{found:?}");
    assert!(found.ratio.unwrap() < 0.6, "{found:?}");
    assert_eq!(memory.best, ["glibc:arena_max=1"]);
}
