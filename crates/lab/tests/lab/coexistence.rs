//! Servers that insist on one port, or take it from somewhere: how their copies live at the same time.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use millpond_io::NetworkNamespace;
use millpond_lab::{CompareConfig, LabError, Target, compare};
use millpond_measure::record::{Coexistence, ComparisonRecord, RoundStatus};

use crate::common::{free_address, short_comparison};

/// Responds to every GET; its first argument, in Python, is where it listens. A second argument names a file that only
/// one copy can hold. Head and body leave together: a second packet would wait 40 ms for the first one's
/// acknowledgement.
const SERVER: &str = "import fcntl, http.server, os, sys\n\
    class Handler(http.server.BaseHTTPRequestHandler):\n\
    \x20   protocol_version = 'HTTP/1.1'\n\
    \x20   wbufsize = 65536\n\
    \x20   def do_GET(self):\n\
    \x20       self.send_response(200)\n\
    \x20       self.send_header('content-type', os.environ.get('KIND', 'text/plain'))\n\
    \x20       self.send_header('content-length', '2')\n\
    \x20       self.end_headers()\n\
    \x20       self.wfile.write(b'ok')\n\
    \x20   def log_message(self, *words): pass\n\
    if len(sys.argv) > 2:\n\
    \x20   held = open(sys.argv[2], 'w')\n\
    \x20   fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)\n\
    http.server.ThreadingHTTPServer(('127.0.0.1', int(eval(sys.argv[1]))), Handler).serve_forever()\n";

/// A comparison of that server, which listens where `port` says.
fn config(directory: &Path, port: &str, more: &[&str]) -> CompareConfig {
    let address = free_address();
    let port = port.replace("OWN", &address.port().to_string());
    let mut words = ["/usr/bin/env", "python3", "-c", SERVER, &port]
        .map(str::to_owned)
        .to_vec();
    words.extend(more.iter().map(|&word| word.to_owned()));
    let allocators = ["glibc", "mempool"].map(str::to_owned).to_vec();
    let mut config = short_comparison(directory, &words, address, allocators);
    config.emulated_counts = Some(0);
    config
}

/// Compares; every run of it has to be done.
pub(crate) fn run(config: &CompareConfig) -> Result<ComparisonRecord, LabError> {
    let outcome = compare(config, &mut |_| {}, &AtomicBool::new(false))?;
    let record = outcome.record;
    let runs = record.candidates.iter().flat_map(|one| &one.rounds);
    for run in runs {
        assert_eq!(run.status, RoundStatus::Done, "{record:?}");
    }
    Ok(record)
}

fn way(record: &ComparisonRecord) -> Coexistence {
    record.settings.coexistence.expect("a way")
}

/// The result where the port is always the same: namespaces need a privilege.
fn at_one_port() -> Coexistence {
    match NetworkNamespace::create() {
        Ok(_) => Coexistence::Namespaces,
        Err(_) => Coexistence::OneAtATime,
    }
}

/// Goal: a port can stand in a variable of the user's.
#[test]
fn a_variable_has_a_place_for_the_port() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "os.environ['LISTEN'].split(':')[1]", &[]);
    config.options.environment = vec![("LISTEN".into(), "127.0.0.1:{port}".into())];
    assert_eq!(way(&run(&config).unwrap()), Coexistence::PortInCommand);
}

/// Goal: `PORT` is tried, with another value than the user set too.
#[test]
fn the_variable_port_is_tried() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), "os.environ['PORT']", &[]);
    let port = match &config.target {
        Target::Command { requests, .. } => requests.plan.target.addresses[0]
            .inet()
            .unwrap()
            .port()
            .to_string(),
        Target::Entity { .. } => unreachable!(),
    };
    config.options.environment = vec![("PORT".into(), port.into())];
    assert_eq!(way(&run(&config).unwrap()), Coexistence::PortVariable);
}

/// Goal: where the port is always the same, each copy has a network of its own, if that may be made.
#[test]
fn one_port_is_many_in_namespaces() {
    let directory = tempfile::tempdir().unwrap();
    let record = run(&config(directory.path(), "OWN", &[])).unwrap();
    assert_eq!(way(&record), at_one_port());
    let mut warnings = record.analysis.warnings.iter();
    let is_warned = warnings.any(|line| line.contains("lives at a time"));
    assert_eq!(is_warned, way(&record) == Coexistence::OneAtATime);
}

/// Goal: a conflict of a second copy with the first makes them run one at a time, and the report names it, with the
/// server's own last output.
#[test]
fn copies_that_exclude_each_other_live_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let lock = directory.path().join("lock");
    let lock = lock.display().to_string();
    let port = "os.environ.get('PORT', 'OWN')";
    let record = run(&config(directory.path(), port, &[&lock])).unwrap();
    assert_eq!(way(&record), Coexistence::OneAtATime);
    let mut warnings = record.analysis.warnings.iter();
    let warning = warnings
        .find(|line| line.contains("lives at a time"))
        .unwrap();
    assert!(warning.contains("BlockingIOError"), "{warning}");
}

/// Goal: a copy with a different response at its own address is not what is to be measured.
#[test]
fn other_answers_are_another_server() {
    let directory = tempfile::tempdir().unwrap();
    let port = "exec(\"if 'PORT' in os.environ: os.environ['KIND'] = 'text/html'\") or os.environ.get('PORT', 'OWN')";
    let record = run(&config(directory.path(), port, &[])).unwrap();
    assert_eq!(way(&record), at_one_port());
}
