//! `millpond load --script`: the command around wrk's Lua scripts.

use crate::support::{Finished, Running, Server, eventually, millpond, run};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A script in a directory that goes with it.
struct Script {
    _directory: tempfile::TempDir,
    file: PathBuf,
}

impl Script {
    fn new(code: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("own.lua");
        std::fs::write(&file, code).unwrap();
        Self {
            _directory: directory,
            file,
        }
    }

    /// `millpond load -s FILE WORDS URL -- ARGS`.
    fn command(&self, words: &[&str], url: &str, args: &[&str]) -> Command {
        let mut command = millpond(&["load", "-s"]);
        command.arg(&self.file).args(words).arg(url);
        command.arg("--").args(args);
        command
    }

    fn run(&self, words: &[&str], args: &[&str]) -> Finished {
        let server = Server::start(&["plaintext"]);
        run(&mut self.command(words, &server.url("/plaintext"), args))
    }
}

fn is_at(text: &str, parts: &[&str]) -> bool {
    let mut rest = text;
    parts.iter().all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

/// Goal: a script gets its words, its table and its figures, and what it prints stands where it was
/// said: before the run, and after its results.
#[test]
fn a_script_speaks_before_and_after_the_run() {
    let script = Script::new(
        "function setup(thread) thread:set('from_setup', 'yes') end
         function init(args)
            print('init', from_setup, args[1], args[2], wrk.method, wrk.body, wrk.headers['X-A'])
            wrk.method, wrk.body = 'GET', nil
         end
         function done(summary, latency, requests)
            print('done', summary.requests, latency:percentile(50) > 0)
         end",
    );
    let words = [
        "-t1",
        "-c2",
        "--requests",
        "300",
        "--method",
        "PUT",
        "--body",
        "b",
        "-H",
        "X-A: c",
    ];
    let finished = script.run(&words, &["one", "-two"]);
    assert!([0, 4].contains(&finished.code()), "{finished:?}");
    let parts = [
        "init\tyes\tone\t-two\tPUT\tb\tc\n",
        "300 requests in",
        "done\t300\ttrue\n",
    ];
    assert!(is_at(&finished.stdout, &parts), "{finished:?}");
}

/// Goal: seeded threads draw differently, and the seed says what.
#[test]
fn the_seed_of_a_script_is_a_flag() {
    let script = Script::new("function init() print('drew', math.random(1000000000)) end");
    let drawn = |seed: &str| {
        let words = ["-t2", "-c2", "--requests", "10", "--lua-seed", seed];
        let stdout = script.run(&words, &[]).stdout;
        let drawn = stdout.lines().filter(|line| line.starts_with("drew"));
        drawn.map(str::to_owned).collect::<Vec<_>>()
    };
    let first = drawn("1");
    assert!(first.len() == 2 && first[0] != first[1], "{first:?}");
    assert_eq!(first, drawn("1"));
    assert_ne!(first, drawn("2"));
}

/// Goal: a script that cannot be loaded is a sentence and status 1, before anything is printed.
#[test]
fn a_script_that_cannot_work_is_a_sentence() {
    let script = Script::new("function request() return 'GET / HTTP/1.1' end");
    let finished = script.run(&[], &[]);
    assert_eq!((finished.code(), finished.stdout.as_str()), (1, ""));
    let sentence = finished.sentence();
    assert!(sentence.contains("own.lua") && sentence.contains("incomplete request at 1:15"));
}

/// Goal: errors of a script during the run are reported, and are not success.
#[test]
fn a_script_that_fails_on_the_way_is_no_success() {
    let code = "local calls = 0
         function request()
            calls = calls + 1
            if calls == 50 then error('no fifty') end
            return wrk.format()
         end";
    let words = ["-t1", "-c1", "--requests", "100"];
    let finished = Script::new(code).run(&words, &[]);
    assert!([1, 4].contains(&finished.code()), "{finished:?}");
    assert!(finished.stdout.contains("99 requests in"), "{finished:?}");
    let told = ["the script failed 1 time, first in request(): ", "no fifty"];
    assert!(is_at(&finished.stderr, &told), "{finished:?}");

    let finished = Script::new("function done() error('in the end') end").run(&words, &[]);
    assert!([1, 4].contains(&finished.code()), "{finished:?}");
    assert!(
        is_at(&finished.stderr, &["failed in done(): ", "in the end"]),
        "{finished:?}"
    );
}

/// Goal: Ctrl-C ends a script's run with its figures and `done()`.
#[test]
fn an_interrupted_script_gets_its_figures() {
    let script = Script::new(
        "function request() return wrk.format() end
         function response() print('answered') io.flush() end
         function done(summary) print('done', summary.requests > 0) end",
    );
    let server = Server::start(&["plaintext"]);
    let words = ["-t1", "-c2", "-d", "10m"];
    let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
    load.until_line_with("answered");
    load.signal("INT");
    let finished = load.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(
        is_at(&finished.stdout, &["requests in", "done\ttrue\n"]),
        "{finished:?}"
    );
}

/// Goal: Ctrl-C ends the program even if the script is in a loop that never ends, compiled by LuaJIT
/// or not, in a thread or before the run.
#[test]
fn a_script_that_never_comes_back_is_left() {
    let server = Server::start(&["plaintext"]);
    let loops = "local calls = 0
         function request()
            calls = calls + 1
            if calls > 3 then print('looping') io.flush() end
            while calls > 3 do calls = calls + 1 end
            return wrk.format()
         end";
    let loads = "print('looping') io.flush() jit.off() while true do end";
    for code in [
        loops,
        loads,
        "print('looping') io.flush() while true do end",
    ] {
        let script = Script::new(code);
        let words = ["-t2", "-c2", "-d", "10m"];
        let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
        load.until_line_with("looping");
        let interrupted = Instant::now();
        load.signal("INT");
        let finished = load.finish();
        assert_eq!(finished.code(), 130, "{finished:?}");
        assert!(
            finished.stderr.contains("did not come back"),
            "{finished:?}"
        );
        assert!(interrupted.elapsed() >= Duration::from_secs(2));
    }
}

/// Goal: threads that do come back lose nothing by one that does not: Ctrl-C and the end of the run
/// print all that was measured, in every form, and end the program.
#[test]
fn a_script_that_never_comes_back_leaves_its_figures() {
    let server = Server::start(&["plaintext"]);
    let script = Script::new(
        "local threads, calls = 0, 0
         function setup(thread) thread:set('place', threads) threads = threads + 1 end
         function response()
            calls = calls + 1
            if calls == 1 then print('thread ' .. place) io.flush() end
            while place == 1 do calls = calls + 1 end
         end
         function done() print('done') end",
    );
    // The shorter one is long enough for a response to each thread, however busy the machine is.
    for (duration, is_interrupted, code) in [("10m", true, 130), ("2s", false, 1)] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("run.json").display().to_string();
        let words = [
            "-t2",
            "-c2",
            "-d",
            duration,
            "--timeout",
            "1s",
            "--json",
            &file,
        ];
        let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
        let first = load.first_line();
        if is_interrupted {
            // The two may say it in either order.
            let other = if first == "thread 0\n" {
                "thread 1"
            } else {
                "thread 0"
            };
            eventually(other, || load.stdout_so_far().contains(other));
            load.signal("INT");
        }
        let finished = load.finish();
        assert_eq!(finished.code(), code, "{finished:?}");
        let told = [
            "did not come back in 1 of 2 threads",
            "done() was not called",
        ];
        assert!(is_at(&finished.stderr, &told), "{finished:?}");
        assert!(finished.stdout.contains("requests in"), "{finished:?}");
        assert!(!finished.stdout.contains("done"), "{finished:?}");
        let record: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert!(record["requests"].as_u64().unwrap() > 0, "{record}");
        assert_eq!(record["threads"], 2, "{record}");
    }
}

/// Goal: a `done()` without an end costs nothing that was measured.
#[test]
fn results_are_out_before_done_is_called() {
    let server = Server::start(&["plaintext"]);
    let script = Script::new("function done() print('in done') io.flush() while true do end end");
    let words = ["-t1", "-c1", "-n", "20", "--print", "csv"];
    let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
    let until_done = load.until_line_with("in done");
    assert!(until_done.contains("requests"), "{until_done}");
    load.signal("INT");
    let finished = load.finish();
    assert_eq!(finished.code(), 130, "{finished:?}");
    assert!(
        finished.stderr.contains("done() did not come back"),
        "{finished:?}"
    );
}

/// Goal: wrk2's -B prints batches as its latency: one count for each string of a script.
#[test]
fn batches_are_the_latency_of_wrk2_with_its_flag() {
    let script =
        Script::new("function request() return wrk.format() .. wrk.format() .. wrk.format() end");
    let words = ["-t1", "-c1", "-n", "30", "-U"];
    for (flag, count) in [(&[][..], 30), (&["-B"], 10), (&["--batch_latency"], 10)] {
        let finished = script.run(&[&words, flag].concat(), &[]);
        assert!([0, 4].contains(&finished.code()), "{finished:?}");
        let total = format!("Total count    = {count:12}]");
        assert!(finished.stdout.contains(&total), "{finished:?}");
        let has_row = finished.stdout.contains("batch, since due");
        assert_eq!(has_row, count == 10, "{finished:?}");
        assert!(finished.stdout.contains("30 requests in"), "{finished:?}");
    }
}
