//! `serve plaintext` against nginx: work per request, in interleaved pairs.

use super::figure::Figure;
use super::perf::Counted;
use super::server::Server;
use super::wrk::{Load, Timed};
use super::{Bench, nginx, perf, step, wrk};
use std::fmt;

/// nginx needs about 7,000.
const USER_INSTRUCTIONS_MAX: f64 = 1_500.0;
const CYCLES_RATIO_MAX: f64 = 0.85;

/// Ours and nginx, of one pair.
type Pair<T> = (T, T);

/// Measures both and compares pair by pair.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    match perf::available() {
        Ok(()) => counted(bench),
        Err(sentence) => {
            println!("{sentence}");
            println!("CPU time stands in for cycles, and stepping counts the instructions");
            uncounted(bench)
        }
    }
}

/// With hardware counters: the figures as they are meant.
fn counted(bench: &Bench) -> Result<Vec<Figure>, String> {
    let pairs = run_pairs(bench, perf::run)?;
    let figure = |name, value: fn(&Pair<Counted>) -> f64| {
        Figure::median(name, pairs.iter().map(value).collect::<Vec<_>>())
    };
    Ok(vec![
        figure("plaintext_user_instructions_per_request", |(ours, _)| {
            ours.user_instructions()
        })
        .at_most(USER_INSTRUCTIONS_MAX),
        figure("plaintext_cycles_over_nginx_ratio", |(ours, rival)| {
            ours.cycles() / rival.cycles()
        })
        .at_most(CYCLES_RATIO_MAX),
        figure("plaintext_kernel_instructions_per_request", |(ours, _)| {
            ours.kernel_instructions()
        }),
        figure("plaintext_cycles_per_request", |(ours, _)| ours.cycles()),
        figure("plaintext_requests_per_s", |(ours, _)| {
            ours.answers.requests_per_s
        }),
        figure("nginx_user_instructions_per_request", |(_, rival)| {
            rival.user_instructions()
        }),
        figure("nginx_kernel_instructions_per_request", |(_, rival)| {
            rival.kernel_instructions()
        }),
        figure("nginx_cycles_per_request", |(_, rival)| rival.cycles()),
        figure("nginx_requests_per_s", |(_, rival)| {
            rival.answers.requests_per_s
        }),
    ])
}

/// Without: CPU time on the same CPU at the same clock is cycles but for a constant.
fn uncounted(bench: &Bench) -> Result<Vec<Figure>, String> {
    let pairs = run_pairs(bench, wrk::timed)?;
    let figure = |name, value: fn(&Pair<Timed>) -> f64| {
        Figure::median(name, pairs.iter().map(value).collect::<Vec<_>>())
    };
    let mut figures = vec![
        figure("plaintext_cpu_time_over_nginx_ratio", |(ours, rival)| {
            ours.cpu_us / rival.cpu_us
        })
        .at_most(CYCLES_RATIO_MAX),
        figure("plaintext_cpu_per_request_us", |(ours, _)| ours.cpu_us),
        figure("plaintext_requests_per_s", |(ours, _)| ours.requests_per_s),
        figure("nginx_cpu_per_request_us", |(_, rival)| rival.cpu_us),
        figure("nginx_requests_per_s", |(_, rival)| rival.requests_per_s),
    ];
    // A round of stepping takes seconds: nothing for a smoke run.
    if !bench.plan.smoke {
        let ours = Server::millpond(bench, &["plaintext"])?;
        let stepped = step::user_instructions(bench, &ours)?;
        let name = "plaintext_user_instructions_per_request";
        figures.push(Figure::median(name, stepped).at_most(USER_INSTRUCTIONS_MAX));
        let stepped = step::user_instructions(bench, &nginx::start(bench)?)?;
        figures.push(Figure::median(
            "nginx_user_instructions_per_request",
            stepped,
        ));
    }
    Ok(figures)
}

fn run_pairs<T: fmt::Display>(
    bench: &Bench,
    run: fn(&Bench, &Server, &Load) -> Result<T, String>,
) -> Result<Vec<Pair<T>>, String> {
    let ours = Server::millpond(bench, &["plaintext"])?;
    let rival = nginx::start(bench)?;
    let load = Load {
        path: "/plaintext",
        script: None,
        duration: bench.plan.run,
    };
    // Warm both: first touches of memory and branch history are not what is compared.
    wrk::run(bench, &ours, &load)?;
    wrk::run(bench, &rival, &load)?;
    let mut pairs = Vec::new();
    for number in 0..bench.plan.pairs {
        let pair = if number % 2 == 0 {
            let ours = run(bench, &ours, &load)?;
            (ours, run(bench, &rival, &load)?)
        } else {
            let rival = run(bench, &rival, &load)?;
            (run(bench, &ours, &load)?, rival)
        };
        println!("pair {}: millpond {}; nginx {}", number + 1, pair.0, pair.1);
        pairs.push(pair);
    }
    Ok(pairs)
}
