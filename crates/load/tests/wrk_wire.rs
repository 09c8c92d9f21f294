//! The same scripts under the real wrk: what it sends, and what its functions return, is what is
//! sent and returned here. Skipped where wrk is not installed (`scripts/setup test` installs it).
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_load::{Observer, Script, ScriptConfig, Stop};
use rustix::process::{Pid, Signal, kill_process};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use support::{Reply, TestServer, eventually, get};

/// Debian's wrk brings its example scripts along.
const EXAMPLES: &str = "/usr/share/doc/wrk/examples/scripts";
/// After so many responses on a connection the server says nothing more: wrk only stops by time.
const ANSWERS_MAX: usize = 300;

struct Unwatched;

impl Observer for Unwatched {}

/// One script, and how it is run.
struct Case {
    script: PathBuf,
    args: Vec<String>,
    fields: Vec<(String, String)>,
    /// Requests that ours is to send; wrk sends what it can.
    requests: u64,
    /// The script writes its header fields itself, so their order is not that of a Lua table.
    is_literal: bool,
}

impl Case {
    fn new(script: impl Into<PathBuf>) -> Self {
        Self {
            script: script.into(),
            args: vec![],
            fields: vec![],
            requests: 200,
            is_literal: false,
        }
    }

    fn args(mut self, args: &[&str]) -> Self {
        self.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }
}

fn server() -> TestServer {
    TestServer::start(|seen| {
        if seen.in_connection >= ANSWERS_MAX {
            return Reply::silence();
        }
        // wrk waits for a body after HEAD, if the head announces one.
        let body = if seen.head.starts_with("HEAD ") {
            ""
        } else {
            "hello"
        };
        let length = body.len();
        let head =
            format!("HTTP/1.1 200 OK\r\nX-Token: secret\r\nContent-Length: {length}\r\n\r\n");
        Reply::raw((head + body).into_bytes())
    })
}

/// Whether the real wrk is here; prints a message once if not.
fn has_wrk() -> bool {
    let found = Command::new("wrk").arg("-v").output().is_ok();
    if !found {
        eprintln!("skipped: wrk is not installed (scripts/setup test installs it)");
    }
    found
}

/// Runs wrk until the server has had so many requests, however long that takes.
fn run_wrk(server: &TestServer, case: &Case, requests: u64) {
    let mut command = Command::new("wrk");
    let words = ["-t1", "-c1", "-d10m", "--timeout", "1m", "-s"];
    command.args(words).arg(&case.script);
    for (name, value) in &case.fields {
        command.arg("-H").arg(format!("{name}: {value}"));
    }
    command.arg(format!("http://{}/path?q=1", server.address));
    command.arg("--").args(&case.args);
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    server.wait_for_requests(requests);
    let status = Path::new("/proc")
        .join(child.id().to_string())
        .join("status");
    eventually("wrk takes its interruption", || catches_sigint(&status));
    let pid = Pid::from_child(&child);
    // A signal between its last preparations and its sleep does not end that sleep; the next one does.
    eventually("wrk's end", || {
        let _ = kill_process(pid, Signal::INT);
        child.try_wait().unwrap().is_some()
    });
    assert!(child.wait().unwrap().success());
}

/// Whether a process has a handler for SIGINT, by its `/proc/PID/status`.
fn catches_sigint(status: &Path) -> bool {
    let text = std::fs::read_to_string(status).unwrap();
    let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & 1 << (Signal::INT.as_raw() - 1) != 0
}

fn run_ours(server: &TestServer, case: &Case) {
    let mut config = get(server.address);
    config.target.path = "/path?q=1".to_owned();
    config.stop = Stop::after_requests(case.requests);
    let script = ScriptConfig {
        file: case.script.clone(),
        source: std::fs::read(&case.script).unwrap().into(),
        url: format!("http://{}/path?q=1", server.address),
        args: case.args.clone(),
        method: "GET".to_owned(),
        fields: case.fields.clone(),
        body: None,
        seed: None,
    };
    let mut script = Script::load(&script, &config).unwrap();
    let stop = AtomicBool::new(false);
    let record = millpond_load::run_script(&config, &mut script, &Unwatched, &stop).unwrap();
    assert_eq!(record.errors.total(), 0, "{:?}", record.errors);
    assert_eq!(script.errors().count, 0, "{:?}", script.errors());
    script.done(&record).unwrap();
}

/// The requests of some connections, each as bytes; fields in alphabetical order where a Lua table
/// decides about it.
fn wire(server: &TestServer, connections: Range<usize>, case: &Case) -> Vec<String> {
    let seen = server.seen();
    let requests = seen
        .iter()
        .filter(|seen| connections.contains(&seen.connection));
    let requests = requests.map(|seen| {
        let body = String::from_utf8(seen.body.clone()).unwrap();
        if case.is_literal {
            return format!("{}{body}", seen.head);
        }
        let head = seen.head.strip_suffix("\r\n\r\n").unwrap();
        let mut lines: Vec<&str> = head.split("\r\n").collect();
        lines[1..].sort_unstable();
        format!("{}\r\n\r\n{body}", lines.join("\r\n"))
    });
    requests.collect()
}

/// Runs both against one server and compares what came.
fn check(case: &Case, least: usize) {
    let server = server();
    run_wrk(&server, case, least as u64);
    let by_wrk = server.connections();
    run_ours(&server, case);
    let theirs = wire(&server, 0..by_wrk, case);
    let ours = wire(&server, by_wrk..usize::MAX, case);
    let common = theirs.len().min(ours.len());
    let name = case.script.display();
    assert!(
        common >= least,
        "{name}: {} and {}",
        theirs.len(),
        ours.len()
    );
    for place in 0..common {
        assert_eq!(theirs[place], ours[place], "{name}: request {place}");
    }
}

fn script(directory: &Path, name: &str, code: &str) -> PathBuf {
    let file = directory.join(name);
    std::fs::write(&file, code).unwrap();
    file
}

/// Goal: the scripts that ship with wrk make the same bytes leave.
#[test]
fn the_scripts_that_ship_with_wrk_send_the_same() {
    if !has_wrk() {
        return;
    }
    if !Path::new(EXAMPLES).is_dir() {
        eprintln!("skipped: {EXAMPLES} is not there; Debian's package of wrk has it");
        return;
    }
    std::thread::scope(|scope| {
        for (name, requests, least) in [
            ("addr", 200, 100),
            ("auth", 200, 100),
            ("counter", 200, 100),
            ("delay", 8, 4),
            ("pipeline", 201, 100),
            ("post", 200, 100),
            ("report", 200, 100),
            ("setup", 200, 100),
            ("stop", 1_000, 100),
        ] {
            scope.spawn(move || {
                let mut case = Case::new(format!("{EXAMPLES}/{name}.lua"));
                case.requests = requests;
                check(&case, least);
            });
        }
    });
}

/// As haywire's load script: each call builds a string of as many requests as the first word says.
const PIPELINED_GET: &str = "
init = function(args)
   depth = tonumber(args[1]) or 1
   served = 0
end
request = function()
   local requests = {}
   for i = 1, depth do
      served = served + 1
      requests[i] = wrk.format('GET', '/pipelined?i=' .. served)
   end
   return table.concat(requests)
end
";

/// As an entity server is filled: each PUT with an id and a value of its own.
const COUNTING_PUT: &str = "
local id = 0
wrk.method = 'PUT'
wrk.headers['Content-Type'] = 'application/octet-stream'
request = function()
   id = id + 1
   local body = string.rep(string.char(97 + id % 26), 40 + id % 7)
   return wrk.format(nil, string.format('/v0/entity?id=%08d', id), nil, body)
end
";

/// Requests written by hand, byte for byte, with other methods in between.
const LITERAL: &str = "
local calls = 0
function request()
   calls = calls + 1
   local get = 'GET /literal?' .. calls .. ' HTTP/1.1\\r\\nHost:  odd  \\r\\nb: 1\\r\\na: 2\\r\\n\\r\\n'
   local head = 'HEAD /head HTTP/1.1\\r\\nhost: x\\r\\n\\r\\n'
   local post = 'POST / HTTP/1.1\\r\\nHost: y\\r\\nContent-Length: 3\\r\\n\\r\\nabc'
   return head .. get .. post
end
";

/// The requests that wrk prepares are taken as a whole, and replaced at run time.
const REPLACED: &str = "
function init(args)
   wrk.path = '/replaced/' .. args[1] .. '/' .. #args
   wrk.headers['X-Number'] = 1.5
   wrk.headers['Host'] = 'elsewhere'
   function request()
      local first = wrk.request()
      request = function() return wrk.format('DELETE', '/later', { ['X-Own'] = 'yes' }, '') end
      return first
   end
end
";

/// Goal: the same for scripts in the shapes that others are known to have.
#[test]
fn scripts_of_every_shape_send_the_same() {
    if !has_wrk() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, code: &str| script(directory.path(), name, code);
    let mut pipelined = Case::new(file("pipelined_get.lua", PIPELINED_GET)).args(&["128"]);
    // The server falls silent within wrk's third string.
    pipelined.requests = 256;
    let put = Case::new(file("put.lua", COUNTING_PUT));
    let mut literal = Case::new(file("literal.lua", LITERAL));
    (literal.is_literal, literal.requests) = (true, 201);
    let mut replaced = Case::new(file("replaced.lua", REPLACED)).args(&["one", "-x"]);
    replaced.fields = vec![("X-Flag".to_owned(), "from: flag".to_owned())];
    std::thread::scope(|scope| {
        for (case, least) in [(pipelined, 256), (put, 100), (literal, 99), (replaced, 100)] {
            scope.spawn(move || check(&case, least));
        }
    });
}

/// Writes what wrk's functions return to the file that the last word names.
const FUNCTIONS: &str = "
local out
local function write(...) out:write(string.format(...), '\\n') end

-- Fields in alphabetical order: that of a table is nobody's promise.
local function show(name, request)
   local head, body = request:match('^(.-)\\r\\n\\r\\n(.*)$')
   local lines = {}
   for line in (head .. '\\r\\n'):gmatch('(.-)\\r\\n') do lines[#lines + 1] = line end
   local first = table.remove(lines, 1)
   table.sort(lines)
   write('%s: %s | %s | %s', name, first, table.concat(lines, ','), body)
end

function init(args)
   out = io.open(args[#args], 'w')
   write('%s %s %s', wrk.scheme, wrk.host, tostring(wrk.port))
   write('%s %s %s %s', wrk.method, wrk.path, tostring(wrk.body), type(wrk.headers))
   write('%s %d %s', args[0]:match('^%a+://'), #args, args[1])
   write('%s %s %s', type(wrk.thread), type(wrk.port), type(wrk.request))
   write('%s', wrk.headers['Host'] == wrk.host .. ':' .. wrk.port)
   show('plain', wrk.format())
   show('method', wrk.format('PATCH'))
   show('all', wrk.format('POST', '/x', { A = 'b' }, 'body'))
   local own = { Host = 'own', ['Content-Length'] = 99, N = 12, F = 0.1, I = 1e15 }
   show('own', wrk.format(nil, nil, own))
   write('erased: %s', tostring(own['Content-Length']))
   show('empty', wrk.format(nil, nil, own, ''))
   write('set: %s %s', tostring(own['Content-Length']), type(own['Content-Length']))
   show('number', wrk.format(nil, 5, own, 1234))
   wrk.body = 'shared'
   show('shared', wrk.format())
   write('length: %s', tostring(wrk.headers['Content-Length']))
   wrk.body = nil
   show('again', wrk.format())
   write('length: %s', tostring(wrk.headers['Content-Length']))
   local found = wrk.lookup(wrk.host, wrk.port)
   write('found: %d %s %s', #found, tostring(tostring(found[1]) == wrk.host .. ':' .. wrk.port),
         tostring(wrk.connect(found[1])))
   write('http: %s', tostring(wrk.lookup('127.0.0.1', 'http')[1]))
   write('addr: %s', tostring(tostring(wrk.thread.addr) == tostring(found[1])))
   wrk.thread:set('text', 'y')
   write('got: %s %s', wrk.thread:get('text'), tostring(wrk.thread:get('nothing')))
   write('refused: %s', tostring(pcall(wrk.thread.set, wrk.thread, 'f', print)))
   write('libraries: %s %s %s', type(require('ffi').C), type(bit.band), type(debug.getinfo))
   write('random: %d %d %d', math.random(1000), math.random(1000), math.random(1000))
   out:flush()
   args.path = args[#args]
   target = args.path
end

function setup(thread) kept = thread end

function done(summary, latency, requests)
   local out = io.open(kept:get('target') .. '.done', 'w')
   local function write(...) out:write(string.format(...), '\\n') end
   for _, name in ipairs{ 'duration', 'requests', 'bytes' } do
      write('%s %s', name, tostring(summary[name] > 0))
   end
   for _, name in ipairs{ 'connect', 'read', 'write', 'status', 'timeout' } do
      write('%s %d', name, summary.errors[name])
   end
   local sum, last = 0, 0
   for i = 1, #latency do
      local value, count = latency(i)
      assert(value > last and count > 0)
      sum, last = sum + count, value
   end
   write('some %s', tostring(sum > 0))
   write('ends %s %s', tostring(latency(1) == latency.min), tostring(last == latency.max))
   write('order %s', tostring(latency.min <= latency.mean and latency.mean <= latency.max))
   write('percentiles %s', tostring(latency:percentile(1) <= latency:percentile(99)))
   for _, name in ipairs{ 'min', 'max', 'mean', 'stdev' } do
      write('%s %s %s', name, type(latency[name]), type(requests[name]))
   end
   write('%s', type(requests:percentile(50)))
   out:close()
end
";

/// Goal: every function of wrk's returns what it returns under wrk, in `init` and in `done`.
#[test]
fn functions_return_what_they_return_under_wrk() {
    if !has_wrk() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = script(directory.path(), "functions.lua", FUNCTIONS);
    let notes = |name: &str| directory.path().join(name);
    let server = TestServer::start(|_| Reply::ok(b"hello"));
    let case = |name: &str| {
        let mut case = Case::new(&file).args(&["a word", notes(name).to_str().unwrap()]);
        case.fields = vec![("X-Flag".to_owned(), "value".to_owned())];
        case
    };
    run_wrk(&server, &case("theirs"), 100);
    run_ours(&server, &case("ours"));
    for suffix in ["", ".done"] {
        let read = |name: &str| std::fs::read_to_string(notes(&(name.to_owned() + suffix)));
        let (theirs, ours) = (read("theirs").unwrap(), read("ours").unwrap());
        for (theirs, ours) in theirs.lines().zip(ours.lines()) {
            assert_eq!(theirs, ours);
        }
        assert_eq!(theirs.lines().count(), ours.lines().count());
        assert!(ours.lines().count() > 10, "{ours}");
    }
}
