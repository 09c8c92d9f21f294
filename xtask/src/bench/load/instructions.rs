//! User instructions of the client for each request, by callgrind: nginx answers with a file of twelve
//! bytes. Two runs of different length, so that the difference holds neither start nor end. All of each process counts,
//! ours and wrk's: what is done once a second too, of which under callgrind there are fifty times as many to a request.

use super::TargetProgram;
use crate::bench::Bench;
use crate::bench::callgrind;
use crate::bench::figure::Figure;
use crate::bench::nginx;
use crate::bench::server::Server;

const CONNECTIONS: &str = "64";

pub(super) fn measure(bench: &Bench, _: &TargetProgram<'_>) -> Result<Vec<Figure>, String> {
    callgrind::available()?;
    let root = bench.scratch.join("load-files");
    std::fs::create_dir_all(&root)
        .and_then(|()| std::fs::write(root.join("twelve"), "twelve bytes"))
        .map_err(|error| format!("{}: {error}", root.display()))?;
    let server = nginx::start_files(bench, &root, 100)?;
    let mut figures = Vec::new();
    for (depth, limit) in [("1", 1_200.0), ("16", 280.0)] {
        let value = millpond(bench, &server, depth)?;
        println!("load, depth {depth}: {value:.0} user instructions per request by callgrind");
        let name = format!("load_c64_depth{depth}_user_instructions_per_request_by_callgrind");
        figures.push(Figure::median(name, vec![value]).at_most(limit));
    }
    let value = wrk(bench, &server)?;
    println!("wrk: {value:.0} user instructions per request by callgrind");
    let name = "load_wrk_c64_depth1_user_instructions_per_request_by_callgrind";
    figures.push(Figure::median(name, vec![value]));
    Ok(figures)
}

fn millpond(bench: &Bench, server: &Server, depth: &str) -> Result<f64, String> {
    let url = format!("http://{}/twelve", server.address);
    // Each run is many times what is under way at once, or how full its batches happen to be decides.
    let thousands: u64 = if bench.plan.smoke { 10 } else { 20 };
    let count = |thousands: u64| {
        let requests = (thousands * 1_000).to_string();
        // --driver: valgrind does not follow a ring's completions.
        let words = [
            "load",
            "-t",
            "1",
            "-c",
            CONNECTIONS,
            "--pipeline",
            depth,
            "--driver",
            "epoll",
            "--receive-stamps",
            "off",
            "--timeout",
            "60s",
            "--requests",
            &requests,
            &url,
        ];
        callgrind::instructions(bench, "load", &words)
    };
    Ok((count(3 * thousands)? - count(thousands)?) / (2_000 * thousands) as f64)
}

/// wrk stops by time alone; it says how many requests that were.
fn wrk(bench: &Bench, server: &Server) -> Result<f64, String> {
    let url = format!("http://{}/twelve", server.address);
    let count = |seconds: &str| {
        let words = [
            "-t",
            "1",
            "-c",
            CONNECTIONS,
            "-d",
            seconds,
            "--timeout",
            "60s",
            &url,
        ];
        callgrind::of_wrk(bench, &words)
    };
    let (short, few) = count(if bench.plan.smoke { "1s" } else { "2s" })?;
    let (long, many) = count(if bench.plan.smoke { "4s" } else { "8s" })?;
    if many <= few {
        return Err(format!(
            "wrk made {few} requests in its short run and {many} in its long one"
        ));
    }
    Ok((long - short) / (many - few))
}
