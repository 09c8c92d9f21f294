//! The entity server on a cluster: three nodes of Apache Cassandra on this machine, and the tests that
//! take them.
//!
//! Place: its own subcommand. It installs Java and Maven where they are missing (`scripts/setup`),
//! has Maven fetch the jars once into the user's cache (`cassandra/pom.xml`), starts the nodes on
//! 127.0.0.1 to 3 (`node`), runs the tests of `millpond-entity` that need a cluster, and stops the
//! nodes by their ids. A test kills a node and asks for it back, by this program
//! (`MILLPOND_BENCH_SUITE`). With `secured` the nodes speak TLS alone and ask for a certificate
//! (`certificates`) and a password, and the same tests run again. Three nodes take more than a
//! gigabyte.

mod node;

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use node::{Home, NODES};
use xtask::{TestTally, cargo, run_command};

/// Of the jars; `pom.xml` has it too.
const VERSION: &str = "5.0.9";

/// A busy machine takes a minute for what a quiet one does in six seconds.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The tests on the nodes: the scenes that every engine runs, and those about several nodes.
const TESTS: [&str; 4] = ["cluster::", "api::", "records::", "range::"];

/// How nodes and clients authenticate each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Access {
    /// Not at all, in plaintext.
    Open,
    /// By certificates on both sides, and passwords.
    Secured,
}

/// `[secured] [TEST...]` or `[secured] beside COMMAND...`.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let (access, words) = match words {
        ["secured", rest @ ..] => (Access::Secured, rest),
        _ => (Access::Open, words),
    };
    match words {
        ["beside", command @ ..] => run_beside(access, command),
        filter => run_tests(access, filter),
    }
}

/// Starts a cluster, runs the tests on it, or only those whose names contain `filter`, and stops it.
fn run_tests(access: Access, filter: &[&str]) -> Result<(), String> {
    set_up()?;
    let cluster = Cluster::start(access)?;
    let scenes = match filter {
        [] => &TESTS,
        _ => filter,
    };
    let programs = [
        (["--lib"].as_slice(), filter),
        (&["--test", "entity"], scenes),
    ];
    let mut tests = TestTally::default();
    let mut is_good = true;
    for (program, names) in programs {
        let mut test = cargo();
        test.args(["test", "--locked", "--package", "millpond-entity"]);
        test.args(["--features", "distributed", "--no-fail-fast"]);
        // Those that take a cluster are passed over by all others.
        test.args(program)
            .args(["--", "--include-ignored"])
            .args(names);
        if access == Access::Open {
            test.args(["--skip", "cluster::secured::"]);
        }
        cluster.describe_to(&mut test)?;
        is_good &= run_command(&mut test, &mut tests)?;
    }
    print!("{tests}");
    match is_good {
        true => Ok(()),
        false => Err("a test failed; which one and why is printed above".to_owned()),
    }
}

/// Starts a cluster and runs `command` beside it, for measurements and manual checks.
fn run_beside(access: Access, command: &[&str]) -> Result<(), String> {
    set_up()?;
    let cluster = Cluster::start(access)?;
    let (program, words) = command.split_first().ok_or("no command behind `beside`")?;
    let mut beside = Command::new(program);
    beside.args(words);
    cluster.describe_to(&mut beside)?;
    match run_command(&mut beside, &mut TestTally::default())? {
        true => Ok(()),
        false => Err(format!("{program} failed")),
    }
}

/// Starts one node of a cluster that another run of this program has made, for a test.
pub(crate) fn start_node(home: &str, number: &str) -> Result<(), String> {
    let number = number.parse().ok().filter(|number| NODES.contains(number));
    let number = number.ok_or("a node has a number from 1 to 3")?;
    let home = Home::new(PathBuf::from(home), &jars_directory()?);
    home.start(number)?;
    home.wait_for(number, Instant::now() + START_TIMEOUT)
}

fn set_up() -> Result<(), String> {
    let setup = Command::new("scripts/setup").arg("cassandra").status();
    let setup = setup.map_err(|error| format!("scripts/setup cannot be run: {error}"))?;
    if !setup.success() {
        return Err("Java or Maven is missing; what to install is said above".to_owned());
    }
    check_java()?;
    fetch(&jars_directory()?)
}

/// Cassandra 5.0 runs on Java 11 and 17, and refuses later ones.
fn check_java() -> Result<(), String> {
    let output = Command::new("java").arg("-version").output();
    let output = output.map_err(|error| format!("java cannot be run: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    match java_major(&text) {
        Some(11 | 17) => Ok(()),
        found => Err(format!(
            "Cassandra {VERSION} runs on Java 11 or 17, and java is {}: put one of them first in PATH \
             (Debian 12: openjdk-17-jre-headless)",
            found.map_or("unknown".to_owned(), |major| major.to_string())
        )),
    }
}

/// From `openjdk version "17.0.15" 2025-04-15`.
fn java_major(text: &str) -> Option<u32> {
    let (_, quoted) = text.split_once('"')?;
    let digits = quoted.split(['.', '"', '-']).next()?;
    digits.parse().ok()
}

/// Outside the clone, so that the next one finds them.
fn jars_directory() -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = cache.or(home);
    let cache = cache.ok_or("there is no place for jars: set HOME or XDG_CACHE_HOME")?;
    Ok(cache.join("millpond/cassandra").join(VERSION).join("lib"))
}

/// Has Maven fetch the jars, unless they are there: complete or not at all.
fn fetch(jars: &Path) -> Result<(), String> {
    if jars.join(format!("cassandra-all-{VERSION}.jar")).exists() {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", jars.display());
    let part = jars.with_extension("part");
    std::fs::create_dir_all(&part).map_err(failed)?;
    println!(
        "fetching Cassandra {VERSION} (67 MB) into {}",
        jars.display()
    );
    let mut maven = Command::new("mvn");
    maven.args(["-q", "-B", "-f", "crates/bench-suite/src/cassandra/pom.xml"]);
    maven.args(["dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg(format!("-DoutputDirectory={}", part.display()));
    if !run_command(&mut maven, &mut TestTally::default())? {
        return Err("Maven could not fetch the jars; it says why above".to_owned());
    }
    std::fs::rename(&part, jars).map_err(failed)
}

/// Three nodes. Dropping it stops them and removes their data.
struct Cluster {
    home: Home,
}

impl Cluster {
    fn start(access: Access) -> Result<Self, String> {
        let name = format!("millpond-cassandra-{}", std::process::id());
        let home = std::env::temp_dir().join(name);
        let home = Home::new(home, &jars_directory()?);
        for number in NODES {
            home.check_free(number)?;
        }
        let cluster = Self { home };
        if access == Access::Secured {
            make(&cluster.home.certificates(), NODES)?;
        }
        let (start, deadline) = (Instant::now(), Instant::now() + START_TIMEOUT);
        // The first one is the seed of the others.
        cluster.home.start(1)?;
        cluster.home.wait_for(1, deadline)?;
        for number in 2..=3 {
            cluster.home.start(number)?;
        }
        for number in 2..=3 {
            cluster.home.wait_for(number, deadline)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        println!("three nodes of Cassandra {VERSION} are up after {seconds:.1} s");
        Ok(cluster)
    }

    /// Where the nodes are, for a test, and how to have one started.
    fn describe_to(&self, command: &mut Command) -> Result<(), String> {
        let program = std::env::current_exe();
        let program = program.map_err(|error| format!("this program has no name: {error}"))?;
        // The certificate of the last node is for localhost.
        command
            .env(
                "MILLPOND_CASSANDRA",
                "127.0.0.1,127.0.0.2,127.0.0.3,localhost",
            )
            .env("MILLPOND_CASSANDRA_HOME", self.home.path())
            .env("MILLPOND_BENCH_SUITE", program);
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in NODES {
            self.home.stop(number);
        }
        // Leftovers are in the temporary directory.
        let _ = std::fs::remove_dir_all(self.home.path());
    }
}

// Certificates for nodes and their clients, made anew for each cluster by openssl.
//
// Nodes are known in both ways that there are: the last one's certificate is for a host's name, those of the others are
// for their addresses. Java reads PEM, with a key in front of its chain.

/// `ca.pem` and what it has signed: `node1.pem` and so on, `client.crt` and `client.key`; and `stranger.*`, which
/// `ca.pem` has not signed.
fn make(directory: &Path, nodes: RangeInclusive<u8>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    sign(directory, "ca", &[])?;
    fs::rename(directory.join("ca.crt"), directory.join("ca.pem")).map_err(failed)?;
    sign(directory, "stranger", &[])?;
    let by_ca = [
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
    ];
    let last = *nodes.end();
    for number in nodes {
        let (name, host) = match number == last {
            true => (
                format!("node{number}"),
                "subjectAltName=DNS:localhost".to_owned(),
            ),
            false => (
                format!("node{number}"),
                format!("subjectAltName=IP:127.0.0.{number}"),
            ),
        };
        sign(directory, &name, &[&by_ca[..], &[&host]].concat())?;
        let read = |extension: &str| fs::read(directory.join(format!("{name}.{extension}")));
        let parts = [read("key").map_err(failed)?, read("crt").map_err(failed)?];
        fs::write(directory.join(format!("{name}.pem")), parts.concat()).map_err(failed)?;
    }
    let client = [&by_ca[..], &["extendedKeyUsage=clientAuth"]].concat();
    sign(directory, "client", &client)
}

/// Makes `NAME.key` and `NAME.crt`, signed by itself unless `words` say otherwise.
fn sign(directory: &Path, name: &str, words: &[&str]) -> Result<(), String> {
    let mut openssl = Command::new("openssl");
    openssl.current_dir(directory);
    openssl.args(["req", "-x509", "-newkey", "ec", "-days", "30", "-nodes"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-subj", &format!("/CN=millpond-test-{name}")]);
    openssl.args(["-keyout", &format!("{name}.key")]);
    openssl.args(["-out", &format!("{name}.crt")]).args(words);
    let output = openssl.output();
    let output = output.map_err(|error| format!("openssl cannot be run: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "openssl makes no certificate for {name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

#[cfg(test)]
#[path = "tests/cassandra.rs"]
mod tests;
