use super::*;
use crate::flags::{Cli, Command};
use clap::Parser;
use millpond_http::Method;
use millpond_load::{Arrivals, Rate, Workload};

fn parse(line: &str) -> Result<LoadFlags, String> {
    let words = ["millpond", "load"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(words)
        .map_err(|error| error.to_string())?
        .command
    {
        Command::Load(LoadJob::Run(flags)) => Ok(*flags),
        other => Err(format!("{other:?}")),
    }
}

fn config(line: &str) -> Result<LoadConfig, String> {
    parse(line)?.config().map_err(|failure| match failure {
        Failure::Usage(sentence) | Failure::Failed(sentence) => sentence,
    })
}

/// Goal: wrk's and wrk2's command lines mean what they mean there.
#[test]
fn the_flags_of_wrk_are_understood() {
    let config = config(
        "-t2 -c64 -d30s -R20k --timeout 5s -H Accept:text/plain --latency \
         http://127.0.0.1:8080/plaintext?a=b",
    )
    .unwrap();
    assert_eq!(
        (config.threads, config.connections, config.pipeline),
        (2, 64, 1)
    );
    assert_eq!(config.stop, Stop::after_ns(30_000_000_000));
    let rate = Rate::from_per_s(20_000.0).unwrap();
    let expected = Arrivals {
        seed: 1,
        ..Arrivals::constant(rate)
    };
    assert_eq!(config.mode, Mode::Open(expected));
    assert_eq!(config.timeout_ns, 5_000_000_000);
    assert_eq!(config.target.addresses[0].to_string(), "127.0.0.1:8080");
    assert_eq!(config.target.path, "/plaintext?a=b");
    let Workload::Static { fields, .. } = &config.workload else {
        unreachable!()
    };
    assert_eq!(fields[..], [("Accept".to_owned(), "text/plain".to_owned())]);
}

/// Goal: -H Host takes the place of the URL's server in the field and nowhere else, as in wrk and ab,
/// in requests of every kind.
#[test]
fn host_can_be_another_than_the_server() {
    let host = "-H host:example.org";
    for more in ["", "--put --keys 5", "--ycsb a --keys 5", "-H X:{seq}"] {
        let line = format!("{host} {more} http://127.0.0.1:8080/");
        let config = config(&line).unwrap();
        assert_eq!(config.target.host, "example.org", "{line}");
        assert_eq!(config.target.addresses[0].to_string(), "127.0.0.1:8080");
        let asked = format!("{:?}", config.workload).to_lowercase();
        assert!(!asked.contains("\"host\""), "{line}: {asked}");
    }
    let twice = config(&format!("{host} {host} http://127.0.0.1:8080/")).unwrap_err();
    assert!(twice.contains("once"), "{twice}");
    let drawn = config("-H Host:{uuid} http://127.0.0.1:8080/").unwrap_err();
    assert!(drawn.contains("no placeholder"), "{drawn}");
    // The server in the script's table.
    let scripted = config(&format!("{host} -s some.lua http://127.0.0.1:8080/")).unwrap();
    assert_eq!(scripted.target.host, "127.0.0.1:8080");
}

/// Goal: the defaults are wrk's, and one connection needs one thread.
#[test]
fn the_defaults_are_those_of_wrk() {
    let config = config("http://127.0.0.1/").unwrap();
    assert_eq!((config.threads, config.connections), (2, 10));
    assert_eq!(config.stop, Stop::after_ns(10_000_000_000));
    assert_eq!(config.mode, Mode::ClosedLoop);
    assert_eq!(
        super::tests::config("-c1 http://127.0.0.1/")
            .unwrap()
            .threads,
        1
    );
    let counted = super::tests::config("--requests 5k http://127.0.0.1/").unwrap();
    assert_eq!(counted.stop, Stop::after_requests(5_000));
    assert_eq!(
        (config.driver, config.busy_poll_ns),
        (DriverChoice::Epoll, 0)
    );
    let spinning = super::tests::config("--driver auto --busy-poll 20 http://127.0.0.1/");
    let spinning = spinning.unwrap();
    assert_eq!(
        (spinning.driver, spinning.busy_poll_ns),
        (DriverChoice::Auto, 20_000)
    );
}

/// Goal: the entity workloads take the server's root for its only path.
#[test]
fn entity_workloads_know_their_path() {
    let line = "--put --keys 1k --value-size 64 --requests 1k http://127.0.0.1:1";
    let put = config(line).unwrap();
    assert_eq!(put.target.path, "/v0/entity");
    let expected = Workload::EntityPut {
        keys: 1_000,
        value_bytes: 64,
        seed: 1,
    };
    assert_eq!(put.workload, expected);
    let get = config("--get --keys 7 --seed 3 http://127.0.0.1:1/other").unwrap();
    assert_eq!(get.target.path, "/other");
    assert_eq!(
        get.workload,
        Workload::EntityGet {
            keys: 7,
            value_bytes: 1024,
            seed: 3
        }
    );
}

/// Goal: a body comes from the command line or from a file.
#[test]
fn bodies_come_from_text_or_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    std::fs::write(&file, b"\x00from file").unwrap();
    let body = |line: &str| match config(line).unwrap().workload {
        Workload::Static { method, body, .. } => (method, body),
        other => unreachable!("{other:?}"),
    };
    let url = "http://127.0.0.1/";
    assert_eq!(body(&format!("--method POST --body ab {url}")).1, b"ab");
    let from_file = format!("--method PUT --body @{} {url}", file.display());
    assert_eq!(body(&from_file), (Method::Put, b"\x00from file".to_vec()));
    let error = config(&format!("--body @{}.absent {url}", file.display())).unwrap_err();
    assert!(error.contains("cannot be read"), "{error}");
}

/// Goal: sets of connections are refused where they make no sense, with the flag's name and the reason.
#[test]
fn wrong_sets_of_connections_are_named() {
    let url = "http://127.0.0.1/";
    for (line, part) in [
        (format!("--repeat 0 {url}"), "at least 1"),
        (format!("--repeat 2k {url}"), "--repeat: 2000 is not in"),
        (format!("--repeat 2 -s x.lua {url}"), "--script"),
        (format!("--repeat 2 --find-max p99<5ms {url}"), "--find-max"),
        (format!("--reconnect-every soon {url}"), "as 2s"),
        (
            format!("--reconnect-every 9 -c 10 {url}"),
            "fewer than the 10 connections",
        ),
        (format!("--reconnect-every 2s -s x.lua {url}"), "--script"),
        (
            format!("--reconnect-every 2s --find-max p99<5ms {url}"),
            "--find-max",
        ),
        (
            format!("--reconnect-every 2s --connection-ramp 1s {url}"),
            "--reconnect-every: with a connection ramp",
        ),
        (
            format!("--reconnect-every 2s --cookies {url}"),
            "--reconnect-every: users would lose",
        ),
    ] {
        let error = config(&line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}

/// Goal: an impossible measurement is refused with the flag's name and the reason.
#[test]
fn wrong_usage_is_named() {
    let url = "http://127.0.0.1/";
    for (line, part) in [
        (String::new(), "<URL>"),
        ("ftp://x/".to_owned(), "begin with http://"),
        (format!("-c 0 {url}"), "at least 1"),
        (
            format!("-t 4 -c 2 {url}"),
            "--threads 4 is more than --connections 2",
        ),
        (format!("-d 0s {url}"), "--duration"),
        (format!("--driver kqueue {url}"), "auto, uring or epoll"),
        (format!("--busy-poll long {url}"), "from 0 (off) to 1000"),
        (format!("-d soon {url}"), "--duration"),
        (format!("-R fast {url}"), "--rate"),
        (format!("--arrivals poisson {url}"), "--rate"),
        (format!("--trace /nowhere {url}"), "cannot be read"),
        (format!("--deadline 5ms {url}"), "give a rate"),
        (format!("--slo p99=5ms {url}"), "p99<5ms"),
        (format!("--find-max p99=5ms {url}"), "p99<5ms"),
        (format!("--find-max p99<5ms --slo p50<1ms {url}"), "--slo"),
        (
            format!("--find-max p99<5ms --requests 5 {url}"),
            "--requests",
        ),
        (
            format!("--find-max p99<5ms --report page.html {url}"),
            "--report",
        ),
        (format!("--find-max p99<5ms -g rows.tsv {url}"), "-g"),
        (format!("--precision 2% {url}"), "--find-max"),
        (format!("-H NoColon {url}"), "Name: value"),
        (format!("-H Na me:x {url}"), "--header"),
        (format!("-s script.lua --put --keys 5 {url}"), "--put"),
        (format!("-s script.lua {url} {url}"), "one URL"),
        (format!("--lua-seed 5 {url}"), "--script"),
        (format!("{url} -- word"), "--script"),
        (format!("--method CONNECT {url}"), "GET, HEAD"),
        (format!("--put {url}"), "--keys"),
        (format!("--put --get --keys 1 {url}"), "--get"),
        (format!("--keys 5 {url}"), "--keys is for --put"),
        (format!("--put --keys 5 --body x {url}"), "--body"),
        (format!("--pipeline 99k {url}"), "--pipeline: 99000"),
        (
            format!("--max-response-header 64KiB {url}"),
            "--max-response-header: 65536",
        ),
        (format!("-c 1G {url}"), "--connections: 1000000000"),
        (format!("-H Content-Length:1 {url}"), "--header: "),
        (format!("{url}{{nothing}}"), "path: {nothing}"),
        (
            format!("--json /nowhere/at/all.json {url}"),
            "does not exist",
        ),
    ] {
        let error = config(&line).unwrap_err();
        assert!(error.contains(part), "{line}: {error}");
    }
}
