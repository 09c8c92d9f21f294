//! `millpond serve entity --store cassandra://...`: how it and the nodes authenticate each other, and the serving; or
//! why it cannot be had.

use crate::flags::serve::CommonFlags;
use crate::output::Failure;
use clap::Args;
use millpond_entity::EntityConfig;
use millpond_entity::cluster_url::{ClusterLogin, ClusterSecurity, ClusterTls, ClusterUrl};
use millpond_http::{ServeConfig, ServeReport};
use millpond_io::tls::{CertificateFiles, Trust};
use std::path::{Path, PathBuf};

/// SIGHUP reads none of these files again: connections to nodes stay for as long as the nodes do.
#[derive(Args, Debug)]
#[command(next_help_heading = "Nodes of --store")]
pub(super) struct ClusterFlags {
    /// Sign in to the nodes as NAME
    #[arg(long, value_name = "NAME", requires_all = ["store", "store_password_file"])]
    store_user: Option<String>,
    /// The password of --store-user is the only line of FILE. It is read when the server starts, and
    /// not at SIGHUP; without --store-tls it crosses the network in plaintext
    #[arg(long, value_name = "FILE", requires = "store_user")]
    store_password_file: Option<PathBuf>,
    /// Speak TLS with the nodes: each has to show a certificate for its address, or for one of the
    /// hosts of --store
    #[arg(long, requires = "store")]
    store_tls: bool,
    /// Trust the authorities in this PEM file, and no others [default: those of the system]
    #[arg(long, value_name = "FILE", requires = "store_tls")]
    store_ca: Option<PathBuf>,
    /// Take a certificate of a trusted authority whatever host it is for: with an authority that signs
    /// for these nodes alone
    #[arg(long, requires = "store_ca")]
    store_any_host: bool,
    /// The server's own certificate, for nodes that ask for one: PEM
    #[arg(long, value_name = "FILE", requires_all = ["store_tls", "store_key"])]
    store_cert: Option<PathBuf>,
    /// Its private key: PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "store_cert")]
    store_key: Option<PathBuf>,
}

impl ClusterFlags {
    fn security(&self) -> Result<ClusterSecurity, Failure> {
        let login = match (&self.store_user, &self.store_password_file) {
            (Some(user), Some(file)) => Some(ClusterLogin {
                user: user.clone(),
                password: read_password(file)?,
            }),
            _ => None,
        };
        let pair = self.store_cert.clone().zip(self.store_key.clone());
        let tls = self.store_tls.then(|| ClusterTls {
            trust: self.store_ca.clone().map_or(Trust::System, Trust::File),
            identity: pair.map(|(certificate, key)| CertificateFiles { certificate, key }),
            any_host: self.store_any_host,
        });
        Ok(ClusterSecurity { login, tls })
    }
}

/// The only line of a file. What it holds stands in no sentence.
fn read_password(path: &Path) -> Result<String, Failure> {
    let wrong = |what: &dyn std::fmt::Display| Failure::usage(format!("{} {what}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(&format_args!("cannot be read: {error}")))?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    // A NUL ends a password on its way to the nodes.
    match !line.is_empty() && !line.contains(['\n', '\r', '\0']) {
        true => Ok(line.to_owned()),
        false => Err(wrong(&"has to hold a password, on its only line")),
    }
}

/// Reads all files, and opens no connection.
#[cfg(feature = "distributed")]
pub(super) fn check(url: &ClusterUrl, flags: &ClusterFlags) -> Result<(), Failure> {
    use millpond_entity::cluster::ClusterEngine;
    ClusterEngine::check_files(url, &flags.security()?).map_err(Failure::failed)
}

#[cfg(not(feature = "distributed"))]
pub(super) fn check(url: &ClusterUrl, flags: &ClusterFlags) -> Result<(), Failure> {
    flags.security()?;
    Err(not_in_this_build(url))
}

#[cfg(feature = "distributed")]
pub(super) fn serve(
    (url, flags): (&ClusterUrl, &ClusterFlags),
    max_value: Option<u64>,
    entity: &EntityConfig,
    (http, common): (&ServeConfig, &CommonFlags),
) -> Result<ServeReport, Failure> {
    use crate::output;
    use millpond_entity::cluster::{ClusterEngine, VALUE_BYTES_MAX};
    use millpond_entity::{Engine as _, serve_cluster};

    if max_value.is_some_and(|max| max > VALUE_BYTES_MAX) {
        return Err(Failure::usage(
            "--max-value can be 1MiB at most with --store: every copy holds a write in memory as a whole",
        ));
    }
    let engine = ClusterEngine::connect(url, &flags.security()?).map_err(Failure::failed)?;
    let engine = std::sync::Arc::new(engine);
    let (copies, conditions) = (engine.replicas(), engine.judges_conditions());
    serve_cluster(&engine, entity, http, |address, engine| {
        common.announce(address, http);
        let (name, version) = (engine.name, &engine.version);
        let conditions = if conditions { "with" } else { "without" };
        output::note(format!(
            "{name} {version} keeps the data in {url}: {copies} copies, {conditions} conditions"
        ));
    })
    .map_err(Failure::failed)
}

#[cfg(not(feature = "distributed"))]
pub(super) fn serve(
    (url, _): (&ClusterUrl, &ClusterFlags),
    _max_value: Option<u64>,
    _entity: &EntityConfig,
    _http: (&ServeConfig, &CommonFlags),
) -> Result<ServeReport, Failure> {
    Err(not_in_this_build(url))
}

#[cfg(not(feature = "distributed"))]
fn not_in_this_build(url: &ClusterUrl) -> Failure {
    Failure::usage(format!(
        "--store {url} is not in this build: build it with --features distributed"
    ))
}

#[cfg(test)]
#[path = "tests/cluster.rs"]
mod tests;
