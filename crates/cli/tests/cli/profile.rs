//! `millpond profile` from the command line to the files.

use crate::support::{Server, curl, millpond, run};
use std::path::Path;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Goal: our own server without any flags that name it: every file is there, the figures are in the
/// record, and the text names the heaviest.
#[test]
fn our_own_server_is_profiled() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("graphs");
    let json = directory.path().join("figures.json");
    let words = [
        "profile",
        "--rounds",
        "1",
        "--duration",
        "1s",
        "--sample-bytes",
        "4K",
    ];
    let mut command = millpond(&words);
    command
        .args(["--connections", "8", "--seed", "3", "--out"])
        .arg(&out);
    let finished = run(command.arg("--json").arg(&json));
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(finished.stdout.contains("allocations: "), "{finished:?}");
    assert!(
        finished.stdout.contains("this profiler took"),
        "{finished:?}"
    );
    let record: serde_json::Value = serde_json::from_str(&read(&json)).unwrap();
    assert_eq!(
        record,
        serde_json::from_str::<serde_json::Value>(&read(&out.join("profile.json"))).unwrap()
    );
    let candidate = &record["candidates"][0];
    assert_eq!(candidate["name"], "glibc with pools");
    assert!(
        candidate["allocations"]["samples"].as_u64().unwrap() > 0,
        "{candidate}"
    );
    assert_eq!(candidate["allocations"]["sample_bytes"], 4096);
    // RocksDB asks for memory, and its names are found.
    let bytes = read(&out.join("alloc-bytes.folded"));
    assert!(bytes.contains("rocksdb"), "{bytes}");
    assert!(read(&out.join("alloc-count.svg")).contains("class=\"mpflame\""));
    assert!(out.join("alloc.pb.gz").is_file());
    let notes = record["notes"].to_string();
    if notes.contains("no CPU graph") {
        eprintln!("skipped: {notes}");
    } else {
        assert!(read(&out.join("cpu.folded")).contains("millpond"));
        // How many there are is the machine's doing.
        assert!(
            candidate["cpu"]["samples"].as_u64().unwrap() > 0,
            "{candidate}"
        );
    }
}

/// Goal: a running server is sampled by its id, under load; a process that is not there is named.
#[test]
fn a_running_server_is_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("graphs");
    let server = Server::start(&["plaintext"]);
    assert_eq!(curl(&[&server.url("/plaintext")]).0, 200);
    let pid = server.process.pid().to_string();
    let url = server.url("/plaintext");
    let words = [
        "profile",
        "--duration",
        "2s",
        "--connections",
        "4",
        "--url",
        &url,
        "--pid",
    ];
    let profile = |pid: &str| run(millpond(&words).args([pid, "--out"]).arg(&out));
    let gone = profile("2147483600");
    assert_eq!(gone.code(), 1, "{gone:?}");
    assert!(
        gone.sentence().contains("no process 2147483600"),
        "{gone:?}"
    );
    let finished = profile(&pid);
    if finished.code() == 1 && finished.stderr.contains("perf ") {
        eprintln!("skipped: {finished:?}");
        return;
    }
    assert_eq!(finished.code(), 0, "{finished:?}");
    assert!(
        finished.stdout.contains("no allocation graphs"),
        "{finished:?}"
    );
    assert!(read(&out.join("cpu.svg")).contains("CPU time"));
}
