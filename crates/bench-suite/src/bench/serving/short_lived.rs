//! One request on each connection: `ab` without keep-alive, for a file of five bytes.
//!
//! ab keeps all its connections open at once, so the time of each is theirs divided by how many are
//! served per second. A server that forgets some, or whose queue is too short, shows by a longer
//! tail than that.

use crate::bench::Figure;
use crate::bench::lean::Lean;
use crate::bench::server::Server;
use crate::bench::{Bench, build_without_entity, nginx};
use crate::bench::{bounded, text_of};
use std::path::Path;
use std::time::Duration;

const CONNECTIONS: usize = 10_000;
const REQUESTS: usize = 200_000;
const CONNECTIONS_OF_SMOKE: usize = 50;
const REQUESTS_OF_SMOKE: usize = 500;
/// Far more than any should take: a busy machine is no reason to fail.
const RUN_MAX: Duration = Duration::from_secs(300);

const P99_RATIO_MAX: f64 = 1.3;
const PEAK_MIB_MAX: f64 = 8.0;
/// The builds without RocksDB are what the bound on memory is for: a server of files needs none.
const RIVALS: [&str; 5] = [
    "uring",
    "epoll",
    "uring_without_entity",
    "epoll_without_entity",
    NGINX,
];
const NGINX: &str = "nginx";

/// Rounds over all of them, a fresh server for each run: the peak is of one run.
pub(super) fn measure(bench: &Bench, _lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    if let Err(sentence) = text_of(std::process::Command::new("ab").arg("-V")) {
        println!("connections without keep-alive are not measured: {sentence}");
        println!("ab is in the Debian package apache2-utils");
        return Ok(Vec::new());
    }
    let root = bench.scratch.join("www");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("index.html"), "hello"))
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let without_entity = build_without_entity(bench)?;
    let (connections, requests) = if bench.plan.smoke {
        (CONNECTIONS_OF_SMOKE, REQUESTS_OF_SMOKE)
    } else {
        (CONNECTIONS, REQUESTS)
    };
    println!("ab -c {connections} -n {requests}, without keep-alive");
    let mut runs: [Vec<Run>; RIVALS.len()] = Default::default();
    let mut broken_counts = [0; RIVALS.len()];
    for round in 0..bench.plan.pairs.min(3) {
        let mut order: Vec<usize> = (0..RIVALS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let rival = RIVALS[index];
            match run(bench, rival, &without_entity, &root, connections, requests) {
                Ok(run) => {
                    println!("round {}: {rival} {run}", round + 1);
                    runs[index].push(run);
                }
                // ab exits at the first reset: that is a result.
                Err(sentence) if !bench.plan.smoke => {
                    println!("round {}: {rival} BROKE OFF: {sentence}", round + 1);
                    broken_counts[index] += 1;
                }
                Err(sentence) => return Err(sentence),
            }
        }
    }
    let mut all = Vec::new();
    for (index, rival) in RIVALS.into_iter().enumerate() {
        let name = format!("server_ab_{rival}_runs_broken_off");
        let broken = Figure::median(name, vec![f64::from(broken_counts[index])]);
        all.push(if rival == NGINX {
            broken
        } else {
            broken.at_most(0.0)
        });
        if !runs[index].is_empty() {
            all.extend(figures(rival, &runs[index], connections));
        }
    }
    Ok(all)
}

/// ab's result, and the server's CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    ab: Ab,
    started_mib: f64,
    peak_mib: f64,
}

impl std::fmt::Display for Run {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ab {
            failed,
            requests_per_s,
            p99_ms,
        } = self.ab;
        let (started, peak) = (self.started_mib, self.peak_mib);
        write!(
            formatter,
            "{requests_per_s:.0}/s, {failed:.0} failed, p99 {p99_ms:.0} ms, peak {peak:.1} MiB, of \
             which {started:.1} before the first request"
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ab {
    failed: f64,
    requests_per_s: f64,
    p99_ms: f64,
}

fn run(
    bench: &Bench,
    rival: &str,
    without_entity: &Path,
    root: &Path,
    connections: usize,
    requests: usize,
) -> Result<Run, String> {
    let server = match rival {
        NGINX => nginx::start_files(bench, root, connections)?,
        driver => {
            let (driver, program) = match driver.strip_suffix("_without_entity") {
                Some(driver) => (driver, without_entity),
                None => (driver, bench.millpond.as_path()),
            };
            let words = ["files", &root.display().to_string(), "--driver", driver];
            Server::build_of_millpond(bench, program, &words)?
        }
    };
    let mib = |bytes: u64| bytes as f64 / (1024.0 * 1024.0);
    let started_mib = mib(server.peak_resident_bytes()?);
    let mut ab = bounded(bench.machine.generator_cpu, RUN_MAX);
    ab.args(["ab", "-q", "-c", &connections.to_string()]);
    ab.args(["-n", &requests.to_string()]);
    ab.arg(format!("http://{}/index.html", server.address));
    let ab = parse(&text_of(&mut ab)?, requests)?;
    Ok(Run {
        ab,
        started_mib,
        peak_mib: mib(server.peak_resident_bytes()?),
    })
}

fn figures(rival: &str, runs: &[Run], connections: usize) -> Vec<Figure> {
    let figure = |what: &str, value: &dyn Fn(&Run) -> f64| {
        let name = format!("server_ab_{rival}_{what}");
        Figure::median(name, runs.iter().map(value).collect())
    };
    let worst = runs.iter().map(|run| run.ab.failed).fold(0.0, f64::max);
    let mut failed = figure("failed_requests", &|run| run.ab.failed);
    // One failure in one run is a failure.
    failed.value = worst;
    let p99_ratio = figure("p99_over_connections_by_throughput_ratio", &|run| {
        run.ab.p99_ms / 1e3 / (connections as f64 / run.ab.requests_per_s)
    });
    let peak = figure("peak_rss_mib", &|run| run.peak_mib);
    let is_ours = rival != NGINX;
    let mut figures = if is_ours {
        vec![
            failed.at_most(0.0),
            p99_ratio.at_most(P99_RATIO_MAX),
            peak.at_most(PEAK_MIB_MAX),
        ]
    } else {
        vec![failed, p99_ratio, peak]
    };
    figures.extend([
        figure("peak_rss_above_start_mib", &|run| {
            run.peak_mib - run.started_mib
        }),
        figure("requests_per_s", &|run| run.ab.requests_per_s),
        figure("p99_ms", &|run| run.ab.p99_ms),
    ]);
    figures
}

/// Reads ab's text; fewer responses than asked for are no measurement.
fn parse(text: &str, requests: usize) -> Result<Ab, String> {
    let number = |begin: &str| {
        let line = text
            .lines()
            .find_map(|line| line.trim_start().strip_prefix(begin));
        let first = line.and_then(|line| line.split_whitespace().next());
        first
            .and_then(|word| word.parse::<f64>().ok())
            .ok_or_else(|| format!("ab said nothing of `{begin}`: {}", text.trim()))
    };
    let complete = number("Complete requests:")?;
    if complete < requests as f64 {
        return Err(format!("ab had {complete} responses, not {requests}"));
    }
    let wrong = number("Non-2xx responses:").unwrap_or(0.0);
    Ok(Ab {
        failed: number("Failed requests:")? + wrong,
        requests_per_s: number("Requests per second:")?,
        p99_ms: number("99%")?,
    })
}

#[cfg(test)]
#[path = "tests/short_lived.rs"]
mod tests;
