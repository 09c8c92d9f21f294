//! What a request costs on each driver, and beside nginx: CPU time per request.
//!
//! Requests for each second of the server's CPU are what compares servers of which none is at its
//! limit. CPU time on one CPU at one clock is cycles but for a constant, and there is always some.

use super::{plaintext, shape};
use crate::bench::figure::Figure;
use crate::bench::lean::{Lean, Rival, Run, Runs, Shape, rounds};
use crate::bench::server::Server;
use crate::bench::{Bench, nginx};
use std::process::Command;

/// Where servers are compared: more connections than fit into a batch, never one that sleeps.
const BUSY_CONNECTIONS: usize = 500;
const OVER_NGINX_MIN: f64 = 2.5;
const OVER_EPOLL_MIN: f64 = 1.15;

/// Other shapes at which io_uring may not lose.
const SHAPES: [(usize, usize); 5] = [(1, 1), (8, 1), (64, 1), (512, 1), (64, 16)];
const NOT_SLOWER_MAX: f64 = 1.03;

/// How long a server looks for the next request before it sleeps, in microseconds: longer than a
/// client needs that has to be woken.
const BUSY_POLL_US: &str = "200";
const BUSY_POLL_MIN: f64 = 4.0;

/// All of it.
pub(super) fn measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
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
