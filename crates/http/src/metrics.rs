//! `/metrics`: Prometheus text of one server, all shards.
//!
//! A shard counts in plain integers and publishes a copy of them about once a second while
//! anything happens (`snapshot`); whoever is asked puts all copies into one text (`report`).
//!
//! Absent on purpose: a registry. The metrics are those listed in `report` and what the service
//! adds through [`MetricsText`].

mod access;
pub(crate) mod report;
pub(crate) mod scrape;
pub(crate) mod snapshot;
mod text;
mod proxy_protocol;
mod tls;

pub use access::MetricsAccess;
pub use text::MetricsText;

use crate::head_text::FieldValue;

/// The media type of the text.
pub(crate) const PROMETHEUS_TEXT: FieldValue<'_> =
    FieldValue::from_static("text/plain; version=0.0.4; charset=utf-8");
