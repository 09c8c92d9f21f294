//! Strict HTTP/1.1, server and client, on memory pools.
//!
//! To begin: hand a function to [`Handler`], as in the service below; write an `async fn` and hand that to
//! [`AsyncService`]; or implement [`Service`]. `examples/` has whole servers; `docs/how-to/embed-the-crates.md` goes
//! through routes, late responses, streams, TLS and the [`Client`].
//!
#![doc = concat!("```no_run\n", include_str!("../examples/quickstart.rs"), "```\n")]
//!
//! Data travels through the modules in the order of the `mod` lines below:
//!
//! ```text
//! io::Event -> server -> connection -> parse (scan) -> body -> Service::call
//!                                                                  |
//!   io::Driver::send <- server <- encode <- Response::send <-------+   Completions::respond
//! ```
//!
//! Invariants: framing is never guessed (a doubt closes the connection); responses leave in the
//! order of their requests, all of one tick in one send; an idle connection owns no buffer; a
//! request in steady state makes no heap call with pools on; every cap on a peer has a status code.

#![warn(missing_debug_implementations)]

pub mod limits;
pub mod method;
pub mod status;
pub mod head;
pub mod head_text;
mod scan;
pub mod parse;
pub mod error;
pub mod body;
pub mod body_budget;
mod kept_input;
pub mod request;
pub mod service;
pub mod response;
mod streaming;
pub mod handler;
pub mod completions;
pub mod router;
pub mod asynchronous;
mod connection;
mod connection_table;
pub mod counters;
pub mod durations;
mod server;
pub mod encode;
pub mod plaintext;
pub mod metrics;
pub mod files;
pub mod access_log;
pub mod log;
pub mod serve;
pub mod client;
pub mod proxy;

pub use access_log::{AccessLogConfig, AccessLogFormat, AccessLogTarget};
pub use asynchronous::{AsyncRequest, AsyncService, AsyncShard, Reply, ResponseBody};
pub use body::{BodyDecoder, BodyStep};
pub use body_budget::{BodyBudget, BodyHold};
pub use client::{
    Client, ClientConfig, ClientConnection, ClientError, ClientEvent, ExchangeEvent, ExchangeId,
    IdenticalResponses, LastHead, OutgoingRequest,
};
pub use completions::Completions;
pub use durations::{DurationHistogram, ROUTES_MAX};
pub use encode::encode_request;
pub use error::{BodyError, ParseError};
pub use files::{Files, FilesConfig, FilesError, Site};
pub use handler::{Handler, HandlerError};
pub use head::{FieldSpan, Framing, HeadFields, RequestHead, ResponseHead, Version};
pub use head_text::{
    Authority, Field, FieldName, FieldValue, HeadPart, HeadTextError, ReceivedFields, RequestTarget,
};
pub use limits::{LimitValues, Limits, LimitsError};
pub use log::{LogFormat, LogLevel};
pub use method::Method;
pub use metrics::{MetricsAccess, MetricsText};
pub use parse::{
    Parsed, parse_request_head, parse_request_head_by, parse_response_head, parse_response_head_by,
    parse_trailer_fields,
};
pub use plaintext::Plaintext;
pub use request::Request;
pub use request::answer_other_method;
pub use response::{BodyLength, Response, SendError, WriteError};
pub use router::{Routed, Router};
pub use scan::ScannerKind;
pub use serve::{
    DriverChoice, Reread, Running, ServeConfig, ServeError, ServeReport, ShardServer, StatusPage,
    TLS_HANDSHAKE_BYTES_MAX, load_tls, serve, serve_with,
};
pub use service::{
    AfterFin, Flow, Interest, RequestToken, Service, ServiceContext, ShardStart, StreamEvent,
};
pub use status::StatusCode;

/// The page for users who embed these crates: its blocks are tests of this crate, which has all they need.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/how-to/embed-the-crates.md")]
mod embedding {}
