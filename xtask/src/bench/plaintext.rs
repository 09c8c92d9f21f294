//! `serve plaintext` against nginx: work per request, in interleaved pairs.

use super::figure::Figure;
use super::perf::Counted;
use super::server::Server;
use super::wrk::Load;
use super::{Bench, nginx, perf, wrk};

/// Ours and nginx, of one pair.
type Pair = (Counted, Counted);

/// Measures both and compares pair by pair.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    if let Err(sentence) = perf::available() {
        if bench.plan.smoke {
            println!("left out: {sentence}");
            return Ok(Vec::new());
        }
        return Err(sentence);
    }
    let pairs = run_pairs(bench)?;
    let figure = |name, value: fn(&Pair) -> f64| {
        Figure::median(name, pairs.iter().map(value).collect::<Vec<_>>())
    };
    Ok(vec![
        figure("plaintext_user_instructions_per_request", |(ours, _)| {
            ours.user_instructions()
        })
        .at_most(1_500.0),
        figure("plaintext_cycles_over_nginx_ratio", |(ours, rival)| {
            ours.cycles() / rival.cycles()
        })
        .at_most(0.85),
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

fn run_pairs(bench: &Bench) -> Result<Vec<Pair>, String> {
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
            let ours = perf::run(bench, &ours, &load)?;
            (ours, perf::run(bench, &rival, &load)?)
        } else {
            let rival = perf::run(bench, &rival, &load)?;
            (perf::run(bench, &ours, &load)?, rival)
        };
        println!("pair {}: millpond {}; nginx {}", number + 1, pair.0, pair.1);
        pairs.push(pair);
    }
    Ok(pairs)
}
