//! The command as a user meets it: words in, text, files and an exit status out.

#![allow(
    clippy::unwrap_used,
    reason = "a helper that fails fails its test, with the line"
)]

mod support;
mod tls;
mod usage;
mod doctor;
mod service;
mod junit;
mod config;
mod serve;
mod entity;
mod entity_transfer;
mod hand_over;
mod forbidden;
mod logs;
mod proxy;
mod intermediaries;
mod files;
mod load;
mod requests;
mod cookies;
mod ports;
mod profile;
mod load_outputs;
mod drop_in;
mod find_max;
mod load_accuracy;
mod load_scripts;
mod bench;
mod compare;
mod report;
mod baseline;
#[path = "../../../measure/tests/synthetic/mod.rs"]
mod synthetic;
#[path = "../../../measure/tests/schema_check/mod.rs"]
mod schema_check;
