//! Instructions per request passed on, by hardware counters or, where a machine hides those, by
//! callgrind.
//!
//! Callgrind sees no kernel: what that needs is then said to be unknown, and not guessed.

use super::{haproxy, shape};
use crate::bench::figure::Figure;
use crate::bench::lean::{Lean, Run, Shape};
use crate::bench::server::Server;
use crate::bench::{Bench, callgrind, nginx, perf};

const USER_MAX: f64 = 2_500.0;

/// By the best counter there is.
pub(super) fn measure(
    bench: &Bench,
    lean: &Lean<'_>,
    origin: &Server,
) -> Result<Vec<Figure>, String> {
    match (perf::available(), callgrind::available()) {
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
    for contestant in super::contestants(bench, origin)? {
        let (server, name) = (&contestant.server, contestant.name);
        let (mut user, mut kernel) = (Vec::new(), Vec::new());
        lean.run(server, &shape)?;
        for _ in 0..bench.plan.pairs.min(3) {
            let (text, counts) =
                perf::count(bench, server, |words| lean.asking(server, &shape, words))?;
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
    if haproxy::available().is_ok() {
        let rival = |bench: &Bench, words: &[String]| haproxy::start(bench, &address, words);
        let count = callgrind::user_instructions(bench, "proxy-haproxy", rival, drive)?;
        figures.push(named("haproxy", count));
    }
    Ok(figures)
}
