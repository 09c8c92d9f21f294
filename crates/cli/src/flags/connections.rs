//! How `millpond load` opens and closes its connections.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use millpond_http::log::LogLevel;
use millpond_http::{LimitValues, Limits, load_tls, log};
use millpond_io::Address;
use millpond_io::tls::{CertificateFiles, TlsServer};
use millpond_lab::doctor::{Machine, OTHER_FILES};
use millpond_load::{AddressUse, ConnectionPlan, LoadRecord, Reconnect, Second, SourceRange};
use millpond_measure::record::{LoadReport, LoadSecond};
use millpond_measure::report::hlog;

use crate::output;
use crate::output::JsonFile;

use super::printing::Finished;
use super::reach::ReachFlags;
use super::url::Url;
use super::{Failure, parse_bytes, parse_count, parse_duration_ns};

/// The flags of how connections come and go.
#[derive(Args, Debug)]
#[command(next_help_heading = "Connections")]
pub(super) struct ConnectionFlags {
    /// Close a connection after so many requests and open another; 1 is a connection for each
    #[arg(long, value_name = "N", value_parser = parse_count)]
    requests_per_connection: Option<u64>,
    /// Wait as long for all connections to be open before the first request leaves. If some are not, they are
    /// abandoned, the others are measured, and the verdict is INVALID
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns, default_value = "30s")]
    connect_within: u64,
    /// Go on while the target is away, as for a restart, until --duration is over, and say when it was and for how long.
    /// A request that no connection takes within --timeout has failed
    #[arg(long, conflicts_with_all = ["find_max", "script"])]
    pub(super) keep_going: bool,
    /// Open connections one after the other over TIME while those that are there send already
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ns)]
    connection_ramp: Option<u64>,
    /// Close all connections and open them anew after TIME, or after N requests on all of them (2s, 5m; 10000, 50k).
    /// That is outside the clocks: no request is under way, the rate leaves the time out, and a schedule waits
    #[arg(long, value_name = "TIME|N", value_parser = parse_reconnect,
        conflicts_with_all = ["find_max", "script"])]
    reconnect_every: Option<Reconnect>,
    /// Where connections come from, in turn: an address, 127.0.0.2..127.0.0.200 or 127.1.0.0/16.
    /// Each has some 28,000 ports
    #[arg(long, value_name = "ADDRESSES", conflicts_with = "unix")]
    source: Option<SourceRange>,
}

/// A time has a unit that is one; anything else is a number of requests.
fn parse_reconnect(text: &str) -> Result<Reconnect, String> {
    let has_unit = ["s", "m", "min", "h"]
        .iter()
        .any(|unit| text.ends_with(unit));
    let found = match has_unit {
        true => parse_duration_ns(text).map(Reconnect::EveryNs),
        false => parse_count(text).map(Reconnect::EveryRequests),
    };
    found.map_err(|problem| {
        format!("{problem}; write a time, as 2s, or a number of requests, as 10000")
    })
}

impl ConnectionFlags {
    /// Of all addresses of `url`'s server, as `reach` has them, those of the sources' family.
    pub(super) fn addresses(
        &self,
        reach: &ReachFlags,
        url: &Url,
    ) -> Result<Arc<[Address]>, Failure> {
        let all = reach.addresses(url)?;
        self.reached(&all).map_err(Failure::usage)
    }

    /// Those of the sources' family.
    fn reached(&self, all: &[Address]) -> Result<Arc<[Address]>, String> {
        let is_v6 = self.source.map(|sources| sources.at(0).is_ipv6());
        let is_reached = |address: &&Address| match (address.inet(), is_v6) {
            (Some(address), Some(is_v6)) => address.is_ipv6() == is_v6,
            _ => true,
        };
        let reached: Arc<[Address]> = all.iter().filter(is_reached).cloned().collect();
        match reached.is_empty() {
            true => Err(
                "--source has addresses of one family (IPv4, IPv6), and the target of the other"
                    .to_owned(),
            ),
            false => Ok(reached),
        }
    }

    pub(super) const fn within_ns(&self) -> u64 {
        self.connect_within
    }

    /// The plan of a run to addresses that are used as `addresses` says.
    pub(super) fn plan(&self, addresses: AddressUse) -> ConnectionPlan {
        ConnectionPlan {
            requests_max: self.requests_per_connection,
            ramp_ns: self.connection_ramp.unwrap_or_default(),
            sources: self.source,
            addresses,
            reconnect: self.reconnect_every,
        }
    }
}

// Outputs of `millpond load` that are written while the run goes on: a line for each second, or
// three histograms.

/// What its lines are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// A JSON object for each second, and one for the run at the end.
    Ndjson,
    /// HdrHistogram's interval log.
    Hlog,
}

/// One output.
#[derive(Debug)]
struct Stream {
    form: Form,
    /// `None`: stdout.
    file: Option<(File, JsonFile)>,
    /// The first thing that went wrong; nothing is written after it.
    failure: Option<Failure>,
}

impl Stream {
    fn write(&mut self, text: &str) {
        if self.failure.is_some() {
            return;
        }
        let written = match &mut self.file {
            None => output::print(text),
            Some((file, name)) => file
                .write_all(text.as_bytes())
                .map_err(|error| Failure::failed(format!("{name} cannot be written: {error}"))),
        };
        self.failure = written.err();
    }
}

/// All of one run.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<Stream>);

impl Streams {
    /// Begins one; an older file is gone then.
    pub(super) fn open(&mut self, form: Form, file: Option<&JsonFile>) -> Result<(), Failure> {
        let file = match file {
            None => None,
            Some(name) => Some((name.create()?, name.clone())),
        };
        let failure = None;
        self.0.push(Stream {
            form,
            file,
            failure,
        });
        Ok(())
    }

    /// Whether one of them is on stdout.
    pub(super) fn has_stdout(&self) -> bool {
        self.0.iter().any(|stream| stream.file.is_none())
    }

    /// Sending begins.
    pub(super) fn started(&mut self, at: SystemTime) {
        for stream in self.0.iter_mut().filter(|one| one.form == Form::Hlog) {
            stream.write(&hlog::header(env!("CARGO_PKG_VERSION"), at));
        }
    }

    /// A second is over.
    pub(super) fn second(&mut self, second: &Second<'_>) {
        let clocks = second.clocks;
        for stream in &mut self.0 {
            let text = match stream.form {
                Form::Ndjson => line_of(second.figures),
                Form::Hlog => {
                    let clocks = [&clocks.response, &clocks.service, &clocks.slip];
                    Ok(hlog::second(second.figures, clocks))
                }
            };
            match text {
                Ok(text) => stream.write(&text),
                Err(failure) => stream.failure = Some(failure),
            }
        }
    }

    /// A run that is over and has no seconds any more: an interval log holds it as one.
    pub(super) fn whole(&mut self, run: &Finished<'_>) {
        let LoadRecord {
            response,
            service,
            slip,
            ..
        } = run.record;
        let figures = LoadSecond {
            duration_ns: run.record.duration_ns,
            ..LoadSecond::default()
        };
        self.started(UNIX_EPOCH + Duration::from_nanos(run.record.started_unix_ns));
        for stream in self.0.iter_mut().filter(|one| one.form == Form::Hlog) {
            stream.write(&hlog::second(&figures, [response, service, slip]));
        }
    }

    /// The run is over: the last lines, and whatever went wrong before.
    pub(super) fn finish(mut self, report: &LoadReport) -> Result<(), Failure> {
        for stream in &mut self.0 {
            let text = match stream.form {
                Form::Ndjson => {
                    let summary = LoadReport {
                        histograms: None,
                        ..report.clone()
                    };
                    summary.to_line()
                }
                Form::Hlog => hlog::remark(report),
            };
            stream.write(&text.map_err(Failure::failed)?);
            if let Some(failure) = stream.failure.take() {
                return Err(failure);
            }
        }
        Ok(())
    }
}

fn line_of(second: &LoadSecond) -> Result<String, Failure> {
    second.to_line().map_err(Failure::failed)
}

// The flags of a server that speaks TLS.

#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub(super) struct TlsFlags {
    /// Speak TLS (1.2 and 1.3) with the certificate in FILE: PEM, the server's own first, then
    /// those that sign it. May be given several times, each with its key: the first is for clients
    /// that name no host or another one. SIGHUP reads all files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Vec<PathBuf>,
    /// The private key of the certificate: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Vec<PathBuf>,
    /// Clients must show a certificate that an authority in this PEM file has signed; others are
    /// refused. SIGHUP reads it again
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// What a client may send before its handshake is over, which may take --head-timeout
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "32KiB")]
    tls_max_handshake: u64,
}

/// Less than the first message of any client.
const HANDSHAKE_BYTES_MIN: u64 = 1 << 10;

impl TlsFlags {
    /// Reads the certificates, if there are any to be read.
    pub(super) fn load(&self, limits: &Limits) -> Result<Option<TlsServer>, Failure> {
        let pairs = self.pairs().map_err(Failure::usage)?;
        if pairs.is_empty() {
            return Ok(None);
        }
        let handshake_bytes_max = usize::try_from(self.tls_max_handshake).unwrap_or(usize::MAX);
        let loaded = load_tls(
            pairs,
            self.tls_client_ca.clone(),
            limits,
            handshake_bytes_max,
        );
        let (server, warnings) = loaded.map_err(Failure::failed)?;
        for warning in &warnings {
            log::write(LogLevel::Warn, warning);
        }
        Ok(Some(server))
    }

    fn pairs(&self) -> Result<Vec<CertificateFiles>, String> {
        let (certificates, keys) = (&self.tls_cert, &self.tls_key);
        if certificates.len() != keys.len() {
            return Err(format!(
                "--tls-cert is given {} times and --tls-key {} times: each certificate needs its key",
                certificates.len(),
                keys.len()
            ));
        }
        if self.tls_max_handshake < HANDSHAKE_BYTES_MIN {
            return Err("--tls-max-handshake is too small for any handshake: 1KiB at least".into());
        }
        let pair = |(certificate, key): (&PathBuf, &PathBuf)| CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        };
        Ok(certificates.iter().zip(keys).map(pair).collect())
    }
}

// How many connections a server has descriptors for.
//
// The soft limit of open files is raised to the hard one, and what is left beside the server's own files bounds its
// connections: they run out at a number that is known and said, and not where the store wants to open a file.

/// Of each shard: its listener, its ring or epoll, what wakes it, a spare one.
const FILES_PER_SHARD: u64 = 8;
/// Tables that the embedded store keeps open (its `max_open_files`), and its logs.
const STORE_FILES: u64 = 256 + 32;
/// Scrapers of `--metrics-listen`.
const METRICS_FILES: u64 = 64;

/// What a server of this kind has for its connections.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Room {
    /// Files that may be open.
    limit: u64,
    /// Of these, what is kept for everything but connections.
    reserved: u64,
    /// Files of a connection: a proxy has one to an upstream beside each of its clients'.
    each: u64,
    shards: u64,
}

impl Room {
    /// Of this process, once its soft limit is the hard one.
    pub(super) fn of(server: &str, shards: usize, has_metrics: bool) -> Self {
        let limit = Machine::this().open_files();
        Self::within(
            limit.map_or(u64::MAX, |limit| limit.hard),
            server,
            shards,
            has_metrics,
        )
    }

    /// The same of a server that has so many other files open.
    pub(super) fn beside(self, files: u64) -> Self {
        Self {
            reserved: self.reserved.saturating_add(files),
            ..self
        }
    }

    fn within(limit: u64, server: &str, shards: usize, has_metrics: bool) -> Self {
        let shards = u64::try_from(shards).unwrap_or(u64::MAX);
        let store = if server == "entity" { STORE_FILES } else { 0 };
        let metrics = if has_metrics { METRICS_FILES } else { 0 };
        Self {
            limit,
            reserved: OTHER_FILES + store + metrics + FILES_PER_SHARD.saturating_mul(shards),
            each: if server == "proxy" { 2 } else { 1 },
            shards,
        }
    }

    /// Each shard also has sockets that are refused or closing.
    fn connections_max(self) -> u64 {
        let sockets = self.limit.saturating_sub(self.reserved) / self.each / self.shards.max(1);
        let sockets = usize::try_from(sockets).unwrap_or(usize::MAX);
        let connections = LimitValues::connections_within(sockets) as u64;
        connections.saturating_mul(self.shards)
    }

    /// As many of the connections that are wanted as there is room for; at least one for each shard, or the sentence that
    /// says what is missing.
    pub(super) fn connections(self, wanted: u64) -> Result<u64, String> {
        let room = self.connections_max();
        match room < self.shards.min(wanted) {
            false => Ok(wanted.min(room)),
            true => Err(format!(
                "{} files may be open (ulimit -n), and this server keeps {} for itself: raise the limit to {} or more",
                self.limit,
                self.reserved,
                self.needed(self.shards),
            )),
        }
    }

    /// What to say where it is less than what is wanted.
    pub(super) fn note(self, wanted: u64) -> Option<String> {
        let room = self.connections_max();
        let needed = self.needed(wanted);
        (room < wanted).then(|| {
            format!(
                "at most {room} of {wanted} connections (--max-connections): {} files may be open \
                 (ulimit -Hn), and {} of them are kept for other files; `ulimit -n {needed}` as root, or \
                 LimitNOFILE={needed} in a systemd unit, is enough for all",
                self.limit, self.reserved
            )
        })
    }

    fn needed(self, connections: u64) -> u64 {
        let share = connections.div_ceil(self.shards.max(1));
        let values = LimitValues {
            connections_max: usize::try_from(share).unwrap_or(usize::MAX),
            ..LimitValues::DEFAULT
        };
        let sockets = (values.sockets_max() as u64).saturating_mul(self.shards);
        sockets
            .saturating_mul(self.each)
            .saturating_add(self.reserved)
    }
}

#[cfg(test)]
#[path = "tests/connections.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/tls.rs"]
mod tls_tests;

#[cfg(test)]
#[path = "tests/descriptors.rs"]
mod descriptors_tests;
