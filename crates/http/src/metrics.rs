//! `/metrics`: Prometheus text of one server, all shards.
//!
//! A shard counts in plain integers and publishes a copy of them about once a second while
//! anything happens (`snapshot`); the shard that is asked puts all copies into one text (`report`).
//!
//! The metrics are those listed in `report` and what the service adds through [`MetricsText`].

pub(crate) mod report;

pub use report::MetricsAccess;
pub use report::MetricsText;

use crate::head_text::FieldValue;

/// The media type of the text.
pub(crate) const PROMETHEUS_TEXT: FieldValue<'_> =
    FieldValue::from_static("text/plain; version=0.0.4; charset=utf-8");
