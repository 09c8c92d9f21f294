use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;
use millpond_lab::{Lengths, MemoryWork};

fn parse(words: &[&str]) -> Result<CompareFlags, String> {
    let words = ["millpond", "compare"].iter().chain(words);
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Compare(flags) => Ok(*flags),
        other => Err(format!("{other:?}")),
    }
}

fn config(words: &[&str]) -> Result<CompareConfig, String> {
    parse(words)?.config().map_err(|failure| match failure {
        Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
    })
}

/// Goal: the help's defaults are the library's; eleven candidates get the time that seven do not need.
#[test]
fn defaults_are_those_of_the_lab() {
    let all = config(&["--all"]).unwrap();
    assert_eq!(all.time_budget, TIME_BUDGET_OF_ALL);
    let config = config(&[]).unwrap();
    let library = CompareConfig::new(Target::Entity { extra: Vec::new() }, config.launcher);
    assert_eq!(config.time_budget, library.time_budget);
    assert_eq!(config.connections, library.connections);
    assert_eq!(config.errors_allowed, library.errors_allowed);
    assert_eq!(config.out, library.out);
    assert_eq!(config.idle, library.idle);
    assert!(
        config.lock.is_some(),
        "one at a time, unless the user says otherwise"
    );
    assert_eq!(
        (config.rounds, config.rate_per_s),
        (library.rounds, library.rate_per_s)
    );
    assert_eq!(config.pools, library.pools);
    assert_eq!(config.margins, library.margins);
    assert!(matches!(config.target, Target::Entity { ref extra } if extra.is_empty()));
    assert!(!config.profile && !library.profile);
    let preset = super::tests::config(&["--preset", "entity"]).unwrap();
    assert!(preset.profile, "its earlier run had flame graphs");
}

/// Goal: a margin is what was asked for, the others stay, and what is none is refused with how to write
/// one.
#[test]
fn margins_are_percentages() {
    let margins = config(&["--margin", "3%,p99=10%"]).unwrap().margins;
    assert_eq!(
        (margins.usual, margins.p99, margins.counts),
        (0.03, 0.1, 0.01)
    );
    for wrong in ["0%", "p95=3%", "much"] {
        let told = parse(&["--margin", wrong]).unwrap_err();
        assert!(told.contains("as in 5%, p99=15% or counts=1%"), "{told}");
    }
}

/// Goal: settings of one allocator get the time that so many candidates need, and go with no other list.
#[test]
fn settings_are_of_one_allocator() {
    let of_jemalloc = config(&["--settings", "jemalloc"]).unwrap();
    assert_eq!(of_jemalloc.settings_of.as_deref(), Some("jemalloc"));
    assert_eq!(of_jemalloc.time_budget, TIME_BUDGET_OF_ALL);
    assert_eq!(of_jemalloc.allocators, None);
    let short = config(&["--settings", "glibc", "--time-budget", "90s"]).unwrap();
    assert_eq!(short.time_budget, Duration::from_secs(90));
    assert_eq!(config(&[]).unwrap().settings_of, None);
    for other in [&["--allocators", "glibc"], &["--preset", "haywire"]] {
        let words = [&["--settings", "glibc"][..], other].concat();
        assert!(parse(&words).unwrap_err().contains("cannot be used with"));
    }
}

/// Goal: the share of requests that may fail is a percentage, none may be requested, and most cannot.
#[test]
fn errors_allowed_are_a_percentage() {
    let of = |text: &str| config(&["--errors-allowed", text]).map(|config| config.errors_allowed);
    assert_eq!((of("2%"), of("0"), of("50%")), (Ok(0.02), Ok(0.0), Ok(0.5)));
    for wrong in ["51%", "few", "-1%", "nan"] {
        let word = format!("--errors-allowed={wrong}");
        let told = parse(&[&word]).unwrap_err();
        assert!(told.contains("as in 0.1%"), "{told}");
    }
}

/// Goal: the help says what the command does. A constant put between these words and the flags once
/// removed them.
#[test]
fn the_help_says_what_it_does() {
    let command = CompareFlags::augment_args(clap::Command::new("compare"));
    let about = command.get_long_about().unwrap().to_string();
    assert!(about.starts_with("Compare a server under every memory allocator"));
    assert!(about.contains("writes report.html"), "{about}");
}

/// Goal: each flag reaches the field it names, and the command's own flags are left alone.
#[test]
fn flags_reach_the_configuration() {
    let words = "--allocators glibc,mine=/a.so --rounds 8 --time-budget 5m --profile --emulated-counts 0 --connections 16 \
                 --rate 2k --idle 12s --out elsewhere --seed 7 --url http://127.0.0.1:81/x -- nginx -c x -t";
    let config = config(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
    let allocators = ["glibc", "mine=/a.so"].map(str::to_owned).to_vec();
    assert_eq!(config.allocators, Some(allocators));
    assert_eq!(
        (config.rounds, config.connections, config.seed),
        (Some(8), 16, Some(7))
    );
    assert_eq!(config.time_budget, Duration::from_secs(300));
    assert!(config.profile);
    assert_eq!(config.rate_per_s, Some(2_000.0));
    assert_eq!(config.idle, Duration::from_secs(12));
    let Target::Command { words, requests } = config.target else {
        unreachable!()
    };
    assert_eq!(words, ["nginx", "-c", "x", "-t"].map(OsString::from));
    assert_eq!(
        (requests.text.as_str(), requests.plan.target.path.as_str()),
        ("http://127.0.0.1:81/x", "/x")
    );
    let pools = super::tests::config(&["--pools", "off"]).unwrap().pools;
    assert_eq!(pools, Some(vec![PoolSetting::Off]));
    let pools = super::tests::config(&["--all"]).unwrap().pools;
    assert_eq!(pools, Some(vec![PoolSetting::On, PoolSetting::Off]));
}

/// Goal: settings of a user's server and load reach the place where they are used.
#[test]
fn the_users_server_and_load_are_described() {
    let words = [
        "--port",
        "7777",
        "--load-cmd",
        "bench -n 10",
        "--load-metric",
        "throughput=regex:(\\d+)",
        "--load-metric",
        "p99[us]=json:a.p99",
        "--load-within",
        "9s",
        "--load-warm-up",
        "2",
        "--env",
        "A=b=c",
        "--workdir",
        "/tmp",
        "--user",
        "root",
        "--server-cpus",
        "0",
        "--load-cpus",
        "1-2",
        "--stop-signal",
        "SIGQUIT",
        "--stop-within",
        "2s",
        "--ready",
        "log:^up$",
        "--ready-within",
        "3s",
        "--check-cmd",
        "true",
        "--",
        "server",
    ];
    let config = config(&words).unwrap();
    let Target::Command { requests, .. } = &config.target else {
        unreachable!()
    };
    assert_eq!(
        requests.plan.target.addresses[0].to_string(),
        "127.0.0.1:7777"
    );
    let load = config.load_command.unwrap();
    assert_eq!((load.line.as_str(), load.metrics.len()), ("bench -n 10", 2));
    assert_eq!((load.timeout, load.warm_ups), (Duration::from_secs(9), 2));
    let options = config.options;
    assert_eq!(options.environment, [("A".into(), "b=c".into())]);
    assert_eq!(options.directory, Some(PathBuf::from("/tmp")));
    assert_eq!(options.user.map(|user| user.uid), Some(0));
    assert_eq!(
        (options.server_cpus, options.load_cpus),
        (Some(vec![0]), Some(vec![1, 2]))
    );
    assert_eq!(options.stop_signal.name(), "QUIT");
    assert_eq!(options.stop_grace, Duration::from_secs(2));
    assert_eq!(config.ready_bound, Duration::from_secs(3));
    assert!(matches!(
        options.ready,
        millpond_lab::readiness::Ready::Log(_)
    ));
    assert_eq!(options.check.as_deref(), Some("true"));
    let port = super::tests::config(&["--port", "1", "--load-cmd", "x", "--", "s"]).unwrap();
    assert!(matches!(
        port.options.ready,
        millpond_lab::readiness::Ready::Port
    ));
}

/// Goal: requests are described as for `load`: each flag reaches the plan that is sent, and the place of the port is
/// filled in everywhere.
#[test]
fn requests_are_those_of_load() {
    let requests = |words: &[&str]| {
        let words = [words, &["--", "x", "{port}"]].concat();
        match config(&words).map(|config| config.target) {
            Ok(Target::Command { requests, .. }) => Ok(requests),
            Ok(Target::Entity { .. }) => unreachable!(),
            Err(sentence) => Err(sentence),
        }
    };
    let url = "http://127.0.0.1:{port}/a";
    let post = ["--url", url, "-m", "POST", "--body", "four", "-H", "X: y"];
    let post = requests(&post).unwrap();
    assert_eq!(
        post.plan.sent(None).to_string(),
        "POST /a with a body of 4 bytes"
    );
    assert!(!post.text.contains("{port}") && post.is_host_of_url);
    let other = requests(&["--url", url, "-H", "Host: pond"]).unwrap();
    assert!(!other.is_host_of_url && other.plan.target.host == "pond");
    let two = "http://127.0.0.1:{port}/b/{rand:1:5}";
    let two = requests(&["--url", url, "--url", two, "--expect-status", "404"]).unwrap();
    assert_eq!(two.plan.sent(None).requests.len(), 2);
    assert!(two.plan.validation.statuses.contains(404));
    let socket = ["--url", "http://localhost/", "--unix", "/run/x-{port}"];
    let socket = requests(&socket).unwrap();
    assert_eq!(
        socket.plan.target.addresses[0].to_string(),
        "unix:/run/x-{port}"
    );
    let https = "https://localhost:{port}/";
    let tls = requests(&["--url", https, "--insecure"]).unwrap();
    assert!(tls.plan.tls.is_some() && !tls.plan.is_verified);
    let user = requests(&["--url", "http://a:b@127.0.0.1:1/"]).unwrap();
    assert_eq!(user.plan.sent(None).requests[0].fields, ["Authorization"]);
    let told = requests(&["--url", url, "--ca", "x"]).unwrap_err();
    assert!(told.contains("--ca is for https"), "{told}");
    let told = requests(&["--url", url, "--script", "/nowhere.lua"]).unwrap_err();
    assert!(told.contains("/nowhere.lua"), "{told}");
}

/// Goal: a command that takes the lab's port needs no address, and a URL may leave its port to the lab.
#[test]
fn a_command_with_a_place_for_the_port_needs_no_url() {
    let url = |words: &[&str]| match config(words).unwrap().target {
        Target::Command { requests, .. } => requests.plan.target,
        Target::Entity { .. } => unreachable!(),
    };
    let ip = |target: &millpond_load::Target| target.addresses[0].inet().unwrap();
    let root = url(&["--", "x", "-p{port}"]);
    assert!(ip(&root).ip().is_loopback() && root.path == "/");
    let path = url(&["--url", "http://127.0.0.1:{port}/a", "--", "x", "{port}"]);
    assert_eq!(path.path, "/a");
    let fixed = url(&["--url", "http://127.0.0.1:81/", "--", "x", "{port}"]);
    assert_eq!(ip(&fixed).port(), 81);
}

/// Goal: candidates that are no allocators reach the configuration, as does what becomes of the shell's
/// variables; what is none is refused with how to write one.
#[test]
fn candidates_of_other_kinds_are_taken() {
    let words = [
        "--allocators",
        "glibc",
        "--candidate",
        "py=env:PYTHONMALLOC=malloc",
        "--candidate",
        "other=command:python3 other.py {port}",
        "--cross",
        "--keep-env",
        "--",
        "python3",
        "server.py",
        "{port}",
    ];
    let config = config(&words).unwrap();
    let names: Vec<&str> = config
        .variants
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["py", "other"]);
    assert!(config.is_crossed);
    assert_eq!(
        config.options.inherited,
        millpond_lab::Inherited::of_this_process(true)
    );
    let usual = super::tests::config(&[]).unwrap();
    assert!(usual.variants.is_empty() && !usual.is_crossed);
    assert_eq!(
        usual.options.inherited,
        millpond_lab::Inherited::of_this_process(false)
    );
    let told = parse(&["--candidate", "py"]).unwrap_err();
    assert!(told.contains("NAME=env:VARIABLE=VALUE"), "{told}");
    assert!(parse(&["--cross"]).unwrap_err().contains("--candidate"));
}

/// Goal: contradictions are refused with the alternative.
#[test]
fn wrong_usage_is_named() {
    for (words, part) in [
        (&["--", "nginx"][..], "needs --url"),
        (&["--url", "http://127.0.0.1:{port}/", "--", "x"], "{port}"),
        (&["--url", "http://127.0.0.1/"], "CMD"),
        (&["--url", "ftp://x/", "--", "nginx"], "begin with http://"),
        (
            &["--url", "http://127.0.0.1/", "--pools", "on", "--", "x"],
            "leave it out",
        ),
        (&["--body", "x"], "--body is about a server of yours"),
        (
            &["--port", "1", "--load-cmd", "x", "--insecure", "--", "x"],
            "--insecure is about our own load",
        ),
        (&["--pools", "maybe"], "on, off"),
        (&["--port", "1", "--", "x"], "--load-cmd"),
        (&["--load-cmd", "x", "--", "x"], "needs --url"),
        (
            &[
                "--port",
                "1",
                "--load-cmd",
                "x",
                "--load-metric",
                "p99=regex:x",
                "--",
                "x",
            ],
            "p99[ms]",
        ),
        (
            &[
                "--port",
                "1",
                "--load-cmd",
                "x",
                "--ready",
                "http",
                "--",
                "x",
            ],
            "needs --url",
        ),
        (
            &[
                "--user",
                "nobody-of-that-name",
                "--url",
                "http://x/",
                "--",
                "x",
            ],
            "no user",
        ),
        (
            &["--env", "A", "--url", "http://x/", "--", "x"],
            "NAME=VALUE",
        ),
        (&["--rounds", "0"], "at least 1"),
        (&["--rounds", "10G"], "years"),
        (&["--time-budget", "soon"], "--time-budget"),
        (&["--idle", "long"], "--idle"),
        (&["nginx"], "nginx"),
    ] {
        let error = config(words).unwrap_err();
        assert!(error.contains(part), "{words:?}: {error}");
    }
}

/// Goal: lengths are taken as given; two kinds of work, and lengths beside a load program of the user's,
/// contradict each other.
#[test]
fn lengths_are_given() {
    let flags = parse(&[
        "--run-for",
        "10m",
        "--slice",
        "400ms",
        "--settle",
        "1ms",
        "--block",
        "2s",
    ]);
    let milliseconds = |count| Some(Duration::from_millis(count));
    let expected = Lengths {
        slice: milliseconds(400),
        settle: milliseconds(1),
        block: milliseconds(2_000),
        memory: Some(MemoryWork::For(Duration::from_secs(600))),
    };
    assert_eq!(flags.unwrap().lengths.lengths(), expected);
    let work = parse(&["--work", "5000"]).unwrap().lengths.lengths();
    assert_eq!(work.memory, Some(MemoryWork::Requests(5_000)));
    let both = parse(&["--work", "5000", "--run-for", "1m"]);
    assert!(both.unwrap_err().contains("cannot be used with"));
    let load = [
        "--port",
        "1",
        "--load-cmd",
        "x",
        "--load-metric",
        "requests=1",
        "--work",
        "5",
        "--",
        "y",
    ];
    assert!(parse(&load).unwrap_err().contains("cannot be used with"));
}
