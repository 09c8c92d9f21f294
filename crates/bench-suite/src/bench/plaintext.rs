//! `serve plaintext` against nginx: work per request, in interleaved pairs.

use super::Figure;
use super::callgrind::Counted;
use super::generator::{Generator, Timed};
use super::interleave;
use super::server::Server;
use super::{Bench, callgrind, nginx};
use std::fmt::Display;

/// nginx needs about 7,000.
const USER_INSTRUCTIONS_MAX: f64 = 1_500.0;
const CYCLES_RATIO_MAX: f64 = 0.85;
const NAMES: [&str; 2] = ["millpond", "nginx"];

/// Ours and nginx, of one pair.
type Pair<T> = (T, T);

/// Measures both and compares pair by pair.
pub(super) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    match callgrind::perf_available() {
        Ok(()) => counted(bench),
        Err(sentence) => {
            println!("{sentence}");
            println!("CPU time stands in for cycles, callgrind for the counter of instructions");
            let mut figures = timed(bench)?;
            figures.extend(instructions_by_callgrind(bench)?);
            Ok(figures)
        }
    }
}

/// With hardware counters: the proper figures.
fn counted(bench: &Bench) -> Result<Vec<Figure>, String> {
    let by_wrk = run_pairs(bench, Generator::Wrk, |server| {
        callgrind::run(bench, server, Generator::Wrk, bench.plan.run)
    })?;
    let by_millpond = run_pairs(bench, Generator::Millpond, |server| {
        callgrind::run(bench, server, Generator::Millpond, bench.plan.run)
    })?;
    let ratio = |(ours, rival): &Pair<Counted>| ours.cycles() / rival.cycles();
    let figure = |name, value: fn(&Pair<Counted>) -> f64| median(name, &by_wrk, value);
    Ok(vec![
        figure("plaintext_user_instructions_per_request", |(ours, _)| {
            ours.user_instructions()
        })
        .at_most(USER_INSTRUCTIONS_MAX),
        median("plaintext_cycles_over_nginx_ratio_by_wrk", &by_wrk, ratio)
            .at_most(CYCLES_RATIO_MAX),
        median(
            "plaintext_cycles_over_nginx_ratio_by_millpond_load",
            &by_millpond,
            ratio,
        )
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

/// Without them: CPU time on the same CPU at the same clock is cycles times a constant.
fn timed(bench: &Bench) -> Result<Vec<Figure>, String> {
    let by_wrk = run_pairs(bench, Generator::Wrk, |server| {
        Generator::Wrk.timed(bench, server, bench.plan.run)
    })?;
    let by_millpond = run_pairs(bench, Generator::Millpond, |server| {
        Generator::Millpond.timed(bench, server, bench.plan.run)
    })?;
    let ratio = |(ours, rival): &Pair<Timed>| ours.cpu_ns / rival.cpu_ns;
    let ours_ns = |(ours, _): &Pair<Timed>| ours.cpu_ns;
    let rival_ns = |(_, rival): &Pair<Timed>| rival.cpu_ns;
    let ours_per_s = |(ours, _): &Pair<Timed>| ours.requests_per_s;
    let rival_per_s = |(_, rival): &Pair<Timed>| rival.requests_per_s;
    Ok(vec![
        median("plaintext_cpu_time_over_nginx_ratio_by_wrk", &by_wrk, ratio)
            .at_most(CYCLES_RATIO_MAX),
        median(
            "plaintext_cpu_time_over_nginx_ratio_by_millpond_load",
            &by_millpond,
            ratio,
        )
        .at_most(CYCLES_RATIO_MAX),
        median("plaintext_cpu_per_request_by_wrk_ns", &by_wrk, ours_ns),
        median("nginx_cpu_per_request_by_wrk_ns", &by_wrk, rival_ns),
        median("plaintext_requests_by_wrk_per_s", &by_wrk, ours_per_s),
        median("nginx_requests_by_wrk_per_s", &by_wrk, rival_per_s),
        median(
            "plaintext_cpu_per_request_by_millpond_load_ns",
            &by_millpond,
            ours_ns,
        ),
        median(
            "nginx_cpu_per_request_by_millpond_load_ns",
            &by_millpond,
            rival_ns,
        ),
        median(
            "plaintext_requests_by_millpond_load_per_s",
            &by_millpond,
            ours_per_s,
        ),
        median(
            "nginx_requests_by_millpond_load_per_s",
            &by_millpond,
            rival_per_s,
        ),
    ])
}

/// One method for both servers; nothing but a sentence where valgrind is missing.
fn instructions_by_callgrind(bench: &Bench) -> Result<Vec<Figure>, String> {
    if let Err(sentence) = callgrind::available() {
        println!("instructions are not counted: {sentence}");
        return Ok(Vec::new());
    }
    let drive =
        |server: &Server, duration| Ok(Generator::Wrk.run(bench, server, duration)?.requests);
    let start = |bench: &Bench, words: &[String]| {
        Server::millpond(bench, &callgrind::SERVE_PLAINTEXT, words)
    };
    let ours = callgrind::user_instructions(bench, "plaintext", start, drive)?;
    let rival = callgrind::user_instructions(bench, "nginx", nginx::start_alone, drive)?;
    let name = "plaintext_user_instructions_per_request_by_callgrind";
    let ours = Figure::median(name, vec![ours]).at_most(USER_INSTRUCTIONS_MAX);
    let name = "nginx_user_instructions_per_request_by_callgrind";
    Ok(vec![ours, Figure::median(name, vec![rival])])
}

fn median<T>(name: &'static str, pairs: &[Pair<T>], value: impl Fn(&Pair<T>) -> f64) -> Figure {
    Figure::median(name, pairs.iter().map(value).collect())
}

fn run_pairs<T: Display>(
    bench: &Bench,
    generator: Generator,
    run: impl Fn(&Server) -> Result<T, String>,
) -> Result<Vec<Pair<T>>, String> {
    println!("driven by {generator:?}");
    let ours = Server::millpond(bench, &["plaintext"], &[])?;
    let rival = nginx::start(bench)?;
    // Warm both: first touches of memory and branch history are not what is compared.
    generator.run(bench, &ours, bench.plan.run)?;
    generator.run(bench, &rival, bench.plan.run)?;
    interleave(bench.plan.pairs, NAMES, || run(&ours), || run(&rival))
}
