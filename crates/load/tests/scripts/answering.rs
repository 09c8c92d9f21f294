//! The responses as a script sees them, and their timing.

use crate::scripted::{ScriptFile, counted, noting, run, run_well, server};
use crate::support::{Reply, TestServer, get};
use millpond_io::DriverChoice;
use millpond_load::{LoadRecord, Stop};

/// Goal: `response()` gets every response as it was received, without the framing of its body.
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

/// Goal: a response that comes in pieces is shown whole, whichever connection it is on.
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

/// Goal: a function gets its arguments, whichever it takes, also when the script replaces it or heads change from
/// response to response, and each response has a table of its own.
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

/// Goal: with `-B` a batch has one sample, that of its last response, and requests have theirs.
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

/// Goal: both kernel interfaces carry scripts, with connections that the server closes in between:
/// requests without a response are asked for anew.
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
