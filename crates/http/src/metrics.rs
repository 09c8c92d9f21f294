//! `/metrics`: Prometheus text of one server, all shards.
//!
//! A shard counts in plain integers and publishes a copy of them about once a second while
//! anything happens (`snapshot`); whoever is asked puts all copies into one text (`report`).
//!
//! Absent on purpose: a registry. The metrics are those listed in `report` and what the service
//! adds through [`MetricsText`].

pub(crate) mod report;
pub(crate) mod snapshot;
mod text;
mod proxy_protocol;
mod tls;

pub use text::MetricsText;
