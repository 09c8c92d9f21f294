//! Scripts in files of their own, run against a server of the tests.

use crate::support::{Reply, TestServer, check_identities, get};
use millpond_load::{LoadConfig, LoadRecord, Observer, Script, ScriptConfig, Stop};
use std::sync::atomic::AtomicBool;

/// A script in a file of its own.
pub(crate) struct ScriptFile {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) config: ScriptConfig,
}

impl ScriptFile {
    pub(crate) fn new(code: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = ScriptConfig {
            file: directory.path().join("script.lua"),
            source: code.as_bytes().into(),
            url: "http://pond/path".to_owned(),
            args: vec![],
            method: "GET".to_owned(),
            fields: vec![],
            body: None,
            seed: None,
        };
        Self { directory, config }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.config.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// Where the script may leave notes: `NOTES` in its code.
    pub(crate) fn notes(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("notes")).unwrap_or_default()
    }
}

/// A script that may leave notes by `note(...)`.
pub(crate) fn noting(code: &str) -> ScriptFile {
    let mut script = ScriptFile::new("");
    let notes = script.directory.path().join("notes");
    let note = format!(
        "function note(...)
            local file = io.open({:?}, 'a')
            file:write(string.format(...), '\\n')
            file:close()
         end\n",
        notes.display().to_string()
    );
    script.config.source = (note + code).into_bytes().into();
    script
}

/// Not read.
pub(crate) struct Unwatched;

impl Observer for Unwatched {}

/// Says hello, to HEAD without a body: a client that waits for one does not see the next response.
pub(crate) fn server() -> TestServer {
    TestServer::start(|seen| {
        let mut reply = Reply::ok(b"hello");
        if seen.head.starts_with("HEAD ") {
            reply.bytes.truncate(reply.bytes.len() - 5);
        }
        reply
    })
}

pub(crate) fn counted(server: &TestServer, requests: u64) -> LoadConfig {
    let mut config = get(server.address);
    config.stop = Stop::after_requests(requests);
    config
}

pub(crate) fn run(config: &LoadConfig, script: &ScriptFile) -> (LoadRecord, Script) {
    let mut loaded = Script::load(&script.config, config).unwrap();
    let stop = AtomicBool::new(false);
    let record = millpond_load::run_script(config, &mut loaded, &Unwatched, &stop).unwrap();
    check_identities(&record);
    (record, loaded)
}

/// Runs it and expects neither failed requests nor errors of the script.
pub(crate) fn run_well(config: &LoadConfig, script: &ScriptFile) -> (LoadRecord, Script) {
    let (record, loaded) = run(config, script);
    assert_eq!(record.errors.total(), 0, "{:?}", record.errors);
    assert_eq!(loaded.errors().count, 0, "{:?}", loaded.errors());
    (record, loaded)
}

pub(crate) fn targets(server: &TestServer) -> Vec<String> {
    let seen = server.seen();
    seen.iter().map(|seen| seen.target().to_owned()).collect()
}
