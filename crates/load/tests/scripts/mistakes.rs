//! The handling of wrong scripts, before the run and during it.

use crate::scripted::{ScriptFile, counted, run, server};
use crate::support::get;
use millpond_load::{Script, ScriptConfig};

/// The error of loading this script.
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
    let refused = ScriptConfig::source_of("absent.lua".as_ref());
    let sentence = refused.unwrap_err().to_string();
    assert!(sentence.contains("the file cannot be read"), "{sentence}");
}

/// Goal: a mistake in the middle of a run is counted and reported, its request has failed, and the
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
