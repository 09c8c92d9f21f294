//! Many requests at once on each connection: requests per second beside nginx.
//!
//! Twice: by the lean client and by wrk with a script, which is not ours and slower.

use super::{plaintext, shape};
use crate::bench::figure::Figure;
use crate::bench::generator::{self, Answers};
use crate::bench::lean::{Lean, Rival, Run, rounds};
use crate::bench::pairs::interleave;
use crate::bench::server::Server;
use crate::bench::{Bench, command, nginx};
use std::fmt;
use std::time::Duration;

const CONNECTIONS: usize = 64;
/// How many at once, and how often nginx's rate that has to be.
const DEPTHS: [(usize, f64); 2] = [(16, 10.0), (128, 25.0)];

/// Both depths by both generators.
pub(super) fn measure(bench: &Bench, lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
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
        let mut wrk = command::bounded(bench.machine.generator_cpu, limit);
        wrk.args(["wrk", "-t", "1", "-c", &CONNECTIONS.to_string()]);
        wrk.args(["-d", &format!("{}s", duration.as_secs())]);
        wrk.arg("-s").arg(&script);
        wrk.arg(format!("http://{}/plaintext", server.address));
        Ok(ByWrk(generator::parse(&command::text_of(&mut wrk)?)?))
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
