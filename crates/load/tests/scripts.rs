//! wrk's Lua scripts: what they make leave, what they see, and what becomes of their mistakes.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_io::{Address, DriverChoice};
use millpond_load::{
    LoadConfig, LoadRecord, Mode, Observer, PIPELINE_MAX, Script, ScriptConfig, Stop,
};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{MS, Reply, TestServer, check_identities, get};

/// A script in a file of its own.
struct ScriptFile {
    directory: tempfile::TempDir,
    config: ScriptConfig,
}

impl ScriptFile {
    fn new(code: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("script.lua");
        std::fs::write(&file, code).unwrap();
        let config = ScriptConfig {
            file,
            url: "http://pond/path".to_owned(),
            args: vec![],
            method: "GET".to_owned(),
            fields: vec![],
            body: None,
            seed: None,
        };
        Self { directory, config }
    }

    fn args(mut self, args: &[&str]) -> Self {
        self.config.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// Where the script may leave notes: `NOTES` in its code.
    fn notes(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("notes")).unwrap_or_default()
    }
}

/// A script that may leave notes by `note(...)`.
fn noting(code: &str) -> ScriptFile {
    let script = ScriptFile::new("");
    let notes = script.directory.path().join("notes");
    let note = format!(
        "function note(...)
            local file = io.open({:?}, 'a')
            file:write(string.format(...), '\\n')
            file:close()
         end\n",
        notes.display().to_string()
    );
    std::fs::write(&script.config.file, note + code).unwrap();
    script
}

/// Nobody looks.
struct Unwatched;

impl Observer for Unwatched {}

/// Says hello, to HEAD without a body: who waits for one does not see the next answer.
fn server() -> TestServer {
    TestServer::start(|seen| {
        let mut reply = Reply::ok(b"hello");
        if seen.head.starts_with("HEAD ") {
            reply.bytes.truncate(reply.bytes.len() - 5);
        }
        reply
    })
}

fn counted(server: &TestServer, requests: u64) -> LoadConfig {
    let mut config = get(server.address);
    config.stop = Stop::after_requests(requests);
    config
}

fn run(config: &LoadConfig, script: &ScriptFile) -> (LoadRecord, Script) {
    let mut loaded = Script::load(&script.config, config).unwrap();
    let stop = AtomicBool::new(false);
    let record = millpond_load::run_script(config, &mut loaded, &Unwatched, &stop).unwrap();
    check_identities(&record);
    (record, loaded)
}

/// Runs it and expects neither failed requests nor errors of the script.
fn run_well(config: &LoadConfig, script: &ScriptFile) -> (LoadRecord, Script) {
    let (record, loaded) = run(config, script);
    assert_eq!(record.errors.total(), 0, "{:?}", record.errors);
    assert_eq!(loaded.errors().count, 0, "{:?}", loaded.errors());
    (record, loaded)
}

fn targets(server: &TestServer) -> Vec<String> {
    let seen = server.seen();
    seen.iter().map(|seen| seen.target().to_owned()).collect()
}

/// Goal: without `request()` the request is made of wrk's table, once.
#[test]
fn a_static_script_sends_what_the_table_says() {
    let server = server();
    let script = ScriptFile::new(
        "wrk.method = 'PUT' wrk.body = 'a=b' wrk.headers['X-A'] = 7
         function init(args) wrk.path = '/' .. args[0] .. args[1] .. #args end",
    );
    let script = script.args(&["one", "two"]);
    let (record, _) = run_well(&counted(&server, 20), &script);
    assert_eq!(record.requests, 20);
    for seen in server.seen() {
        let mut lines: Vec<&str> = seen.head.trim_end().split("\r\n").collect();
        lines[1..].sort_unstable();
        let host = format!("Host: {}", server.address);
        let expected = [
            "PUT /http://pond/pathone2 HTTP/1.1",
            "Content-Length: 3",
            &host,
            "X-A: 7",
        ];
        assert_eq!(lines, expected);
        assert_eq!(seen.body, b"a=b");
    }
}

/// Goal: a script that counts in its path and in a header sends each number once, from 1 on in the
/// first thread, whose first request was only a proof.
#[test]
fn a_counting_script_sends_each_number_once() {
    let server = server();
    let script = ScriptFile::new(
        "counter = 0
         request = function()
            wrk.headers['X-Counter'] = counter
            counter = counter + 1
            return wrk.format(nil, '/' .. (counter - 1))
         end",
    );
    run_well(&counted(&server, 50), &script);
    let expected: Vec<String> = (1..=50).map(|number| format!("/{number}")).collect();
    assert_eq!(targets(&server), expected);
    for seen in server.seen() {
        let counter = format!("X-Counter: {}\r\n", &seen.target()[1..]);
        assert!(seen.head.contains(&counter), "{}", seen.head);
    }
}

/// Goal: every request of a string is counted and timed, however many each string holds, and the
/// next string leaves when all of the last one are answered.
#[test]
fn the_length_of_strings_may_change_with_each() {
    let server = server();
    let script = ScriptFile::new(
        "local calls = 0
         request = function()
            calls = calls + 1
            local requests = {}
            for i = 1, calls do
               requests[i] = wrk.format(i % 2 == 0 and 'HEAD' or 'GET', '/' .. calls .. '/' .. i)
            end
            return table.concat(requests)
         end",
    );
    // 2 + 3 + ... + 11, then one more that the count allows.
    let (record, _) = run_well(&counted(&server, 66), &script);
    assert_eq!((record.requests, record.sent), (66, 66));
    let seen = server.seen();
    let mut place = 0;
    for length in 2..=12 {
        for index in 1..=length {
            let target = format!("/{length}/{index}");
            assert_eq!(seen[place].target(), target);
            place += 1;
        }
    }
    // The rest of the last string left too: a string is never cut.
    assert_eq!(seen.len(), place);
}

/// Goal: `response()` sees every answer as it was received, without the framing of its body.
#[test]
fn answers_are_shown_to_a_script_that_asks() {
    let chunked =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Token: t\r\nx-token: u v \r\n\r\n\
                    3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let server = TestServer::start(move |seen| match seen.target() {
        "/first" => Reply::raw(chunked.to_vec()),
        _ => Reply::status(404, b""),
    });
    let script = noting(
        "local path = '/first'
         function request() return wrk.format(nil, path) end
         function response(status, headers, body)
            note('%d %s %s %s %s', status, headers['X-Token'] or '-', headers['x-token'] or '-',
                 headers['Content-Length'] or '-', body)
            path = '/second'
         end",
    );
    let (record, loaded) = run(&counted(&server, 3), &script);
    assert_eq!((record.requests, record.errors.status), (1, 2));
    assert_eq!(loaded.errors().count, 0, "{:?}", loaded.errors());
    assert_eq!(
        script.notes(),
        "200 t u v - abcde\n404 - - 0 \n404 - - 0 \n"
    );
}

/// Goal: an answer that comes in pieces is shown whole, whichever connection it is on.
#[test]
fn answers_in_pieces_are_shown_whole() {
    let body: Vec<u8> = (0..300_000u32).map(|at| b'a' + (at % 23) as u8).collect();
    let answer = body.clone();
    let server = TestServer::start(move |_| Reply::ok(&answer));
    let script = noting(&format!(
        "local expected = {:?}
         function response(status, headers, body)
            note(body == expected and headers['Content-Length'] == '300000' and 'same' or 'other')
         end",
        String::from_utf8(body).unwrap()
    ));
    let mut config = counted(&server, 12);
    config.connections = 3;
    run_well(&config, &script);
    assert_eq!(script.notes(), "same\n".repeat(12));
}

/// Goal: `delay()` comes before each request, and is no part of the latency.
#[test]
fn delays_come_before_requests() {
    let server = server();
    let script = noting("function delay() note('asked') return 30 end");
    let mut config = counted(&server, 5);
    config.connections = 1;
    let (record, _) = run_well(&config, &script);
    let seen = server.seen();
    for pair in seen.windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_millis(30));
    }
    assert_eq!(script.notes().lines().count(), 6);
    // Five delays passed; had one been counted, the mean would be at least a fifth of it.
    assert_eq!(record.requests, 5);
    assert!(record.slip.max() == 0, "a closed loop has no slip");
}

/// Goal: `thread:stop()` ends one thread's sending; when all have stopped, the run ends.
#[test]
fn stopping_every_thread_ends_the_run() {
    let server = server();
    let script = ScriptFile::new(
        "local place = 0
         function setup(thread)
            place = place + 1
            thread:set('limit', place * 10)
         end
         local answers = 0
         function response()
            answers = answers + 1
            if answers == limit then wrk.thread:stop() end
         end",
    );
    let mut config = get(server.address);
    config.stop = Stop::after_ns(600_000 * MS);
    (config.threads, config.connections) = (2, 2);
    let (record, _) = run_well(&config, &script);
    assert_eq!((record.requests, server.requests()), (30, 30));
}

/// Goal: `setup` speaks to each thread, a thread's values are read when all is over, and `done` gets
/// the figures of the record.
#[test]
fn done_gets_the_figures_of_the_record() {
    let server = TestServer::start(|seen| match seen.number % 4 {
        3 => Reply::status(503, b""),
        _ => Reply::ok(b"hello").after(Duration::from_millis(1)),
    });
    let script = noting(
        "local threads = {}
         function setup(thread)
            table.insert(threads, thread)
            thread:set('id', #threads)
         end
         function init(args) answers = 0 end
         function response() answers = answers + 1 end
         function done(summary, latency, requests)
            local total = 0
            for place, thread in ipairs(threads) do
               assert(thread:get('id') == place)
               total = total + thread:get('answers')
            end
            note('%d', total)
            note('%d %d %d', summary.duration, summary.requests, summary.bytes)
            local e = summary.errors
            note('%d %d %d %d %d', e.connect, e.read, e.write, e.status, e.timeout)
            for _, figure in ipairs{ latency.min, latency.max, latency.mean, latency.stdev,
                                     latency:percentile(50), latency:percentile(99.9) } do
               note('%.17g', figure)
            end
            local samples = 0
            for i = 1, #latency do samples = samples + select(2, latency(i)) end
            note('%d', samples)
            note('%d', requests.max)
         end",
    );
    let mut config = counted(&server, 200);
    (config.threads, config.connections) = (2, 4);
    let (record, loaded) = run(&config, &script);
    assert_eq!((record.requests, record.errors.status), (150, 50));
    loaded.done(&record).unwrap();
    let us = |ns: f64| format!("{}", ns / 1e3);
    let latency = &record.response;
    let expected = [
        "200".to_owned(),
        format!(
            "{} 200 {}",
            record.duration_ns / 1_000,
            record.bytes_received
        ),
        "0 0 0 50 0".to_owned(),
        us(latency.min() as f64),
        us(latency.max() as f64),
        us(latency.mean()),
        us(latency.stdev()),
        us(latency.percentile(50.0) as f64),
        us(latency.percentile(99.9) as f64),
        "150".to_owned(),
        record.thread_rates.max().to_string(),
    ];
    let number = |text: &str| text.parse::<f64>().ok();
    let notes = script.notes();
    for (line, expected) in notes.lines().zip(&expected) {
        let is_same =
            line == expected || number(line).is_some_and(|it| Some(it) == number(expected));
        assert!(is_same, "{line} is not {expected} in {notes}");
    }
    assert_eq!(notes.lines().count(), expected.len());
}

/// What loading this script says is wrong.
fn refusal(code: &str) -> String {
    let server = server();
    let script = ScriptFile::new(code);
    let refused = Script::load(&script.config, &get(server.address));
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("script.lua"), "{sentence}");
    assert!(!sentence.contains('\n'), "{sentence}");
    sentence
}

/// Goal: a script that cannot work is refused before the run, with the place of its mistake.
#[test]
fn scripts_that_cannot_work_are_refused() {
    for (code, part) in [
        ("function request(", "script.lua:1: "),
        ("\nerror('own words')", "script.lua:2: own words"),
        ("function init() nothing() end", "in init(): "),
        ("function setup() nothing() end", "in setup(): "),
        (
            "function request() return nil end",
            "in request(): request() has to return a string",
        ),
        (
            "function request() return false end",
            "and returned a boolean",
        ),
        (
            "function request() return 5 end",
            "incomplete request at 1:2",
        ),
        (
            "function request() error('tired') end",
            "script.lua:1: tired",
        ),
        ("function request() error({}) end", "in request(): "),
        (
            "function request() return 'GET' end",
            "incomplete request at 1:4",
        ),
        (
            "function request() return 'GET / HTTP/1.1\\r\\nX: y\\r\\n' end",
            "incomplete request at 3:1",
        ),
        (
            "function request() return ('GET / HTTP/1.1\\r\\n\\r\\n'):rep(1025) end",
            "more than 1024 requests",
        ),
        (
            "wrk.path = 'a\\r\\nb'",
            "request() returned what cannot be sent",
        ),
        (
            "function setup() wrk.lookup('127.0.0.1', 'nowhere') end",
            "unable to resolve",
        ),
    ] {
        let sentence = refusal(code);
        assert!(sentence.contains(part), "{code}: {sentence}");
    }
    let mut script = ScriptFile::new("");
    script.config.file.push("absent.lua");
    let refused = Script::load(&script.config, &get("127.0.0.1:1".parse().unwrap()));
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("the file cannot be read"), "{sentence}");
}

/// Goal: a mistake in the middle of a run is counted and told, its request has failed, and the
/// others go on.
#[test]
fn mistakes_during_the_run_are_counted() {
    let server = server();
    let script = ScriptFile::new(
        "local calls, answers, delays = 0, 0, 0
         function request()
            calls = calls + 1
            if calls % 5 == 0 then error('every fifth') end
            if calls % 5 == 2 then return 'GET / HTTP/1.1' end
            return wrk.format()
         end
         function delay()
            delays = delays + 1
            if delays == 5 then error('once') end
            return 0
         end
         function response()
            answers = answers + 1
            if answers == 3 then error('third answer') end
         end
         function done() error('the end') end",
    );
    let mut config = counted(&server, 30);
    config.connections = 2;
    let (record, loaded) = run(&config, &script);
    assert_eq!(record.requests + record.errors.write, 30);
    assert_eq!(record.errors.write, record.errors.total());
    assert!(record.errors.write >= 5, "{:?}", record.errors);
    assert_eq!(server.requests(), record.requests);
    // One more in delay() and one in response().
    assert_eq!(loaded.errors().count, record.errors.write + 2);
    let first = loaded.errors().first.as_deref().unwrap();
    assert!(
        first.starts_with("request() returned what cannot be sent: "),
        "{first}"
    );
    let sentence = loaded.done(&record).unwrap_err();
    assert!(
        sentence.contains("in done(): ") && sentence.contains("the end"),
        "{sentence}"
    );
}

/// Goal: at a rate it is requests that are counted, whatever strings they come in, and every
/// arrival of the schedule is sent once.
#[test]
fn a_rate_counts_requests_not_strings() {
    let server = server();
    let script = ScriptFile::new(
        "local calls = 0
         function request()
            calls = calls + 1
            return wrk.format():rep(1 + calls % 4)
         end",
    );
    let mut config = get(server.address);
    (config.threads, config.connections) = (2, 6);
    config.mode = Mode::ConstantRate { per_s: 2_000.0 };
    config.stop = Stop::after_ns(500 * MS);
    let (record, _) = run_well(&config, &script);
    assert_eq!((record.requests, record.offered), (1_000, Some(1_000)));
    // The last string of each thread may hold up to three more.
    assert!(
        (1_000..=1_006).contains(&server.requests()),
        "{}",
        server.requests()
    );
}

/// Goal: both kernel interfaces carry scripts, with connections that the server closes in between:
/// requests without an answer are asked for anew.
#[test]
fn closed_connections_are_replaced_on_both_drivers() {
    for driver in [DriverChoice::Epoll, DriverChoice::Auto] {
        let server = TestServer::start(|seen| {
            if seen.in_connection % 7 == 6 {
                let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
                return Reply::raw(closing.to_vec()).then_close();
            }
            Reply::ok(b"hello")
        });
        let script = ScriptFile::new(
            "local calls, answers = 0, 0
             function request()
                calls = calls + 1
                return (wrk.format(nil, '/' .. calls)):rep(3)
             end
             function response(status, headers, body)
                assert(status == 200 and (body == 'hello' or headers.Connection == 'close'))
             end
             function delay() return 0.2 end",
        );
        let mut config = counted(&server, 300);
        config.driver = driver;
        (config.threads, config.connections) = (2, 4);
        let (record, _) = run_well(&config, &script);
        assert_eq!((record.requests, record.sent), (300, 300));
        assert!(record.resent > 0 && server.connections() > 30);
    }
}

/// Goal: `thread.addr` sends a thread elsewhere, and only that one.
#[test]
fn a_thread_may_have_an_address_of_its_own() {
    let (here, there) = (server(), server());
    let script = ScriptFile::new(&format!(
        "local threads = 0
         function setup(thread)
            threads = threads + 1
            local found = wrk.lookup('{}', '{}')
            if threads == 2 then thread.addr = found[1] end
         end",
        there.address.ip(),
        there.address.port(),
    ));
    let mut config = counted(&here, 100);
    (config.threads, config.connections) = (2, 2);
    run_well(&config, &script);
    assert_eq!(here.requests() + there.requests(), 100);
    assert!(here.connections() == 1 && there.connections() == 1);
}

/// Goal: without a seed all threads draw the same numbers, as in wrk; with one each has its own, and
/// the next run draws them again.
#[test]
fn random_numbers_follow_the_seed() {
    let server = server();
    let code = "function init() note('%d', math.random(1000000000)) end";
    let drawn = |seed: Option<u64>| {
        let mut script = noting(code);
        script.config.seed = seed;
        let mut config = get(server.address);
        (config.threads, config.connections) = (3, 3);
        Script::load(&script.config, &config).unwrap();
        let notes = script.notes();
        notes.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let unseeded = drawn(None);
    assert!(unseeded[0] == unseeded[1] && unseeded[1] == unseeded[2]);
    let seeded = drawn(Some(7));
    assert!(seeded[0] != seeded[1] && seeded[1] != seeded[2] && seeded[0] != seeded[2]);
    assert_eq!(seeded, drawn(Some(7)));
    assert_ne!(seeded, drawn(Some(8)));
}

/// Goal: what wrk's manual allows: `--pipeline` keeps several strings on their way, a depth at the
/// limit works, and the target may be a unix socket's or any other address.
#[test]
fn strings_at_the_limit_and_several_at_a_time_work() {
    let server = server();
    let script = ScriptFile::new("function request() return wrk.format():rep(1024) end");
    run_well(&counted(&server, 3 * PIPELINE_MAX as u64), &script);
    let script = ScriptFile::new("function request() return wrk.format():rep(2) end");
    let mut config = counted(&server, 400);
    config.pipeline = 8;
    let before = server.seen().len();
    run_well(&config, &script);
    let most_behind = server.seen()[before..].iter().map(|seen| seen.behind).max();
    assert!(most_behind >= Some(3), "{most_behind:?}");
    assert!(matches!(config.target.address, Address::Inet(_)));
}

/// Goal: a function gets what it takes, whichever it takes, also when the script puts another in its
/// place or heads change from answer to answer, and each answer has a table of its own.
#[test]
fn answers_are_told_as_far_as_they_are_asked_for() {
    let server = TestServer::start(|seen| {
        let number = seen.number;
        let twice = format!("X-Number: {}\r\nX-Number: {number}\r\n", number + 100);
        let always = if number < 4 { "" } else { "X-Late: yes\r\n" };
        let head = format!("HTTP/1.1 200 OK\r\n{twice}{always}Content-Length: 2\r\n\r\n");
        Reply::raw([head.as_bytes(), b"ok"].concat())
    });
    let script = noting(
        "local kept
         function four(status, headers, body, more)
            note('four %s %s %s %s', headers['X-Number'], tostring(headers['X-Late']), body, tostring(more))
         end
         function any(...)
            local status, headers, body = ...
            note('any %d %s %s %d', status, headers['X-Number'], body, select('#', ...))
            response = four
         end
         function all(status, headers, body)
            note('all %d %s %s %s', status, headers['X-Number'], body, tostring(headers['Mine']))
            assert(headers ~= kept and headers['Content-Length'] == '2')
            response = any
         end
         function two(status, headers)
            note('two %d %s %s', status, headers['X-Number'], tostring(headers['X-Late']))
            headers['Mine'], kept = 'x', headers
            response = all
         end
         function response(status) note('one %d', status) response = two end",
    );
    let mut load = get(server.address);
    load.stop = Stop::after_requests(6);
    let (record, _) = run_well(&load, &script);
    assert_eq!(record.requests, 6);
    let expected = [
        "one 200",
        "two 200 1 nil",
        "all 200 2 ok nil",
        "any 200 3 ok 3",
        "four 4 yes ok nil",
        "four 5 yes ok nil",
    ];
    assert_eq!(script.notes().lines().collect::<Vec<_>>(), expected);
}

/// Lets the script that does not come back go on once its run is over.
struct Rescuer {
    file: std::path::PathBuf,
    seen: std::sync::Mutex<Vec<LoadRecord>>,
}

impl Observer for Rescuer {
    fn stuck(&self, record: &LoadRecord) {
        self.seen.lock().unwrap().push(record.clone());
        std::fs::write(&self.file, "").unwrap();
    }
}

/// Goal: a thread that does not come back at the end of its run loses nothing but its own last
/// second: the record has all that the other thread measured, adds up, and says what is missing.
#[test]
fn a_stuck_thread_does_not_take_the_others_with_it() {
    let server = server();
    let script = ScriptFile::new("");
    let file = script.directory.path().join("go-on");
    let code = format!(
        "local threads = 0
         function setup(thread) thread:set('place', threads) threads = threads + 1 end
         local calls = 0
         function request()
            calls = calls + 1
            while place == 1 and calls > 20 and not io.open({:?}) do end
            return wrk.format()
         end",
        file.display().to_string()
    );
    std::fs::write(&script.config.file, code).unwrap();
    let mut load = get(server.address);
    load.threads = 2;
    load.connections = 4;
    load.stop = Stop::after_ns(300 * MS);
    load.timeout_ns = 1_000 * MS;
    let mut loaded = Script::load(&script.config, &load).unwrap();
    let rescuer = Rescuer {
        file,
        seen: std::sync::Mutex::default(),
    };
    let stop = AtomicBool::new(false);
    let record = millpond_load::run_script(&load, &mut loaded, &rescuer, &stop).unwrap();
    let seen = rescuer.seen.into_inner().unwrap();
    assert_eq!(seen.len(), 1, "shown once");
    assert_eq!((seen[0].threads, seen[0].stuck_threads), (2, 1));
    assert_eq!(
        (record.requests, record.sent),
        (seen[0].requests, seen[0].sent)
    );
    assert!(record.requests > 0, "{record:?}");
    assert_eq!(record.response.count(), record.requests);
    let failed = record.errors.total() - record.errors.connect;
    assert_eq!(record.sent, record.requests + failed + record.abandoned);
    let reasons = record.verdict.reasons.join("; ");
    assert!(
        reasons.contains("did not come back in 1 of 2 threads"),
        "{reasons}"
    );
}

/// Goal: with `-B` a batch has one sample, that of its last answer, and requests have theirs.
#[test]
fn strings_of_requests_are_timed_as_a_whole() {
    let server = server();
    let script = ScriptFile::new(
        "function request() return wrk.format() .. wrk.format('HEAD') .. wrk.format() end",
    );
    let mut load = get(server.address);
    load.stop = Stop::after_requests(30);
    load.batch_latency = true;
    let (record, _) = run_well(&load, &script);
    assert_eq!((record.requests, record.batches.response.count()), (30, 10));
    let (batch, each) = (&record.batches.service, &record.service);
    assert_eq!((batch.count(), batch.max()), (10, each.max()));
    assert!(batch.min() >= each.min());
    let report = record.to_report();
    assert_eq!(report.batch_service_ns.unwrap().max, batch.max());
    let again = LoadRecord::from_report(&report).unwrap();
    assert_eq!(again.batches.response.count(), 10);
}
