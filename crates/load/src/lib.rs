//! The load generator: closed and open loop with three clocks.
pub mod config;
pub mod schedule;
mod values;
mod workload;
pub mod validation;
mod outcome;
mod session;
mod pacing;
mod shared;
mod worker;
pub mod record;
mod verdict;
pub mod run;
pub mod error;

pub use config::{LoadConfig, Mode, PIPELINE_MAX, Stop, TIMEOUT_NS_DEFAULT, Target, Workload};
pub use error::{ConnectFailure, LoadError};
pub use record::{Ended, LoadRecord};
pub use run::{Progress, run};
pub use validation::{BodyCheck, StatusSet, Validation};
