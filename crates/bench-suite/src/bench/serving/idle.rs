//! The cost of an idle connection, between two requests, on both drivers.
//!
//! Twice: by what the pools say they reserved, which is each connection's, and by the resident memory that the kernel
//! counts, which includes everything else: tables that are no pool's (16 bytes for each), pages that are full in part,
//! and the shard's one set of receive buffers, which is given back while no client is connected (512 KiB under
//! io_uring).

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bench;
use crate::bench::Figure;
use crate::bench::descriptors_max;
use crate::bench::generator::Answers;
use crate::bench::interleave;
use crate::bench::lean::{Lean, Rival, Run, Runs, Shape, rounds};
use crate::bench::server::Server;
use crate::bench::{Bench, generator, nginx};

use super::{plaintext, shape};

const BYTES_PER_CONNECTION_MAX: f64 = 256.0;
const RSS_ABOVE_NONE_MIB_MAX: f64 = 4.0;
/// Longest time that the connections are held.
const HOLD_MAX: Duration = Duration::from_secs(90);
/// Descriptors of a server that are no connection.
const OTHER_DESCRIPTORS: u64 = 100;

/// Memory of one server.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident_bytes: f64,
    pooled_bytes: f64,
}

/// Both drivers.
pub(super) fn measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    let count = bench.plan.idle_connections;
    let needed = count as u64 + OTHER_DESCRIPTORS;
    if descriptors_max().is_some_and(|max| max < needed) {
        println!("idle connections are not measured: {count} need `ulimit -Hn` at {needed}");
        return Ok(Vec::new());
    }
    let mut figures = Vec::new();
    for driver in ["uring", "epoll"] {
        let (mut resident, mut pooled) = (Vec::new(), Vec::new());
        for _ in 0..bench.plan.pairs.min(2) {
            // A fresh process each time: what an earlier run left would hide what this one takes.
            let (none, all) = one_crowd(bench, lean, driver, count)?;
            resident.push(all.resident_bytes - none.resident_bytes);
            pooled.push(all.pooled_bytes - none.pooled_bytes);
            println!(
                "{driver}, {count} idle connections: {:.2} MiB, none: {:.2} MiB; in pools {:.2} \
                 and {:.2} MiB",
                mebibytes(all.resident_bytes),
                mebibytes(none.resident_bytes),
                mebibytes(all.pooled_bytes),
                mebibytes(none.pooled_bytes)
            );
        }
        let per_connection = |bytes: &Vec<f64>| bytes.iter().map(|it| it / count as f64).collect();
        let (by_rss, by_pools) = (per_connection(&resident), per_connection(&pooled));
        let above_none = resident.iter().map(|&bytes| mebibytes(bytes)).collect();
        let named = |what: &str| format!("server_idle_{driver}_{what}");
        figures.extend([
            Figure::median(named("bytes_per_connection_by_rss"), by_rss),
            Figure::median(named("bytes_per_connection_by_pools"), by_pools)
                .at_most(BYTES_PER_CONNECTION_MAX),
            Figure::median(named("rss_above_none_mib"), above_none).at_most(RSS_ABOVE_NONE_MIB_MAX),
        ]);
    }
    Ok(figures)
}

/// A server's memory without and with idle connections.
fn one_crowd(
    bench: &Bench,
    lean: &Lean<'_>,
    driver: &str,
    count: usize,
) -> Result<(Memory, Memory), String> {
    let server = plaintext(bench, driver)?;
    // One-time costs of any traffic (code, the kernel's receive buffers) belong to no connection.
    lean.run(&server, &shape(bench, 64, 16))?;
    let none = settled(&server)?;
    let crowd = Crowd::gather(lean, &server, count)?;
    let all = settled(&server)?;
    crowd.dismiss()?;
    Ok((none, all))
}

/// Memory once nothing more is given back. Asking is traffic too, hence the metrics come first.
fn settled(server: &Server) -> Result<Memory, String> {
    let mut before_bytes = 0;
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(1_200));
        let now_bytes = server.resident_bytes()?;
        if now_bytes == before_bytes {
            break;
        }
        before_bytes = now_bytes;
    }
    let pooled_bytes = server.metric("millpond_pool_reserved_bytes")?;
    Ok(Memory {
        resident_bytes: server.resident_bytes()? as f64,
        pooled_bytes,
    })
}

/// The process that holds the connections: one process may not have as many descriptors as both
/// ends need.
struct Crowd {
    client: Child,
}

impl Crowd {
    /// Returns when each connection has had one response.
    fn gather(lean: &Lean<'_>, server: &Server, count: usize) -> Result<Self, String> {
        let (address, count) = (server.address.to_string(), count.to_string());
        let words = ["--hold", "--connections", &count, &address, "/plaintext"];
        let client = lean
            .command(&[], HOLD_MAX, &words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the idle connections' client: {error}"))?;
        let mut crowd = Self { client };
        let mut line = String::new();
        if let Some(stdout) = crowd.client.stdout.take() {
            let outcome = BufReader::new(stdout).read_line(&mut line);
            outcome.map_err(|error| format!("the idle connections' client: {error}"))?;
        }
        if line.trim() == format!("holding {count}") {
            return Ok(crowd);
        }
        crowd.dismiss()?;
        Err(format!("{count} idle connections: the client ended early"))
    }

    /// Ends it; an error if a connection did not live so long.
    fn dismiss(mut self) -> Result<(), String> {
        drop(self.client.stdin.take());
        let status = self.client.wait();
        match status {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("idle connections were lost: {other:?}")),
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // Nothing when it has been waited for; else its input's end lets it go.
        drop(self.client.stdin.take());
        let _ = self.client.wait();
    }
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}

// The cost of a request on each driver, and beside nginx: CPU time per request.
//
// Requests per second of the server's CPU compare servers that are below their limit. CPU time on
// one CPU at one clock is cycles times a constant, and it is always measured.

/// Where servers are compared: more connections than fit into a batch, never one that sleeps.
const BUSY_CONNECTIONS: usize = 500;
const OVER_NGINX_MIN: f64 = 2.5;
const OVER_EPOLL_MIN: f64 = 1.15;

/// Other shapes at which io_uring may not lose.
const SHAPES: [(usize, usize); 5] = [(1, 1), (8, 1), (64, 1), (512, 1), (64, 16)];
const NOT_SLOWER_MAX: f64 = 1.03;

/// How long a server polls for the next request before it sleeps, in microseconds: longer than a
/// sleeping client needs to wake and send.
const BUSY_POLL_US: &str = "200";
const BUSY_POLL_MIN: f64 = 4.0;

/// All of it.
pub(super) fn drivers_measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    let uring = plaintext(bench, "uring")?;
    let epoll = plaintext(bench, "epoll")?;
    let mut figures = busy(bench, lean, &uring, &epoll)?;
    let few = [(8, 1), (64, 16)];
    let shapes = if bench.plan.smoke {
        &few[..]
    } else {
        &SHAPES[..]
    };
    for &(connections, depth) in shapes {
        let shape = shape(bench, connections, depth);
        figures.extend(against_each_other(bench, lean, &uring, &epoll, &shape)?);
    }
    drop((uring, epoll));
    figures.extend(busy_polling(bench, lean)?);
    figures.extend(unix_socket(bench, lean)?);
    Ok(figures)
}

/// Many connections, one request each: uring, epoll, nginx.
fn busy(
    bench: &Bench,
    lean: &Lean<'_>,
    uring: &Server,
    epoll: &Server,
) -> Result<Vec<Figure>, String> {
    println!("{BUSY_CONNECTIONS} connections, one request each");
    let nginx = nginx::start(bench)?;
    let shape = shape(bench, BUSY_CONNECTIONS, 1);
    let rivals = [("uring", uring), ("epoll", epoll), ("nginx", &nginx)]
        .map(|(name, server)| rival(name, server, shape));
    let runs = rounds(lean, bench.plan.pairs, &rivals)?;
    let [ours, epoll, nginx] = &runs[..] else {
        return Err("three rivals have three rows".to_owned());
    };
    let per_cpu_s = Run::requests_per_cpu_s;
    let named = |what: &str| format!("server_c{BUSY_CONNECTIONS}_{what}");
    let mut figures = vec![
        ours.over(
            nginx,
            named("requests_per_cpu_s_uring_over_nginx_ratio"),
            per_cpu_s,
        )
        .at_least(OVER_NGINX_MIN),
        ours.over(
            epoll,
            named("requests_per_cpu_s_uring_over_epoll_ratio"),
            per_cpu_s,
        )
        .at_least(OVER_EPOLL_MIN),
    ];
    for (name, runs) in [("uring", ours), ("epoll", epoll), ("nginx", nginx)] {
        figures.push(runs.figure(named(&format!("{name}_requests_per_cpu_s")), per_cpu_s));
        let own = [
            ("requests_per_s", Run::requests_per_s as fn(&Run) -> f64),
            ("server_cpu_share", Run::server_share),
            ("generator_cpu_share", Run::generator_share),
        ];
        for (what, value) in own {
            figures.push(runs.figure(named(&format!("{name}_{what}")), value));
        }
    }
    Ok(figures)
}

/// One shape on both drivers.
fn against_each_other(
    bench: &Bench,
    lean: &Lean<'_>,
    uring: &Server,
    epoll: &Server,
    shape: &Shape,
) -> Result<Vec<Figure>, String> {
    let (connections, depth) = (shape.connections, shape.depth);
    println!("{connections} connections, {depth} at once: uring against epoll");
    let rivals = [("uring", uring), ("epoll", epoll)].map(|(name, at)| rival(name, at, *shape));
    let runs = rounds(lean, bench.plan.pairs, &rivals)?;
    let [uring, epoll] = &runs[..] else {
        return Err("two rivals have two rows".to_owned());
    };
    let named = |what: &str| format!("server_c{connections}_depth{depth}_{what}");
    Ok(vec![
        uring
            .over(epoll, named("cpu_time_uring_over_epoll_ratio"), Run::cpu_ns)
            .at_most(NOT_SLOWER_MAX),
        uring.figure(named("uring_cpu_per_request_ns"), Run::cpu_ns),
        epoll.figure(named("epoll_cpu_per_request_ns"), Run::cpu_ns),
        uring.figure(named("uring_requests_per_s"), Run::requests_per_s),
        epoll.figure(named("epoll_requests_per_s"), Run::requests_per_s),
    ])
}

/// One connection, where a server sleeps between any two requests, or does not.
fn busy_polling(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    if !takes_busy_poll(bench) {
        println!("busy polling is not measured: this `millpond serve` has no flag --busy-poll");
        return Ok(Vec::new());
    }
    println!("one connection: sleeping, a polling server, and both ends polling");
    let sleeping = plaintext(bench, "uring")?;
    let words = [
        "plaintext",
        "--driver",
        "uring",
        "--busy-poll",
        BUSY_POLL_US,
    ];
    let polling = Server::millpond(bench, &words, &[])?;
    let shape = shape(bench, 1, 1);
    let spinning = Shape {
        spin: true,
        ..shape
    };
    let rivals = [
        rival("sleeping", &sleeping, shape),
        rival("polling", &polling, shape),
        rival("both polling", &polling, spinning),
    ];
    let runs = rounds(lean, bench.plan.pairs, &rivals)?;
    let [sleeping, polling, both] = &runs[..] else {
        return Err("three rivals have three rows".to_owned());
    };
    let per_s = Run::requests_per_s;
    let over = |runs: &Runs, name: &str| runs.over(sleeping, format!("server_c1_{name}"), per_s);
    Ok(vec![
        over(both, "busy_poll_of_both_ends_over_sleeping_ratio").at_least(BUSY_POLL_MIN),
        over(polling, "busy_poll_of_server_over_sleeping_ratio"),
        sleeping.figure("server_c1_sleeping_requests_per_s".to_owned(), per_s),
        polling.figure("server_c1_busy_poll_requests_per_s".to_owned(), per_s),
        both.figure("server_c1_both_polling_requests_per_s".to_owned(), per_s),
    ])
}

fn takes_busy_poll(bench: &Bench) -> bool {
    let mut help = Command::new(&bench.millpond);
    let output = help.args(["serve", "plaintext", "--help"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--busy-poll"))
}

/// For information: the same without TCP.
fn unix_socket(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    println!("{BUSY_CONNECTIONS} connections through a unix socket");
    let mut figures = Vec::new();
    for driver in ["uring", "epoll"] {
        let words = ["plaintext", "--driver", driver];
        let server = Server::millpond_on_unix(bench, &words)?;
        let shape = shape(bench, BUSY_CONNECTIONS, 1);
        let rivals = [rival("unix", &server, shape)];
        let runs = rounds(lean, bench.plan.pairs.min(3), &rivals)?;
        let name = format!("server_unix_c{BUSY_CONNECTIONS}_{driver}_requests_per_cpu_s");
        figures.extend(
            runs.iter()
                .map(|runs| runs.figure(name.clone(), Run::requests_per_cpu_s)),
        );
    }
    Ok(figures)
}

const fn rival<'a>(name: &'static str, server: &'a Server, shape: Shape) -> Rival<'a> {
    Rival {
        name,
        server,
        shape,
    }
}

// Many requests at once on each connection: requests per second beside nginx.
//
// Twice: by the lean client and by wrk with a script, which is not ours and slower.

const CONNECTIONS: usize = 64;
/// How many at once, and how often nginx's rate that has to be.
const DEPTHS: [(usize, f64); 2] = [(16, 10.0), (128, 25.0)];

/// Both depths by both generators.
pub(super) fn pipelined_measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    let ours = plaintext(bench, "uring")?;
    let rival = nginx::start(bench)?;
    let mut figures = Vec::new();
    for (depth, ratio_min) in DEPTHS {
        println!("{CONNECTIONS} connections, {depth} at once");
        figures.extend(by_lean(bench, lean, [&ours, &rival], depth, ratio_min)?);
        figures.extend(by_wrk(bench, [&ours, &rival], depth)?);
    }
    Ok(figures)
}

fn by_lean(
    bench: &Bench,
    lean: &Lean<'_>,
    servers: [&Server; 2],
    depth: usize,
    ratio_min: f64,
) -> Result<Vec<Figure>, String> {
    let shape = shape(bench, CONNECTIONS, depth);
    let [ours, nginx] = servers;
    let rivals = [("uring", ours), ("nginx", nginx)].map(|(name, server)| Rival {
        name,
        server,
        shape,
    });
    let runs = rounds(lean, bench.plan.pairs.min(5), &rivals)?;
    let [ours, nginx] = &runs[..] else {
        return Err("two rivals have two rows".to_owned());
    };
    let named = |what: &str| format!("server_depth{depth}_{what}");
    Ok(vec![
        ours.over(
            nginx,
            named("requests_per_s_over_nginx_ratio"),
            Run::requests_per_s,
        )
        .at_least(ratio_min),
        ours.figure(named("requests_per_s"), Run::requests_per_s),
        nginx.figure(named("nginx_requests_per_s"), Run::requests_per_s),
        ours.figure(named("server_cpu_share"), Run::server_share),
        ours.figure(named("generator_cpu_share"), Run::generator_share),
    ])
}

/// A run of wrk, as the line of a pair.
struct ByWrk(Answers);

impl fmt::Display for ByWrk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.0}/s by wrk", self.0.requests_per_s)
    }
}

fn by_wrk(bench: &Bench, servers: [&Server; 2], depth: usize) -> Result<Vec<Figure>, String> {
    let script = bench.scratch.join("pipeline.lua");
    let text = format!(
        "init = function(args)\n  local one = wrk.format('GET', '/plaintext')\n  \
         batch = string.rep(one, {depth})\nend\nrequest = function() return batch end\n"
    );
    std::fs::write(&script, text).map_err(|error| format!("{}: {error}", script.display()))?;
    let duration = Duration::from_secs(1);
    let run = |server: &Server| {
        let limit = duration + Duration::from_secs(60);
        let mut wrk = bench::bounded(bench.machine.generator_cpu, limit);
        wrk.args(["wrk", "-t", "1", "-c", &CONNECTIONS.to_string()]);
        wrk.args(["-d", &format!("{}s", duration.as_secs())]);
        wrk.arg("-s").arg(&script);
        wrk.arg(format!("http://{}/plaintext", server.address));
        Ok(ByWrk(generator::parse(&bench::text_of(&mut wrk)?)?))
    };
    let [ours, nginx] = servers;
    let count = bench.plan.pairs.min(5);
    let pairs = interleave(count, ["uring", "nginx"], || run(ours), || run(nginx))?;
    let rates = pairs
        .iter()
        .map(|(ours, nginx)| (ours.0.requests_per_s, nginx.0.requests_per_s));
    let (ours, nginx): (Vec<f64>, Vec<f64>) = rates.unzip();
    let ratios = ours.iter().zip(&nginx).map(|(a, b)| a / b).collect();
    let named = |what: &str| format!("server_depth{depth}_{what}");
    Ok(vec![
        Figure::median(named("requests_per_s_over_nginx_ratio_by_wrk"), ratios),
        Figure::median(named("requests_by_wrk_per_s"), ours),
        Figure::median(named("nginx_requests_by_wrk_per_s"), nginx),
    ])
}
