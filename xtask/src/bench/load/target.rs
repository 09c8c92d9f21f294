//! `millpond-load-target`: built, started, and asked what came.

use crate::bench::command::lasting;
use crate::bench::server::{Server, free_address};
use crate::bench::{Bench, build_beside};
use serde_json::Value;
use std::path::PathBuf;

const PACKAGE: &str = "millpond-load";
const PROGRAM: &str = "millpond-load-target";

/// The program.
pub(super) struct TargetProgram<'a> {
    bench: &'a Bench,
    program: PathBuf,
}

impl<'a> TargetProgram<'a> {
    /// Builds it as the measured program is built.
    pub(super) fn build(bench: &'a Bench) -> Result<Self, String> {
        let program = build_beside(bench, PACKAGE, PROGRAM)?;
        Ok(Self { bench, program })
    }

    /// On the server's CPU; each request takes so many microseconds.
    pub(super) fn start(&self, service_us: u32) -> Result<Server, String> {
        let address = free_address()?;
        let mut command = lasting(self.bench.machine.server_cpu);
        command.arg(&self.program);
        command.args(["--listen", &address.to_string()]);
        command.args(["--service-us", &service_us.to_string()]);
        Server::start(command, address)
    }
}

/// What came, beside a grid of this width.
pub(super) fn arrivals(server: &Server, interval_ns: u64) -> Result<Value, String> {
    let text = server.get(&format!("/arrivals?interval_ns={interval_ns}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{PROGRAM} said {text:?}: {error}"))
}
