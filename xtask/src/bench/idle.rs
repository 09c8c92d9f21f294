//! What a connection costs that has nothing to say.

use super::Bench;
use super::figure::Figure;
use super::server::Server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Resident memory of `serve plaintext` with many idle connections, above that with none.
pub(crate) fn measure(bench: &Bench) -> Result<Vec<Figure>, String> {
    let mut runs = Vec::new();
    for _ in 0..bench.plan.pairs.min(3) {
        // A fresh process each time: what an earlier run left would hide what this one takes.
        let server = Server::millpond(bench, &["plaintext"], &[])?;
        server.get("/plaintext")?;
        settle();
        let without = server.resident_bytes()?;
        let connections = open(&server, bench.plan.idle_connections)?;
        settle();
        let with = server.resident_bytes()?;
        println!(
            "{} idle connections: {:.2} MiB, none: {:.2} MiB",
            connections.len(),
            mebibytes(with as f64),
            mebibytes(without as f64)
        );
        runs.push(mebibytes(with.saturating_sub(without) as f64));
    }
    Ok(vec![
        Figure::median("idle_1000_connections_rss_above_none_mib", runs).at_most(1.0),
    ])
}

/// Opens connections that have each asked once: idle means between requests.
fn open(server: &Server, count: usize) -> Result<Vec<TcpStream>, String> {
    let mut connections = Vec::new();
    for number in 0..count {
        let failed = |error: std::io::Error| {
            format!("connection {number}: {error} (ulimit -n has to be above {count})")
        };
        let mut stream = TcpStream::connect(server.address).map_err(failed)?;
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).map_err(failed)?;
        stream
            .write_all(b"GET /plaintext HTTP/1.1\r\nHost: bench\r\n\r\n")
            .map_err(failed)?;
        let mut answer = [0; 1024];
        let mut len = 0;
        while !answer[..len].ends_with(b"Hello, World!") {
            match stream.read(&mut answer[len..]).map_err(failed)? {
                0 => return Err(format!("connection {number} was closed by the server")),
                more => len += more,
            }
        }
        connections.push(stream);
    }
    Ok(connections)
}

fn settle() {
    std::thread::sleep(Duration::from_millis(500));
}

fn mebibytes(bytes: f64) -> f64 {
    bytes / (1024.0 * 1024.0)
}
