//! What a proxy adds to the 99th percentile at half load: the same constant rate sent to the origin
//! and through each proxy, in turns.
//!
//! The rate is half of what the slowest contestant managed a moment before, so that nobody is near
//! its limit. The origin's own share is subtracted round by round; what is left of noise may be less
//! than nothing, and is shown as nothing. Compared is the whole: the origin's share is the same.

use super::{Contestant, contestants, shape};
use crate::bench::Bench;
use crate::bench::figure::Figure;
use crate::bench::lean::Lean;
use crate::bench::load::{number, run as run_load};
use crate::bench::server::Server;

/// Rounds, each of as many runs as there are contestants and one more.
const ROUNDS_MAX: usize = 5;

/// Over all rounds.
pub(super) fn measure(
    bench: &Bench,
    lean: &Lean<'_>,
    origin: &Server,
) -> Result<Vec<Figure>, String> {
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

/// From the intended start to the answer.
fn p99_us(bench: &Bench, name: &str, server: &Server, rate: u64) -> Result<f64, String> {
    let (rate, duration) = (rate.to_string(), if bench.plan.smoke { "1s" } else { "3s" });
    let connections = super::CONNECTIONS.to_string();
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
