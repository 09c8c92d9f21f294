//! The entity server's own description at `/openapi.json`, against its behaviour, by requests that schemathesis
//! generates from it: with the store in memory, and with RocksDB, tokens and checkpoints.
//!
//! schemathesis comes from the Python package index into a virtual environment of its own in the
//! target directory.

use crate::bench::server::free_address;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xtask::{TestTally, cargo, metadata, one_number, run_command};

/// Requests generated for each operation by default.
const EXAMPLES_DEFAULT: u64 = 200;

const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Longest start.
const START_MAX: Duration = Duration::from_secs(30);

/// A token that may write, so that no request is refused.
const TOKEN: &str = "schemathesis-0123456789";

/// Facts that no description can express. A method that the server does not know is 501 (RFC 9110 15.6.2), where the
/// tool expects 405; tests of the API have both. Flush and compact are 500 where the engine has no such thing, as that in
/// memory. A range needs `start` or `after`. A date's day has to be that of its week; a server on one machine has one copy,
/// and a cluster as many as its keyspace; a request whose condition does not hold is a good one (412), and one whose
/// target is too long a bad one (414).
const SETTINGS: &str = r#"[parameters]
"header.Expires" = "Fri, 06 Nov 2093 08:49:37 GMT"
"query.replicas" = "1/1"

[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501", "503", "504", "507"]

[[operations]]
include-path-regex = "^/v0/admin/(flush|compact)$"
[operations.checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "500", "501", "503", "507"]

[[operations]]
include-path = "/v0/entities"
[operations.checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "400", "401", "403", "404", "412", "5xx"]

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "412", "413", "414", "5xx"]

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "401", "403", "404", "409", "412", "5xx"]
"#;

/// Sends requests to both servers; fails if any response is not described.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let examples = one_number(words, "examples", EXAMPLES_DEFAULT)?;
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    let target = PathBuf::from(target.ok_or("cargo names no target directory")?);
    build()?;
    let home = target.join("schemathesis");
    let schemathesis = install(&home)?;
    let settings = home.join("schemathesis.toml");
    write(&settings, SETTINGS)?;
    let mut ok = true;
    for (name, command) in servers(&target, &home)? {
        println!("\n--- {name}");
        let (_server, address) = start(command)?;
        let mut ask = Command::new(&schemathesis);
        ask.arg("--config-file").arg(&settings);
        ask.args([
            "run",
            "--checks",
            "all",
            "--exclude-checks",
            "unsupported_method",
            "--max-examples",
            &examples.to_string(),
        ]);
        ask.args(["--header", &format!("Authorization: Bearer {TOKEN}")]);
        ask.arg(format!("http://{address}/openapi.json"));
        ok &= run_command(ask.current_dir(&home), &mut TestTally::default())?;
    }
    match ok {
        true => Ok(()),
        false => Err("a response is not as described: each is shown above, with a curl".to_owned()),
    }
}

fn build() -> Result<(), String> {
    let words: [&[&str]; 2] = [
        &["--package", "millpond-entity", "--example", "serve"],
        &["--package", "millpond"],
    ];
    for words in words {
        let mut build = cargo();
        build.args(["build", "--locked"]).args(words);
        if !run_command(&mut build, &mut TestTally::default())? {
            return Err(format!("{} does not build", words[1]));
        }
    }
    Ok(())
}

/// Makes the environment, if it is not there with that version, and returns the program in it.
fn install(home: &Path) -> Result<PathBuf, String> {
    let program = home.join("bin/schemathesis");
    let mark = home.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|found| found == SCHEMATHESIS) {
        return Ok(program);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(home);
    let mut install = Command::new(home.join("bin/pip"));
    install.args(["install", "--quiet", SCHEMATHESIS]);
    let tests = &mut TestTally::default();
    if !run_command(&mut make, tests)? || !run_command(&mut install, tests)? {
        return Err(format!(
            "{SCHEMATHESIS} cannot be installed: it takes python3 with venv, and the network"
        ));
    }
    write(&mark, SCHEMATHESIS)?;
    Ok(program)
}

/// Both, without the address that they are to listen on.
fn servers(target: &Path, home: &Path) -> Result<[(&'static str, Command); 2], String> {
    let mut memory = Command::new(target.join("debug/examples/serve"));
    memory.arg("memory");
    let (data, checkpoints) = (home.join("data"), home.join("checkpoints"));
    let tokens = home.join("tokens");
    for directory in [&data, &checkpoints] {
        // The store of an earlier run; it may not be there.
        let _ = std::fs::remove_dir_all(directory);
    }
    std::fs::create_dir(&checkpoints)
        .map_err(|error| format!("{} cannot be made: {error}", checkpoints.display()))?;
    write(&tokens, TOKEN)?;
    let mut rocksdb = Command::new(target.join("debug/millpond"));
    rocksdb.args(["serve", "entity", "--memory", "64MiB"]);
    rocksdb.arg("--data").arg(data);
    rocksdb.arg("--checkpoints").arg(checkpoints);
    rocksdb.arg("--write-tokens").arg(tokens);
    rocksdb.arg("--listen");
    Ok([
        ("the store in memory", memory),
        ("RocksDB, tokens and checkpoints", rocksdb),
    ])
}

/// A running server; dropping it kills it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already: both are harmless.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(mut command: Command) -> Result<(Server, SocketAddr), String> {
    let address = free_address()?;
    command.arg(address.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command
        .spawn()
        .map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let mut server = Server(child);
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if let Ok(Some(status)) = server.0.try_wait() {
            return Err(format!("{command:?} ended at once: {status}"));
        }
        if begun.elapsed() > START_MAX {
            return Err(format!("{command:?} does not listen on {address}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok((server, address))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text)
        .map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
