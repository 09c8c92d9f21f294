//! How a run with a script ends: `thread:stop()`, `done()`, and a thread that does not come back.

use crate::scripted::{ScriptFile, counted, noting, run, run_well, server};
use crate::support::{MS, Reply, TestServer, get};
use millpond_load::{LoadRecord, Observer, Script, Stop};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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

/// Goal: `setup` is called for each thread, a thread's values are read at the end, and `done` gets the figures of the
/// record.
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

/// Lets the script that does not return continue once its run has ended.
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
    let mut script = ScriptFile::new("");
    let file = script.directory.path().join("go-on");
    let code = format!(
        "local threads = 0
         function setup(thread) thread:set('place', threads) threads = threads + 1 end
         local calls = 0
         function request()
            calls = calls + 1
            while place == 1 and calls > 1 and not io.open({:?}) do end
            return wrk.format()
         end",
        file.display().to_string()
    );
    script.config.source = code.into_bytes().into();
    let mut load = get(server.address);
    load.threads = 2;
    load.connections = 4;
    // Long enough for each thread to have asked once, however busy the machine is.
    load.stop = Stop::after_ns(2_000 * MS);
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
