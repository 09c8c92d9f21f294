//! Requests per second, and for each second of the proxy's CPU, round by round; and how often a
//! connection to the origin was one that had served before.
//!
//! A proxy that does less work than origin and generator together waits for them. Its requests per
//! second then say little about it, and those for each second of its CPU say all: who was the limit
//! is in every line and in a figure of its own.

use super::{Contestant, contestants, shape};
use crate::bench::Bench;
use crate::bench::figure::Figure;
use crate::bench::lean::{Lean, Run};
use crate::bench::server::{Server, sum_metric};
use std::fmt;

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
    /// Of origin and generator, who share a CPU.
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
pub(super) fn measure(
    bench: &Bench,
    lean: &Lean<'_>,
    origin: &Server,
) -> Result<Vec<Figure>, String> {
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
mod tests {
    use super::*;

    /// Goal: only what was used between the two looks counts, and no use at all is no share.
    #[test]
    fn reuse_is_of_what_came_in_between() {
        let figure = reuse([10.0, 64.0], [1009.0, 65.0]).unwrap();
        assert!((figure.value - 0.999).abs() < 1e-12, "{}", figure.value);
        assert!(reuse([10.0, 64.0], [10.0, 64.0]).is_err());
    }
}
