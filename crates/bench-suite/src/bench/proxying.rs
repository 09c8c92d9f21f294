//! The proxy beside haproxy and nginx as proxies, each with one thread and the same nginx as origin.
//!
//! The proxy that is measured has one CPU to itself; origin and generator share the other. All three keep their
//! connections to the origin and report the client in `X-Forwarded-For`; ours adds `Forwarded` and `Via` by default.
//! haproxy is left out where it is not installed.

use std::fmt;
use std::process::Command;
use std::time::Duration;

use crate::bench::callgrind;
use crate::bench::lean::Run;
use crate::bench::load::{number, run as run_load};
use crate::bench::nginx::path_with_sbin;
use crate::bench::server::{free_address, sum_metric};
use crate::bench::{lasting, text_of};

use super::Figure;
use super::lean::{Lean, Shape};
use super::server::Server;
use super::{Bench, measure_parts, nginx};

/// Connections of clients.
const CONNECTIONS: usize = 64;
/// Of every run that compares: long enough for some ten thousand requests.
const WINDOW: Duration = Duration::from_millis(800);
const WINDOW_OF_SMOKE: Duration = Duration::from_millis(100);

type Part = fn(&Bench, &Lean<'_>, &Server) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 3] = [
    ("rates", rates_measure),
    ("instructions", instructions_measure),
    ("latency", latency_measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let lean = Lean::build(bench)?;
    let origin = nginx::start_origin(bench)?;
    let parts = PARTS
        .iter()
        .map(|(name, part)| (*name, part(bench, &lean, &origin)));
    measure_parts(bench, "proxy", parts)
}

/// A proxy that takes turns with others.
struct Contestant {
    name: &'static str,
    server: Server,
}

/// Ours on both drivers, and the others that are installed.
fn contestants(bench: &Bench, origin: &Server) -> Result<Vec<Contestant>, String> {
    let mut all = Vec::new();
    for driver in ["uring", "epoll"] {
        let words = ["--driver", driver];
        let server = Server::millpond_proxy(bench, &origin.address, &words, &[])?;
        let name = driver;
        all.push(Contestant { name, server });
    }
    let origin = origin.address.to_string();
    all.push(Contestant {
        name: "nginx",
        server: nginx::start_proxy(bench, &origin)?,
    });
    match available() {
        Ok(()) => all.push(Contestant {
            name: "haproxy",
            server: start(bench, &origin, &[])?,
        }),
        Err(sentence) => println!("haproxy is left out: {sentence}"),
    }
    Ok(all)
}

fn shape(bench: &Bench) -> Shape {
    Shape {
        connections: CONNECTIONS,
        depth: 1,
        spin: false,
        window: match bench.plan.smoke {
            true => WINDOW_OF_SMOKE,
            false => WINDOW,
        },
    }
}

// The rival that is nothing but a proxy: haproxy with one thread that reuses connections always.

const CONFIGURATION: &str = "\
global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option http-keep-alive
    option forwardfor
    http-reuse always
frontend clients
    bind ADDRESS backlog 4096
    default_backend origin
backend origin
    server origin ORIGIN
";

/// Whether it is here; the sentence says what to do when not.
fn available() -> Result<(), String> {
    let mut version = Command::new("haproxy");
    version.env("PATH", path_with_sbin()).arg("-v");
    text_of(&mut version)
        .map(|_| ())
        .map_err(|error| format!("{error} (install the Debian package haproxy)"))
}

/// Starts it as one process in front of `origin`, behind the words in `before`.
fn start(bench: &Bench, origin: &str, before: &[String]) -> Result<Server, String> {
    let directory = bench.scratch.join("haproxy");
    let failed = |error: std::io::Error| format!("haproxy's directory: {error}");
    std::fs::create_dir_all(&directory).map_err(failed)?;
    let address = free_address()?;
    let text = CONFIGURATION
        .replace("ADDRESS", &address.to_string())
        .replace("ORIGIN", origin);
    let file = directory.join("haproxy.cfg");
    std::fs::write(&file, text).map_err(failed)?;
    let mut command = lasting(bench.machine.server_cpu);
    command.env("PATH", path_with_sbin());
    // In the foreground, without output.
    command.args(before).args(["haproxy", "-db", "-q", "-f"]);
    command.arg(&file);
    Server::start(command, address)
}

// Instructions per request passed on, by hardware counters or, where a machine hides those, by
// callgrind.
//
// Callgrind does not count the kernel: that cost is then reported as unknown, and not guessed.

const USER_MAX: f64 = 2_500.0;

/// By the best counter there is.
fn instructions_measure(
    bench: &Bench,
    lean: &Lean<'_>,
    origin: &Server,
) -> Result<Vec<Figure>, String> {
    match (callgrind::perf_available(), callgrind::available()) {
        (Ok(()), _) => by_perf(bench, lean, origin),
        (Err(hidden), Ok(())) => {
            println!("kernel instructions: not measurable here");
            println!("{hidden}");
            by_callgrind(bench, lean, origin)
        }
        (Err(hidden), Err(missing)) => {
            println!("instructions are not counted: {hidden}; {missing}");
            Ok(Vec::new())
        }
    }
}

/// With each of our drivers; the rivals are as they are.
fn by_perf(bench: &Bench, lean: &Lean<'_>, origin: &Server) -> Result<Vec<Figure>, String> {
    let shape = shape(bench);
    let mut figures = Vec::new();
    for contestant in contestants(bench, origin)? {
        let (server, name) = (&contestant.server, contestant.name);
        let (mut user, mut kernel) = (Vec::new(), Vec::new());
        lean.run(server, &shape)?;
        for _ in 0..bench.plan.pairs.min(3) {
            let (text, counts) =
                callgrind::perf_count(bench, server, |words| lean.asking(server, &shape, words))?;
            let requests = Run::parse(&text)?.requests_in_all;
            user.push(counts.user_instructions(requests));
            kernel.push(counts.kernel_instructions(requests));
        }
        let user = Figure::median(format!("proxy_{name}_user_instructions_per_request"), user);
        figures.push(match name {
            "uring" | "epoll" => user.at_most(USER_MAX),
            _ => user,
        });
        let name = format!("proxy_{name}_kernel_instructions_per_request");
        figures.push(Figure::median(name, kernel));
    }
    Ok(figures)
}

/// With the driver that valgrind can follow.
fn by_callgrind(bench: &Bench, lean: &Lean<'_>, origin: &Server) -> Result<Vec<Figure>, String> {
    let shape = shape(bench);
    let drive = |server: &Server, window| {
        Ok(lean
            .run(server, &Shape { window, ..shape })?
            .requests_in_all)
    };
    let named = |name: &str, count| {
        let name = format!("proxy_{name}_user_instructions_per_request_by_callgrind");
        Figure::median(name, vec![count])
    };
    let ours = |bench: &Bench, words: &[String]| {
        Server::millpond_proxy(bench, &origin.address, &["--driver", "epoll"], words)
    };
    let count = callgrind::user_instructions(bench, "proxy", ours, drive)?;
    let mut figures = vec![named("epoll", count).at_most(USER_MAX)];
    if bench.plan.smoke {
        return Ok(figures);
    }
    let address = origin.address.to_string();
    let rival = |bench: &Bench, words: &[String]| nginx::start_proxy_alone(bench, &address, words);
    let count = callgrind::user_instructions(bench, "proxy-nginx", rival, drive)?;
    figures.push(named("nginx", count));
    if available().is_ok() {
        let rival = |bench: &Bench, words: &[String]| start(bench, &address, words);
        let count = callgrind::user_instructions(bench, "proxy-haproxy", rival, drive)?;
        figures.push(named("haproxy", count));
    }
    Ok(figures)
}

// The time that a proxy adds to the 99th percentile at half load: the same constant rate sent to
// the origin and through each proxy, in turns.
//
// The rate is half of what the slowest candidate managed a moment before, so that no candidate is
// near its limit. The origin's own share is subtracted round by round; the rest may be less than
// zero by noise, and is then shown as zero. The comparison uses the whole: the origin's share is
// the same.

/// Rounds, each of as many runs as there are contestants and one more.
const ROUNDS_MAX: usize = 5;

/// Over all rounds.
fn latency_measure(bench: &Bench, lean: &Lean<'_>, origin: &Server) -> Result<Vec<Figure>, String> {
    // One of ours: the driver that is chosen by itself.
    let mut contestants = contestants(bench, origin)?;
    contestants.retain(|it| it.name != "epoll");
    let rate = half_load(bench, lean, &contestants)?;
    println!("{rate} requests a second to each");
    let mut direct = Vec::new();
    let mut through: Vec<Vec<f64>> = contestants.iter().map(|_| Vec::new()).collect();
    for round in 0..bench.plan.pairs.min(ROUNDS_MAX) {
        direct.push(p99_us(bench, "origin", origin, rate)?);
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let Contestant { name, server } = &contestants[index];
            through[index].push(p99_us(bench, name, server, rate)?);
        }
    }
    let mut figures = Vec::new();
    for (rival, theirs) in contestants.iter().zip(&through).skip(1) {
        let pairs = through[0].iter().zip(theirs);
        let ratios = pairs.map(|(ours, theirs)| ours / theirs).collect();
        let name = format!("proxy_half_load_p99_over_{}_ratio", rival.name);
        let figure = Figure::median(name, ratios);
        figures.push(match rival.name {
            "haproxy" => figure.at_most(1.0),
            _ => figure,
        });
    }
    for (contestant, p99s) in contestants.iter().zip(&through) {
        let pairs = p99s.iter().zip(&direct);
        let added = pairs.map(|(through, direct)| (through - direct).max(0.0));
        let name = format!("proxy_half_load_added_p99_{}_us", contestant.name);
        figures.push(Figure::median(name, added.collect()));
    }
    figures.push(Figure::median("proxy_half_load_origin_p99_us", direct));
    let rate = Figure::median("proxy_half_load_requests_per_s", vec![rate as f64]);
    figures.push(rate);
    Ok(figures)
}

/// Half of what the slowest of them does in a closed loop.
fn half_load(bench: &Bench, lean: &Lean<'_>, all: &[Contestant]) -> Result<u64, String> {
    let mut least = f64::INFINITY;
    for contestant in all {
        let run = lean.run(&contestant.server, &shape(bench))?;
        least = least.min(run.requests_per_s());
    }
    Ok((least / 2.0) as u64)
}

/// From the intended start to the response.
fn p99_us(bench: &Bench, name: &str, server: &Server, rate: u64) -> Result<f64, String> {
    let (rate, duration) = (rate.to_string(), if bench.plan.smoke { "1s" } else { "3s" });
    let connections = CONNECTIONS.to_string();
    let url = format!("http://{}/plaintext", server.address);
    let words = [
        "-t",
        "1",
        "-c",
        &connections,
        "-R",
        &rate,
        "-d",
        duration,
        &url,
    ];
    let record = run_load(bench, &words)?;
    let p99_us = number(&record, "response_ns/p99")? / 1e3;
    println!("{name}: p99 {p99_us:.0} us");
    Ok(p99_us)
}

// Requests per second, and for each second of the proxy's CPU, round by round; and how often a
// connection to the origin was one that had served before.
//
// A proxy that does less work than origin and generator together waits for them. Its requests per
// second then say little about it, and those for each second of its CPU say all: every line and a
// separate figure say which one was the limit.

const RATIO_MIN: f64 = 1.4;
const REUSE_SHARE_MIN: f64 = 0.999;
/// Drivers of ours and rivals, as contestants are called.
const OURS: [&str; 2] = ["uring", "epoll"];
const RIVALS: [&str; 2] = ["haproxy", "nginx"];

/// A value of a run, by the name that its figure has.
type Named = (&'static str, fn(&Measured) -> f64);

const PER_S: Named = ("requests_per_s", |it| it.run.requests_per_s());
const PER_CPU_S: Named = ("requests_per_cpu_s", |it| it.run.requests_per_cpu_s());
const OF_EACH: [Named; 4] = [
    PER_S,
    PER_CPU_S,
    ("cpu_share", |it| it.run.server_share()),
    ("origin_and_generator_cpu_share", |it| it.others_share),
];

/// One run of one proxy.
struct Measured {
    run: Run,
    /// Of origin and generator, which share a CPU.
    others_share: f64,
}

impl fmt::Display for Measured {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (per_s, per_cpu_s) = (self.run.requests_per_s(), self.run.requests_per_cpu_s());
        let (proxy, others) = (self.run.server_share(), self.others_share);
        write!(
            formatter,
            "{per_s:.0}/s, {per_cpu_s:.0} per second of CPU (proxy {proxy:.2}, origin and \
             generator {others:.2} of a CPU)"
        )
    }
}

/// All rounds, and what they say.
fn rates_measure(bench: &Bench, lean: &Lean<'_>, origin: &Server) -> Result<Vec<Figure>, String> {
    let contestants = contestants(bench, origin)?;
    let mut table: Vec<Vec<Measured>> = Vec::new();
    for contestant in &contestants {
        // First touches of memory and of connections are not what is compared.
        run(bench, lean, origin, contestant)?;
        table.push(Vec::new());
    }
    let used_before = connections_used(&contestants[0], origin)?;
    for round in 0..bench.plan.pairs {
        let mut order: Vec<usize> = (0..contestants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let contestant = &contestants[index];
            let measured = run(bench, lean, origin, contestant)?;
            println!("round {}: {} {measured}", round + 1, contestant.name);
            table[index].push(measured);
        }
    }
    let mut figures = ratios(&contestants, &table);
    let used = connections_used(&contestants[0], origin)?;
    figures.push(reuse(used_before, used)?);
    for (contestant, runs) in contestants.iter().zip(&table) {
        for (what, value) in OF_EACH {
            let name = format!("proxy_{}_{what}", contestant.name);
            figures.push(Figure::median(name, runs.iter().map(value).collect()));
        }
    }
    Ok(figures)
}

fn run(
    bench: &Bench,
    lean: &Lean<'_>,
    origin: &Server,
    contestant: &Contestant,
) -> Result<Measured, String> {
    let before = origin.cpu_time()?;
    let run = lean.run(&contestant.server, &shape(bench))?;
    let used = origin.cpu_time()?.saturating_sub(before);
    // The origin also worked before and after the window.
    let origin_s = used.as_secs_f64() / run.requests_in_all as f64;
    let others_share = run.generator_share() + origin_s * run.requests_per_s();
    Ok(Measured { run, others_share })
}

/// Ours over each rival, round by round.
fn ratios(contestants: &[Contestant], table: &[Vec<Measured>]) -> Vec<Figure> {
    let runs_of = |name: &str| {
        let index = contestants.iter().position(|it| it.name == name)?;
        table.get(index)
    };
    let mut figures = Vec::new();
    for (what, value) in [PER_S, PER_CPU_S] {
        for rival in RIVALS {
            for our in OURS {
                let (Some(ours), Some(theirs)) = (runs_of(our), runs_of(rival)) else {
                    continue;
                };
                let pairs = ours.iter().zip(theirs);
                let name = format!("proxy_{what}_{our}_over_{rival}_ratio");
                let ratios = pairs.map(|(ours, theirs)| value(ours) / value(theirs));
                figures.push(Figure::median(name, ratios.collect()).at_least(RATIO_MIN));
            }
        }
    }
    figures
}

/// Uses of connections to the origin so far: those of kept ones, those of new ones.
fn connections_used(contestant: &Contestant, origin: &Server) -> Result<[f64; 2], String> {
    let text = contestant.server.get("/metrics")?;
    let of_kind = |kind: &str| {
        let metric = "millpond_upstream_connections_used_total";
        let sample = format!(
            "{metric}{{upstream=\"{}\",kind=\"{kind}\"}}",
            origin.address
        );
        sum_metric(&text, &sample).ok_or_else(|| format!("/metrics has no {sample}"))
    };
    Ok([of_kind("reused")?, of_kind("new")?])
}

fn reuse(before: [f64; 2], after: [f64; 2]) -> Result<Figure, String> {
    let [reused, new] = [after[0] - before[0], after[1] - before[1]];
    if reused + new <= 0.0 {
        return Err("the proxy counted no use of a connection in all rounds".to_owned());
    }
    let share = reused / (reused + new);
    println!("{reused:.0} requests on kept connections, {new:.0} on new ones");
    Ok(Figure::median("proxy_connection_reuse_share", vec![share]).at_least(REUSE_SHARE_MIN))
}

#[cfg(test)]
#[path = "tests/rates.rs"]
mod rates_tests;
