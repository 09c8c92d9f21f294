//! The requests that leave: those of the table and of `request()`, when, where to, and how many.

use crate::scripted::{ScriptFile, counted, noting, run, run_well, server, targets};
use crate::support::{MS, get};
use millpond_io::Address;
use millpond_load::{Mode, PIPELINE_MAX, Script, ScriptConfig, Stop};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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

/// A server that closes connections which are idle for `idle`, and counts its responses.
fn impatient_server(idle: Duration) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(idle)).unwrap();
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while stream.read(&mut bytes).is_ok_and(|length| length > 0) {
                    count.fetch_add(1, Ordering::SeqCst);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    let _ = stream.write_all(answer);
                }
            });
        }
    });
    (address, answered)
}

/// A delay longer than the server's idle timeout began again with every connection: nothing was ever sent.
///
/// Goal: think time is the user's: it continues while the connection is opened again.
#[test]
fn a_delay_outlasts_connections() {
    let (address, answered) = impatient_server(Duration::from_millis(40));
    let script = ScriptFile::new("function delay() return 200 end");
    let mut config = get(address);
    config.stop = Stop::after_requests(4);
    let (record, loaded) = run(&config, &script);
    assert_eq!(loaded.errors().count, 0, "{:?}", loaded.errors());
    // A request may cross the server's close: that one fails, as anybody's would.
    let crossed = usize::try_from(record.errors.read + record.errors.write).unwrap();
    assert_eq!(record.errors.total(), crossed as u64, "{:?}", record.errors);
    assert!(record.requests >= 4 - record.errors.total(), "{record:?}");
    assert!(
        answered.load(Ordering::SeqCst) >= 4 - crossed.min(3),
        "something was sent"
    );
}

/// `--script <(...)` gave the script to the first of the states, and nothing to those that send.
///
/// Goal: a script that comes through a pipe, which can be read once, runs in every thread.
#[test]
fn a_script_may_come_through_a_pipe() {
    let server = server();
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"wrk.path = '/piped'").unwrap();
    drop(writer);
    let mut script = ScriptFile::new("");
    let file = format!("/proc/self/fd/{}", reader.as_raw_fd());
    script.config.source = ScriptConfig::source_of(file.as_ref()).unwrap();
    let mut config = counted(&server, 20);
    (config.threads, config.connections) = (2, 2);
    run_well(&config, &script);
    assert_eq!(targets(&server), vec!["/piped"; 20]);
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
/// next string leaves when all responses to the last one came.
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
    assert!(record.slip.max() == 0, "a closed loop has no send delay");
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

/// Goal: the manual of wrk holds: `--pipeline` keeps several strings on their way, a depth at the
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
    assert!(matches!(config.target.addresses[0], Address::Inet(_)));
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
