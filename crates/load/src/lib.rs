//! The load generator: closed and open loop, with three clocks that are always on.
//!
//! To begin: [`run`](fn@run) a [`LoadConfig`], which is made of a [`Target`] and a [`Workload`], and read the
//! [`LoadRecord`]. `millpond load` is flags around that.
//!
//! A run of a thousand connections or more needs that many open files: [`raise_descriptor_limit`] lifts this process's soft
//! limit, 1024 on most machines, to the hard one. `millpond load` does so; a library does not change the process it is in.
//!
//! | clock | from | to |
//! |---|---|---|
//! | *response* | the intended start, fixed before the run | the last byte of the response |
//! | *service* | the actual write | the last byte of the response |
//! | *send delay* (`slip`) | the intended start | the actual write |
//!
//! Send delay + service = response for every request. A generator that waits for a slow server before it
//! sends the next request would not see the slow moment (coordinated omission); here the schedule
//! is fixed, so response sees it and service shows how much of it was the server's own work.
//!
//! A request travels `arrivals` -> `schedule` -> `workload` or `script` -> `connection` (`worker` makes the socket calls) ->
//! `validation` -> `outcome` -> `timeline`; `run` merges the threads into a [`LoadRecord`], which judges itself.

pub mod config;
pub mod arrivals;
pub mod schedule;
pub mod request_mix;
pub mod request_plan;
pub mod connection_plan;
mod workload;
pub mod script;
mod cookies;
mod samples;
mod listener;
mod outages;
mod connection;
mod worker;
pub mod validation;
mod outcome;
mod timeline;
mod shared;
pub mod run;
pub mod record;
mod merge;
mod verdict;
pub mod search;
pub mod error;

pub use arrivals::{Arrivals, Profile, Rate, Segment, Spacing};
pub use config::{
    CONNECT_WITHIN_NS_DEFAULT, LoadConfig, Mode, PIPELINE_MAX, RESPONSE_FIELDS_MAX,
    RESPONSE_HEAD_BYTES_MAX, Stop, TIMEOUT_NS_DEFAULT, Target, WarmUp, Workload,
};
pub use connection_plan::ConnectionUse;
pub use connection_plan::Openings;
pub use connection_plan::TargetThreads;
pub use connection_plan::{AddressUse, ConnectionPlan, Reconnect, SourceRange};
pub use cookies::{COOKIE_BYTES_MAX, COOKIES_MAX, CookiePlan};
pub use error::{ConnectFailure, LoadError};
pub use merge::MergeError;
pub use millpond_io::raise_descriptor_limit;
pub use outages::Undisturbed;
pub use record::{ClassRecord, Ended, LoadRecord};
pub use request_mix::{
    CLASSES_MAX, KeySpace, KeyUse, RequestBody, RequestClass, RequestMix, SCAN_KEYS_MAX,
};
pub use request_plan::RequestPlan;
pub use run::{Connecting, Observer, Progress, run, run_observed, run_script};
pub use samples::BatchClocks;
pub use samples::{RequestSample, SAMPLES_MAX, Samples};
pub use script::{Script, ScriptConfig, ScriptErrors};
pub use search::{SearchNews, SearchPlan, find_max};
pub use shared::AbortRule;
pub use timeline::{Clocks, Second};
pub use validation::{BodyCheck, Checksum, StatusSet, Validation};
pub use verdict::facts_of;
pub use workload::keys::KeyDistribution;
pub use workload::template::is_template;
