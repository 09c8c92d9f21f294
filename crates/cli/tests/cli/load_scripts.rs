//! `millpond load --script`: the command around wrk's Lua scripts.

use crate::support::{Finished, Running, Server, millpond, run};
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

/// Goal: what a script does wrong on the way is told, and is not success.
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
        "function init() print('ready') io.flush() end
         function request() return wrk.format() end
         function done(summary) print('done', summary.requests > 0) end",
    );
    let server = Server::start(&["plaintext"]);
    let words = ["-t1", "-c2", "-d", "10m"];
    let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
    assert_eq!(load.first_line(), "ready\n");
    std::thread::sleep(Duration::from_millis(500));
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
         function init() print('ready') io.flush() end
         function request()
            calls = calls + 1
            while calls > 3 do calls = calls + 1 end
            return wrk.format()
         end";
    for code in [loops, "print('ready') io.flush() while true do end"] {
        let script = Script::new(code);
        let words = ["-t2", "-c2", "-d", "10m"];
        let mut load = Running::start(&mut script.command(&words, &server.url("/plaintext"), &[]));
        assert_eq!(load.first_line(), "ready\n");
        std::thread::sleep(Duration::from_millis(300));
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
