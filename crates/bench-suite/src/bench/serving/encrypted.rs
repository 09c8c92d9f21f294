//! TLS beside nginx: requests on connections that stay, and handshakes, full and resumed, for each
//! second of the server's CPU.
//!
//! Both have the same certificate (ECDSA P-256) and speak TLS 1.3 to the same client, which decides
//! the cipher. Handshakes are counted by OpenSSL's own `s_time`: each of its connections sends one
//! request and closes. That compares rustls and OpenSSL far more than the servers around them.

use crate::bench::Figure;
use crate::bench::interleave;
use crate::bench::lean::Lean;
use crate::bench::server::Server;
use crate::bench::{Bench, nginx};
use crate::bench::{bounded, text_of, text_of_load};
use serde_json::Value;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// All of it is to take a minute.
const PAIRS_MAX: usize = 6;
const CONNECTIONS: &str = "64";
const KEEP_ALIVE_MS: u64 = 800;
/// `s_time` has whole seconds only, and takes up to one more.
const HANDSHAKES_S: &str = "1";
/// Far more than any should take.
const RUN_MAX: Duration = Duration::from_secs(60);

const NAMES: [&str; 2] = ["millpond", "nginx"];

/// Drives a server for a while; how many requests or connections it served.
type Drive = fn(&Bench, &Server) -> Result<f64, String>;

/// A certificate and its key, as files.
pub(in crate::bench) struct Identity {
    pub(in crate::bench) certificate: PathBuf,
    pub(in crate::bench) key: PathBuf,
}

/// The counted unit: requests or connections.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    count: f64,
    server_cpu_s: f64,
}

impl Run {
    fn per_cpu_s(self) -> f64 {
        self.count / self.server_cpu_s
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.0} per CPU second", self.per_cpu_s())
    }
}

/// Both servers, three ways to drive them.
pub(super) fn measure(bench: &Bench, _lean: &Lean<'_>) -> Result<Vec<Figure>, String> {
    if let Err(sentence) = text_of(Command::new("openssl").arg("version")) {
        println!("TLS is not measured: {sentence}");
        return Ok(Vec::new());
    }
    let identity = make_identity(&bench.scratch.join("tls"))?;
    let (certificate, key) = (
        identity.certificate.display().to_string(),
        identity.key.display().to_string(),
    );
    let words = ["plaintext", "--tls-cert", &certificate, "--tls-key", &key];
    let ours = Server::millpond(bench, &words, &[])?;
    let rival = nginx::start_encrypted(bench, &identity)?;
    let mut figures = Vec::new();
    let ways: [(&str, Drive); 3] = [
        ("keep_alive_requests", keep_alive),
        ("full_handshakes", full_handshakes),
        ("resumed_handshakes", resumed_handshakes),
    ];
    for (name, drive) in ways {
        println!("{name} over TLS");
        let run = |server: &Server| {
            let before = server.cpu_time()?;
            let count = drive(bench, server)?;
            let used = server.cpu_time()?.saturating_sub(before);
            let server_cpu_s = used.as_secs_f64();
            Ok(Run {
                count,
                server_cpu_s,
            })
        };
        let pairs = bench.plan.pairs.min(PAIRS_MAX);
        let pairs = interleave(pairs, NAMES, || run(&ours), || run(&rival))?;
        figures.extend(compared(name, &pairs));
    }
    Ok(figures)
}

fn compared(name: &str, pairs: &[(Run, Run)]) -> [Figure; 3] {
    let figure = |what: &str, value: fn(&(Run, Run)) -> f64| {
        let name = format!("server_tls_{name}_per_cpu_s_{what}");
        Figure::median(name, pairs.iter().map(value).collect())
    };
    [
        figure("over_nginx_ratio", |(ours, rival)| {
            ours.per_cpu_s() / rival.per_cpu_s()
        }),
        figure(NAMES[0], |(ours, _)| ours.per_cpu_s()),
        figure(NAMES[1], |(_, rival)| rival.per_cpu_s()),
    ]
}

/// A self-signed certificate: the clients here accept any.
fn make_identity(directory: &Path) -> Result<Identity, String> {
    std::fs::create_dir_all(directory)
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    let identity = Identity {
        certificate: directory.join("certificate.pem"),
        key: directory.join("key.pem"),
    };
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt"]);
    command.args(["ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]);
    command.args(["-subj", "/CN=localhost", "-keyout"]);
    command
        .arg(&identity.key)
        .arg("-out")
        .arg(&identity.certificate);
    text_of(&mut command)?;
    Ok(identity)
}

/// Requests on connections that stay.
fn keep_alive(bench: &Bench, server: &Server) -> Result<f64, String> {
    let record = bench.scratch.join("tls").join("load.json");
    let mut command = bounded(bench.machine.generator_cpu, RUN_MAX);
    command.arg(&bench.millpond).args(["load", "--insecure"]);
    command.args(["-t", "1", "-c", CONNECTIONS, "--timeout", "20s"]);
    command.args(["-d", &format!("{KEEP_ALIVE_MS}ms"), "--json"]);
    command.arg(&record);
    command.arg(format!("https://{}/plaintext", server.address));
    text_of_load(&mut command)?;
    let text = std::fs::read_to_string(&record)
        .map_err(|error| format!("{} cannot be read: {error}", record.display()))?;
    requests_of(&text).ok_or_else(|| format!("a run over TLS had errors or no requests: {text}"))
}

/// The requests of `load --json`; a run with errors has none.
fn requests_of(text: &str) -> Option<f64> {
    let record: Value = serde_json::from_str(text).ok()?;
    let errors = record["errors"].as_object()?;
    if errors.values().any(|count| count.as_u64() != Some(0)) {
        return None;
    }
    record["requests"]
        .as_f64()
        .filter(|requests| *requests > 0.0)
}

fn full_handshakes(bench: &Bench, server: &Server) -> Result<f64, String> {
    handshakes(bench, server, "-new", '*')
}

fn resumed_handshakes(bench: &Bench, server: &Server) -> Result<f64, String> {
    handshakes(bench, server, "-reuse", 'r')
}

/// Connections of one request each, all of this kind.
fn handshakes(bench: &Bench, server: &Server, kind: &str, mark: char) -> Result<f64, String> {
    let mut command = bounded(bench.machine.generator_cpu, RUN_MAX);
    command.args(["openssl", "s_time", "-tls1_3", kind]);
    command.args(["-time", HANDSHAKES_S, "-www", "/plaintext", "-connect"]);
    command.arg(server.address.to_string());
    let text = text_of(&mut command)?;
    handshakes_of(&text, mark).ok_or_else(|| format!("`openssl s_time {kind}` said: {text}"))
}

/// Reads a line of marks, one for each connection (`r` resumed, `*` full), and the count below it.
fn handshakes_of(text: &str, mark: char) -> Option<f64> {
    let is_marks = |line: &&str| !line.is_empty() && line.chars().all(|c| c == '*' || c == 'r');
    let marks = text.lines().find(is_marks)?;
    let counted = text
        .lines()
        .find(|line| line.contains(" connections in "))?;
    let count: usize = counted.split(' ').next()?.parse().ok()?;
    (count > 0 && marks.len() == count && marks.chars().all(|c| c == mark)).then_some(count as f64)
}

#[cfg(test)]
#[path = "tests/encrypted.rs"]
mod tests;
