//! Servers that do not speak HTTP, and loads of the user's: redis under redis-benchmark, and every way
//! a load can fail; and servers as the user wants them started.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millpond_lab::identity::Identity;
use millpond_lab::launch::StopSignal;
use millpond_lab::metric::Metric;
use millpond_lab::readiness::Ready;
use millpond_lab::{CompareConfig, CompareOutcome, LabError, LoadCommand, compare};
use millpond_measure::record::{
    Measure, Operation, PhaseKind, PhasePlan, PhaseSpec, Quantity, RoundStatus,
};

use crate::common::{
    free_address, has_program, is_taken, node_server, python_server, redis_server, short_comparison,
};

const REQUESTS: u32 = 2_000;

fn config(directory: &Path, words: &[String], address: SocketAddr) -> CompareConfig {
    let allocators = ["glibc", "mempool"].map(str::to_owned).to_vec();
    short_comparison(directory, words, address, allocators)
}

fn load(line: &str, metrics: &[&str]) -> LoadCommand {
    let metrics = metrics
        .iter()
        .map(|text| Metric::parse(text).expect("metric"));
    LoadCommand {
        line: line.to_owned(),
        metrics: metrics.collect(),
        timeout: Duration::from_secs(60),
        warm_ups: 0,
    }
}

/// Redis with a load of redis-benchmark.
fn redis(directory: &Path) -> CompareConfig {
    let address = free_address();
    let mut config = config(directory, &redis_server(address), address);
    config.options.ready = Ready::Port;
    config.load_command = Some(load(
        &format!("redis-benchmark -h 127.0.0.1 -p $MILLPOND_PORT -t set -n {REQUESTS} -c 5 --csv"),
        &[
            "throughput=regex:^\"SET\",\"([0-9.]+)\"",
            "p99[ms]=regex:^\"SET\",(?:\"[0-9.]+\",){5}\"([0-9.]+)\"",
            "longest[ms,lower]=regex:^\"SET\",.*\"([0-9.]+)\"$",
            &format!("requests={REQUESTS}"),
        ],
    ));
    config
}

fn run(config: &CompareConfig) -> Result<CompareOutcome, LabError> {
    compare(config, &mut |_| {}, &AtomicBool::new(false))
}

fn sentence(config: &CompareConfig) -> String {
    run(config).expect_err("a refusal").to_string()
}

/// Goal: with phases the user's program runs in each phase under load and gets its name; its values for steady phases
/// count, and costs are per request.
#[test]
fn redis_has_phases() {
    if !has_program("redis-server") || !has_program("redis-benchmark") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = redis(directory.path());
    config.load_command = Some(load(
        "case \"$MILLPOND_PHASE\" in burst) n=6000 c=40;; *) n=2000 c=5;; esac; \
         redis-benchmark -h 127.0.0.1 -p $MILLPOND_PORT -c $c -n $n -r 1000 -d 1000 --csv SET k__rand_int__ VALUE EX 1; \
         echo \"phase,$MILLPOND_PHASE,$MILLPOND_CYCLE,$MILLPOND_SECONDS\"; echo \"requests,$n\"",
        &[
            "throughput=regex:^\"SET[^\"]*\",\"([0-9.]+)\"",
            "requests=regex:^requests,([0-9]+)",
        ],
    ));
    config.rounds = Some(1);
    let phase = |kind| PhaseSpec {
        kind,
        duration_ns: 500_000_000,
        ..PhaseSpec::default()
    };
    config.phases = Some(PhasePlan {
        phases: [PhaseKind::Steady, PhaseKind::Burst, PhaseKind::Idle]
            .map(phase)
            .into(),
        cycles: 2,
    });
    let outcome = run(&config).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    for candidate in &outcome.record.candidates {
        let round = &candidate.rounds[0];
        let requests: Vec<u64> = round.phase_ends.iter().map(|end| end.requests).collect();
        assert_eq!(requests, [2_000, 6_000, 0, 2_000, 6_000, 0]);
        assert_eq!(round.requests, 16_000);
        for quantity in [Quantity::Throughput, Quantity::CpuTime] {
            let value = round.get(Measure::of(Operation::Request, quantity));
            assert!(value.unwrap() > 0.0, "{quantity:?}");
        }
        assert_eq!(round.floors.len(), 2);
    }
    let said = std::fs::read_dir(directory.path().join("report/logs")).unwrap();
    let mut said: Vec<String> = said
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("round1-steady") || name.contains("round1-burst"))
        .collect();
    said.sort();
    assert!(
        said.iter()
            .any(|name| name.ends_with("round1-burst2-cycle2.out")),
        "{said:?}"
    );
}

/// Goal: a server of another protocol is compared by the user's own load program: what that printed
/// becomes measures, costs are per request, and the responses are checked before.
#[test]
fn redis_is_compared_by_its_own_benchmark() {
    if !has_program("redis-server") || !has_program("redis-benchmark") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = redis(directory.path());
    config.options.check = Some("redis-cli -p $MILLPOND_PORT set key value".to_owned());
    let outcome = run(&config).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let record = &outcome.record;
    assert_eq!(record.subject.native_allocator.as_deref(), Some("jemalloc"));
    let of = |quantity| Measure::of(Operation::Request, quantity);
    for candidate in &record.candidates {
        let done = |status: &RoundStatus| *status == RoundStatus::Done;
        assert!(
            candidate.rounds.iter().all(|run| done(&run.status)),
            "{candidate:?}"
        );
        let requests: Vec<u64> = candidate.rounds.iter().map(|run| run.requests).collect();
        assert_eq!(requests, [u64::from(REQUESTS); 2]);
        for quantity in [
            Quantity::Throughput,
            Quantity::ResponseP99,
            Quantity::CpuTime,
        ] {
            assert_eq!(candidate.values(of(quantity)).len(), 2, "{quantity:?}");
        }
        // Faster than one in ten seconds, slower than light: the unit is right.
        let p99_ns = candidate.median(of(Quantity::ResponseP99)).unwrap();
        assert!((1e3..1e10).contains(&p99_ns), "{p99_ns}");
        let custom: Measure = "request.custom:longest:ms:lower".parse().unwrap();
        assert!(candidate.median(custom).unwrap() >= p99_ns / 1e6);
        let rss = candidate
            .median(Measure::whole(Quantity::RssAfterWork))
            .unwrap();
        assert!(rss > 1e6, "{rss}");
    }
    // A SET that is new needs memory.
    let heap = record.candidates[0].values(of(Quantity::HeapCalls));
    assert!(heap.len() == 1 && heap[0] > 0.5, "{heap:?}");
    let line = record.settings.load_command.as_deref().unwrap_or_default();
    assert!(line.starts_with("redis-benchmark"), "{line}");
    assert!(
        record
            .analysis
            .verdicts
            .latency
            .sentence
            .starts_with("Latency:")
    );
    let text = fs::read_to_string(&outcome.results).unwrap();
    assert!(text.contains("request.custom:longest:ms:lower"));
}

/// Goal: a load that has to warm up runs as often as requested before the time that counts, in the try-out as in every
/// run, and the record says so.
#[test]
fn a_load_warms_up() {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("count");
    let address = free_address();
    let mut config = short_comparison(
        directory.path(),
        &python_server(address),
        address,
        vec!["glibc".to_owned()],
    );
    let line = format!("echo once >> '{}'; echo rate 1000", count.display());
    let mut command = load(&line, &["throughput=regex:rate ([0-9]+)"]);
    command.warm_ups = 2;
    config.load_command = Some(command);
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let text = fs::read_to_string(&count).unwrap();
    // The try-out of the one candidate, and two rounds of it and its double.
    assert_eq!(text.lines().count(), 3 + 2 * 2 * 3);
    assert_eq!(outcome.record.settings.load_warm_ups, 2);
    let course = outcome.record.candidates[0].rounds[0]
        .memory_course
        .as_ref();
    let phases = course.map_or(&[][..], |course| &course.phases);
    let names: Vec<&str> = phases.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["warm-up", "load", "idle"]);
}

/// Goal: a load that fails, hangs, or does not say what it was to say is a reason, never a number.
#[test]
fn loads_that_fail_are_told() {
    let directory = tempfile::tempdir().unwrap();
    if !has_program("redis-server") {
        return;
    }
    let with = |change: &dyn Fn(&mut CompareConfig)| {
        let mut config = redis(directory.path());
        change(&mut config);
        sentence(&config)
    };
    let command = |line: &str| Some(load(line, &["throughput=regex:rate (\\d+)"]));
    let failed = with(&|it| it.load_command = command("echo rate 5; echo no luck >&2; exit 3"));
    assert!(
        failed.contains("gave no result: it failed (exit status 3)"),
        "{failed}"
    );
    assert!(failed.contains("no luck"), "{failed}");
    let silent = with(&|it| it.load_command = command("echo speed 5"));
    assert!(
        silent.contains("is not in what the load command wrote"),
        "{silent}"
    );
    assert!(silent.contains("speed 5"), "{silent}");
    let hangs = with(&|it| {
        let mut load = command("sleep 600").expect("one");
        load.timeout = Duration::from_millis(200);
        it.load_command = Some(load);
    });
    assert!(hangs.contains("did not end within"), "{hangs}");
    let nothing = with(&|it| it.load_command = Some(load("true", &["requests=5"])));
    assert!(nothing.contains("needs a --load-metric"), "{nothing}");
    let wrong = with(&|it| it.options.check = Some("echo wrong >&2; false".to_owned()));
    assert!(
        wrong.contains("responses are not right") && wrong.contains("wrong"),
        "{wrong}"
    );
    // A server that a load brings down is named, not the load.
    let crash = with(&|it| {
        it.load_command = command("redis-cli -p $MILLPOND_PORT shutdown nosave; sleep 60");
    });
    assert!(crash.contains("died while it was measured"), "{crash}");
}

/// Goal: a candidate whose responses differ from the baseline's is left out before it is timed.
#[test]
fn other_answers_are_left_out() {
    if !has_program("redis-server") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut config = redis(directory.path());
    let note = directory.path().join("note");
    // Its second response differs from the first.
    let line = format!("echo x >> {0}; wc -l < {0}", note.display());
    config.options.check = Some(line);
    let told = sentence(&config);
    assert!(told.contains("nothing to compare"), "{told}");
    assert!(told.contains("the check wrote \"2\\n\""), "{told}");
}

/// Goal: a server starts as the user says: in its directory, with its variables, as another user,
/// ready by a line of its log, and ends by the signal it wants.
#[test]
fn a_server_starts_as_the_user_says() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let place = directory.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("index.html"), "here").unwrap();
    let signal = directory.path().join("signal");
    fs::write(&signal, "").unwrap();
    let mode = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(directory.path(), 0o755);
    mode(&signal, 0o666);
    let program = "import http.server, os, signal, sys\n\
        def end(number, frame):\n\
        \x20   open(os.environ['NOTE'], 'a').write('%d %d\\n' % (number, os.getuid())); os._exit(0)\n\
        signal.signal(signal.SIGQUIT, end)\n\
        class Handler(http.server.SimpleHTTPRequestHandler):\n\
        \x20   protocol_version = 'HTTP/1.1'\n\
        \x20   def log_message(self, *words): pass\n\
        server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler)\n\
        print('now serving', flush=True)\n\
        server.serve_forever()\n";
    let port = address.port().to_string();
    let words = ["/usr/bin/python3", "-c", program, &port].map(str::to_owned);
    let mut config = config(directory.path(), &words, address);
    config.options.directory = Some(place);
    config.options.environment = vec![("NOTE".into(), signal.clone().into())];
    config.options.stop_signal = StopSignal::Quit;
    config.options.ready = Ready::parse("log:^now serving$").unwrap();
    let own = rustix::process::geteuid().as_raw();
    let user = if own == 0 {
        "nobody".to_owned()
    } else {
        own.to_string()
    };
    let user = Identity::find(&user).unwrap();
    config.options.user = Some(user.clone());
    config.options.check = Some("curl -sf http://$MILLPOND_HOST:$MILLPOND_PORT/".to_owned());
    let outcome = run(&config).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let ends = fs::read_to_string(&signal).unwrap();
    let expected = format!("3 {}", user.uid);
    // Two preflights, two heap passes, two rounds of three, and how copies of it live at the same time.
    let all = ends.lines().count();
    assert!(
        all > 10 && ends.lines().all(|line| line == expected),
        "{ends}"
    );
    assert!(!is_taken(address));
}

/// Goal: a cluster of node is one target: every worker is proved and summed up.
#[test]
#[ignore = "slow tier: a whole comparison, 20 s"]
fn a_cluster_of_node_is_one_target() {
    let Some(node) = node_server() else { return };
    let directory = tempfile::tempdir().unwrap();
    let address = free_address();
    let program = "const cluster = require('cluster');\n\
        if (cluster.isPrimary) { cluster.fork(); cluster.fork(); }\n\
        else require('http').createServer((q, a) => a.end('hello'))\n\
        .listen(+process.argv[2], '127.0.0.1');\n";
    let file = directory.path().join("server.js");
    fs::write(&file, program).unwrap();
    let file = file.display().to_string();
    let words = [node, file, address.port().to_string()];
    let outcome = run(&config(directory.path(), &words, address)).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    for candidate in &outcome.record.candidates {
        // One process of node needs 40 MB, a primary with two workers more than twice as much.
        let rss = candidate
            .median(Measure::whole(Quantity::RssAfterWork))
            .unwrap();
        assert!(rss > 80e6, "{rss}");
    }
}
