//! The server core: what a request, a pipelined request, an idle connection and a connection for
//! one request cost, on both drivers and beside nginx; requests and handshakes over TLS beside nginx.
//!
//! A closed loop without a rate has no meaningful latencies; the ones of `ab` are the exception,
//! since all its connections wait at once.

mod idle;
mod short_lived;
pub(super) mod encrypted;

use std::time::Duration;

use crate::bench::callgrind;
use crate::bench::lean::Run;

use super::Figure;
use super::lean::{Lean, Shape};
use super::server::Server;
use super::{Bench, measure_parts};

/// Of every run that compares: long enough for some ten thousand requests.
const WINDOW: Duration = Duration::from_millis(800);
const WINDOW_OF_SMOKE: Duration = Duration::from_millis(100);

type Part = fn(&Bench, &Lean<'_>) -> Result<Vec<Figure>, String>;

const PARTS: [(&str, Part); 6] = [
    ("drivers", idle::drivers_measure),
    ("pipelined", idle::pipelined_measure),
    ("instructions", instructions_measure),
    ("idle", idle::measure),
    ("short-lived", short_lived::measure),
    ("encrypted", encrypted::measure),
];

/// All of it.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let lean = Lean::build(bench)?;
    let parts = PARTS.iter().map(|(name, part)| (*name, part(bench, &lean)));
    measure_parts(bench, "server", parts)
}

/// So many connections with one or more requests at once.
fn shape(bench: &Bench, connections: usize, depth: usize) -> Shape {
    let window = if bench.plan.smoke {
        WINDOW_OF_SMOKE
    } else {
        WINDOW
    };
    Shape {
        connections,
        depth,
        spin: false,
        window,
    }
}

/// `serve plaintext` on a driver.
fn plaintext(bench: &Bench, driver: &str) -> Result<Server, String> {
    Server::millpond(bench, &["plaintext", "--driver", driver], &[])
}

// Instructions per request, by hardware counters or, where a machine hides those, by callgrind.
//
// Callgrind does not count the kernel: that cost is then reported as unknown, and not guessed.

/// A shape with what a request may cost there.
struct Goal {
    connections: usize,
    depth: usize,
    user_max: f64,
    kernel_max: Option<f64>,
    total_max: Option<f64>,
}

impl Goal {
    const fn new(connections: usize, depth: usize, user_max: f64) -> Self {
        Self {
            connections,
            depth,
            user_max,
            kernel_max: None,
            total_max: None,
        }
    }

    fn named(&self, what: &str) -> String {
        let (connections, depth) = (self.connections, self.depth);
        format!("server_c{connections}_depth{depth}_{what}")
    }
}

const KERNEL_MAX: Option<f64> = Some(13_900.0);

const GOALS: [Goal; 4] = [
    Goal {
        kernel_max: KERNEL_MAX,
        ..Goal::new(64, 1, 800.0)
    },
    Goal {
        kernel_max: KERNEL_MAX,
        ..Goal::new(512, 1, 800.0)
    },
    Goal {
        total_max: Some(1_300.0),
        ..Goal::new(64, 16, 350.0)
    },
    Goal::new(64, 128, 300.0),
];

/// Only to see that counting works.
const GOALS_OF_SMOKE: [Goal; 1] = [Goal::new(8, 16, 350.0)];

/// Every goal by the best counter there is.
fn instructions_measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    let goals = if bench.plan.smoke {
        &GOALS_OF_SMOKE[..]
    } else {
        &GOALS[..]
    };
    let mut figures = Vec::new();
    match (callgrind::perf_available(), callgrind::available()) {
        (Ok(()), _) => {
            for goal in goals {
                figures.extend(by_perf(bench, lean, goal)?);
            }
        }
        (Err(hidden), Ok(())) => {
            println!("kernel instructions, and user and kernel together: not measurable here");
            println!("{hidden}");
            for goal in goals {
                figures.push(by_callgrind(bench, lean, goal)?);
            }
        }
        (Err(hidden), Err(missing)) => {
            println!("instructions are not counted: {hidden}; {missing}");
        }
    }
    Ok(figures)
}

/// With the driver that is chosen by itself.
fn by_perf(bench: &Bench, lean: &Lean<'_>, goal: &Goal) -> Result<Vec<Figure>, String> {
    let server = Server::millpond(bench, &["plaintext"], &[])?;
    let shape = shape(bench, goal.connections, goal.depth);
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    lean.run(&server, &shape)?;
    for _ in 0..bench.plan.pairs.min(3) {
        let (text, counts) =
            callgrind::perf_count(bench, &server, |words| lean.asking(&server, &shape, words))?;
        let requests = Run::parse(&text)?.requests_in_all;
        user.push(counts.user_instructions(requests));
        kernel.push(counts.kernel_instructions(requests));
    }
    let total = user.iter().zip(&kernel).map(|(u, k)| u + k).collect();
    let kernel = Figure::median(goal.named("kernel_instructions_per_request"), kernel);
    let total = Figure::median(goal.named("instructions_per_request"), total);
    let within = |figure: Figure, limit: Option<f64>| match limit {
        Some(limit) => figure.at_most(limit),
        None => figure,
    };
    Ok(vec![
        Figure::median(goal.named("user_instructions_per_request"), user).at_most(goal.user_max),
        within(kernel, goal.kernel_max),
        within(total, goal.total_max),
    ])
}

/// With the driver that valgrind can follow.
fn by_callgrind(bench: &Bench, lean: &Lean<'_>, goal: &Goal) -> Result<Figure, String> {
    let shape = shape(bench, goal.connections, goal.depth);
    let name = format!("c{}-depth{}", goal.connections, goal.depth);
    let start = |bench: &Bench, words: &[String]| {
        Server::millpond(bench, &callgrind::SERVE_PLAINTEXT, words)
    };
    let drive = |server: &Server, window| {
        Ok(lean
            .run(server, &Shape { window, ..shape })?
            .requests_in_all)
    };
    let user = callgrind::user_instructions(bench, &name, start, drive)?;
    let name = goal.named("user_instructions_per_request_by_callgrind");
    Ok(Figure::median(name, vec![user]).at_most(goal.user_max))
}
