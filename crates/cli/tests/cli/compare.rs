//! Refusals of the comparison; what it measures is tested where it is made.

use crate::support::{free_port, millpond, run};
use std::path::Path;

fn compare(words: &[&str], out: &Path) -> crate::support::Finished {
    run(millpond(&["compare", "--out", &out.display().to_string()]).args(words))
}

/// Goal: an allocator that does not exist is one sentence that names it.
#[test]
fn an_unknown_allocator_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let finished = compare(&["--allocators", "glibc,frobnicator"], &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.sentence().contains("frobnicator"), "{finished:?}");
}

/// Goal: an allocator without a list of settings is refused with those that have one, before anything starts.
#[test]
fn an_allocator_without_settings_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let finished = compare(&["--settings", "mempool"], &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    let sentence = finished.sentence();
    assert!(
        sentence.contains("--settings mempool") && sentence.contains("glibc, jemalloc"),
        "{finished:?}"
    );
    assert!(!out.exists());
}

/// Goal: a directory with anything in it that is not ours is a wrong command line, and all of it stays. Whatever names
/// the program gives its own folders, a foreign directory has files in folders of those names.
#[test]
fn a_strangers_directory_stays_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let folders = ["data", "logs", "raw", "flamegraphs", "preset"];
    let files = folders.map(|folder| directory.path().join(folder).join("thesis"));
    for file in &files {
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(file, "mine").unwrap();
    }
    let this_process = std::process::id().to_string();
    let commands: [&[&str]; 5] = [
        &["compare", "--allocators", "glibc"],
        &["compare", "--preset", "mempool", "--preset-share", "0.001"],
        &[
            "compare",
            "--preset",
            "everscale",
            "--preset-share",
            "0.001",
        ],
        &["profile", "--rounds", "1", "--duration", "1s"],
        &["profile", "--duration", "1s", "--pid", &this_process],
    ];
    for words in commands {
        // As a user whose working directory it is and who wants the report there.
        let mut command = millpond(words);
        command.args(["--out", "."]).current_dir(directory.path());
        command.env("MILLPOND_LOCK", "");
        let finished = run(&mut command);
        assert_eq!(finished.code(), 2, "{words:?}: {finished:?}");
        assert!(finished.sentence().contains("--out"), "{finished:?}");
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            folders.len()
        );
        for file in &files {
            assert_eq!(std::fs::read_to_string(file).unwrap(), "mine", "{words:?}");
        }
    }
}

/// Goal: a second comparison on the machine is refused with a sentence that names the first.
#[test]
fn one_comparison_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let (out, lock) = (
        directory.path().join("report"),
        directory.path().join("lock"),
    );
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    std::fs::write(&lock, format!("{}\n", std::process::id())).unwrap();
    let words = ["compare", "--allocators", "glibc", "--out"];
    let mut second = millpond(&words);
    second.arg(&out).env("MILLPOND_LOCK", &lock);
    let finished = run(&mut second);
    assert_eq!(finished.code(), 1, "{finished:?}");
    let who = format!("(process {})", std::process::id());
    for part in ["another comparison is running", &who, "MILLPOND_LOCK"] {
        assert!(finished.sentence().contains(part), "{finished:?}");
    }
}

/// Goal: a program that cannot be started is a failure that names it, not an empty report.
#[test]
fn a_missing_program_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let words = ["--url", "http://127.0.0.1:9/", "--", "/nowhere/server"];
    let finished = compare(&words, &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(finished.stderr.contains("/nowhere/server"), "{finished:?}");
    assert!(!out.join("results.json").exists());
}

/// Goal: the list names every allocator, with its version or the way to get it, and the one without
/// a package.
#[test]
fn allocators_are_listed() {
    let finished = run(&mut millpond(&["allocators"]));
    assert_eq!(finished.code(), 0, "{finished:?}");
    let names = "glibc jemalloc tcmalloc mimalloc mempool scudo tbb mimalloc2 mimalloc3 snmalloc \
                 rpmalloc hardened";
    for name in names.split_whitespace() {
        let line = finished
            .stdout
            .lines()
            .find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {finished:?}"));
        let is_told = line.contains("not here: ") || line.contains('.');
        assert!(is_told, "{line}");
    }
    assert!(finished.stdout.contains("lockless"), "{finished:?}");
}

/// Goal: a setting that the allocator would pass over is refused before anything is started.
#[test]
fn an_unknown_setting_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let finished = compare(
        &["--allocators", "glibc,glibc:arenas=2,tcache_count=0"],
        &out,
    );
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished
            .sentence()
            .contains("no tunable glibc.malloc.arenas"),
        "{finished:?}"
    );
}

/// Goal: a program that no preloaded library can serve is refused at once, with the reason.
#[test]
fn a_static_program_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (
        directory.path().join("main.c"),
        directory.path().join("main"),
    );
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = std::process::Command::new("cc");
    let compiled = compiler.args(["-static", "-o"]).arg(&program).arg(&source);
    assert!(compiled.status().unwrap().success());
    let out = directory.path().join("report");
    let program = program.display().to_string();
    let words = ["--url", "http://127.0.0.1:9/", "--", &program];
    let finished = compare(&words, &out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("statically linked"),
        "{finished:?}"
    );
    assert!(!out.join("results.json").exists());
}

/// Goal: a server that does not speak HTTP is compared by its own load program, and its output is in the text and in
/// the record.
#[test]
#[ignore = "slow tier: a whole comparison, 25 s; that of lab is in the fast tier"]
fn redis_is_compared_by_its_own_benchmark() {
    let is_there = |program: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    };
    if !is_there("redis-server") || !is_there("redis-benchmark") {
        eprintln!(
            "skipped: redis-server or redis-tools is not installed; scripts/setup installs them"
        );
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let port = free_port().to_string();
    let pattern = "throughput=regex:^\"SET\",\"([0-9.]+)\"";
    let words = [
        "--allocators",
        "glibc,mempool",
        "--rounds",
        "2",
        "--time-budget",
        "10s",
        "--port",
        &port,
        "--ready",
        "log:Ready to accept connections",
        "--check-cmd",
        "redis-cli -p $MILLPOND_PORT set key value",
        "--load-cmd",
        "redis-benchmark -p $MILLPOND_PORT -t set -n 2000 -c 5 --csv",
        "--load-metric",
        pattern,
        "--load-metric",
        "requests=2000",
        "--load-metric",
        "longest[ms,lower]=regex:\"([0-9.]+)\"$",
        "--",
        "redis-server",
        "--port",
        &port,
        "--save",
        "",
    ];
    let finished = compare(&words, &out);
    // 4: the machine was not quiet enough for the clock.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    assert!(finished.stdout.contains("longest"), "{finished:?}");
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["subject"]["native_allocator"], "jemalloc");
    valid_and_shown_again(&out, &record);
    let load = record["settings"]["load_command"].as_str().unwrap();
    assert!(load.starts_with("redis-benchmark"), "{load}");
    for candidate in record["candidates"].as_array().unwrap() {
        let measures = &candidate["rounds"][0]["measures"];
        let rate = measures["request.throughput_per_s"].as_f64().unwrap();
        assert!(rate > 0.0, "{candidate}");
        assert!(
            measures["request.custom:longest:ms:lower"].is_number(),
            "{candidate}"
        );
    }
    checked_against(
        &out.join("results.json"),
        &words,
        &directory.path().join("later"),
    );
}

/// Goal: `--profile` puts flame graphs into page and record, which are valid and come again, and names the
/// files' directory; the memory over time has its phases.
#[test]
#[ignore = "slow tier: a whole comparison with flame graphs, a minute"]
fn a_comparison_is_profiled() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("report");
    let words = "--profile --allocators glibc,mempool --pools on --rounds 2 --time-budget 60s \
                 --connections 4 --seed 5";
    let words: Vec<&str> = words.split_whitespace().collect();
    let finished = compare(&words, &out);
    // 4: the machine was not quiet enough for the clock.
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    valid_and_shown_again(&out, &record);
    let graphs = record["flame_graphs"].as_array().unwrap();
    assert!(!graphs.is_empty(), "{finished:?}");
    let has = |name: &str| {
        let mut graphs = graphs.iter();
        graphs.any(|one| one["kind"] == "allocated_bytes" && one["candidate"] == name)
    };
    // On a slow machine a fifth of the time budget has no room for all of them, and the output says so.
    let is_left_out = |name: &str| {
        let mut warnings = record["warnings"].as_array().unwrap().iter();
        let one = format!("{name} (allocations)");
        let tells = |text: &str| text.starts_with("no flame graphs of ") && text.contains(&one);
        warnings.any(|warning| warning.as_str().is_some_and(tells))
    };
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    for name in ["glibc with pools", "mempool with pools"] {
        assert!(has(name) != is_left_out(name), "{name}: {finished:?}");
        let file = format!("flamegraphs/{}/alloc-bytes.svg", name.replace(' ', "-"));
        assert_eq!(out.join(file).is_file(), has(name), "{name}");
        let heading = format!("Bytes asked for of {name}");
        assert_eq!(page.contains(&heading), has(name), "{name}");
    }
    assert!(page.contains("bands: the phases of glibc with pools"));
    let phases = &record["candidates"][0]["rounds"][0]["memory_course"]["phases"];
    let phases: Vec<&str> = phases
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .filter(|name| *name != "warm-up")
        .collect();
    assert_eq!(phases, ["put throughput", "get throughput", "idle"]);
}

/// Goal: compare checks itself against an earlier record: refused at once if that is of another server,
/// and else judged, with the verdicts in text and record.
fn checked_against(earlier: &Path, words: &[&str], out: &Path) {
    let earlier = earlier.display().to_string();
    let other = [
        "--baseline",
        &earlier,
        "--url",
        "http://127.0.0.1:9/",
        "--",
        "cat",
    ];
    let finished = compare(&other, out);
    assert_eq!(finished.code(), 1, "{finished:?}");
    assert!(
        finished.sentence().contains("another subject"),
        "{finished:?}"
    );
    let again = [&["--baseline", &earlier], words].concat();
    let finished = compare(&again, out);
    // Two rounds of each can prove nothing: nothing was judged.
    assert_eq!(finished.code(), 4, "{finished:?}");
    assert!(
        finished.stdout.contains("Against the earlier record"),
        "{finished:?}"
    );
    let text = std::fs::read_to_string(out.join("results.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&text).unwrap();
    let questions = record["regression"]["questions"].as_array().unwrap();
    let names: Vec<&str> = questions
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["throughput", "memory", "work"]);
    valid_and_shown_again(out, &record);
}

/// The written record is valid by its schema, and its page can be made from it again.
fn valid_and_shown_again(out: &Path, record: &serde_json::Value) {
    let schema = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/results.schema.json"
    );
    let problems = crate::schema_check::problems(schema, record);
    assert!(problems.is_empty(), "{problems:?}");
    let page = std::fs::read(out.join("report.html")).unwrap();
    let (file, again) = (out.join("results.json"), out.join("again.html"));
    let words = [file.as_os_str(), "--out".as_ref(), again.as_os_str()];
    let finished = run(millpond(&["report"]).args(words));
    // A value that the check could not judge then is not judged now.
    let is_checked = record.get("regression").is_some();
    let code = if is_checked { 4 } else { 0 };
    assert_eq!(finished.code(), code, "{finished:?}");
    assert!(std::fs::read(again).unwrap() == page, "another page");
}
