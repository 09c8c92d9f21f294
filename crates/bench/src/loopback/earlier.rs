//! What everscale, the earlier program, came to: as published, and measured again.
//!
//! The record and the report show it beside ours.

use serde::{Deserialize, Serialize};

/// One figure of the earlier program.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct EarlierFigure {
    /// Allocator and pools.
    pub name: String,
    /// Where and when.
    pub from: String,
    /// Transactions per second, over all whole seconds.
    pub requests_per_s: f64,
    /// The best second; `null` where it is not known.
    pub peak_requests_per_s: Option<f64>,
    /// Mean latency.
    pub mean_ns: f64,
    /// Variance of the transactions on a connection; `null` where it is not known.
    pub per_connection_variance: Option<f64>,
    /// Threads of the client, and as many of the server.
    pub threads: u64,
}

const PUBLISHED: &str = "published 2020-04-16";
const AGAIN: &str = "again, two virtual CPUs";

/// All there are.
#[must_use]
pub fn figures() -> Vec<EarlierFigure> {
    let published = |name: &str, rate: f64, peak: f64, mean_ms: f64, variance: f64| EarlierFigure {
        name: name.to_owned(),
        from: PUBLISHED.to_owned(),
        requests_per_s: rate,
        peak_requests_per_s: Some(peak),
        mean_ns: mean_ms * 1e6,
        per_connection_variance: Some(variance),
        threads: 3,
    };
    vec![
        published("tcmalloc, no pools", 161_082.0, 168_962.0, 3.10, 28e3),
        published("malloc, no pools", 174_956.0, 190_018.0, 2.86, 75e3),
        published("malloc, pools", 174_323.0, 194_263.0, 2.87, 443e3),
        EarlierFigure {
            name: "malloc, pools or not".to_owned(),
            from: AGAIN.to_owned(),
            requests_per_s: 52_000.0,
            peak_requests_per_s: None,
            mean_ns: 9.6e6,
            per_connection_variance: None,
            threads: 1,
        },
    ]
}

/// What may be made of them.
pub const COMPARABLE: &str = "connections, requests on each, bodies of 1,024 and 740 bytes in one chunk \
    each, no pipelining, a connection that is free takes the next request, client and server in one process \
    and under one allocator, loopback; on a machine like the last line's, with one thread on each side, the \
    rates too.";
/// What may not.
pub const NOT_COMPARABLE: &str = "the published rates: other hardware, three threads on each side. Its pools \
    against malloc: it made no heap call for a transaction with pools or without, so the same thing was run \
    twice, once each, with 4 to 11 % of drift; the calls are counted here. Our responses say Date, Server and \
    Content-Type, its did not. Latency by seconds with p50 and p99 is ours alone.";
