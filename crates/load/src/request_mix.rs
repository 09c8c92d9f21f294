//! Requests of several classes, from templates: what a caller says about them.
//!
//! `cli` fills this in, `workload` compiles it before anything is connected.
use crate::validation::{BodyCheck, StatusSet, Validation};
use crate::workload::keys::KeyDistribution;
use millpond_http::Method;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Most classes of a run; each has histograms of its own in each thread.
pub const CLASSES_MAX: usize = 256;
/// Most keys that one scan of a mix reads.
pub const SCAN_KEYS_MAX: u64 = 100;

/// The ids that requests are about: `prefix` and a number.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpace {
    /// Keys that are there before the run inserts any.
    pub count: u64,
    /// How requests are spread over them.
    pub distribution: KeyDistribution,
    /// The text before the number.
    pub prefix: String,
    /// Digits of the number, with zeros in front; `None`: nine, or as many as it takes.
    pub digits: Option<usize>,
}

impl KeySpace {
    /// `count` keys `k000000000` and on, each as likely.
    pub fn uniform(count: u64) -> Self {
        Self {
            count,
            distribution: KeyDistribution::Uniform,
            prefix: "k".to_owned(),
            digits: None,
        }
    }
}

/// Which key a request is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyUse {
    /// One that is there, by the distribution.
    Drawn,
    /// The one behind the last inserted.
    New,
}

/// The part after the head of a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestBody {
    /// A template; empty: no body.
    Template(Vec<u8>),
    /// The value of the key.
    Value,
    /// Random-looking bytes, different for each request, as long as values are.
    Generated,
}

/// Requests that are counted together.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestClass {
    /// As it is reported.
    pub name: String,
    /// How often, in proportion to the other classes.
    pub weight: u64,
    /// It follows each request of the class before it and is about the same key; its own weight
    /// says nothing.
    pub is_second: bool,
    /// Its method.
    pub method: Method,
    /// Path and query, a template.
    pub target: String,
    /// Fields besides Host and Content-Length; the values are templates.
    pub fields: Vec<(String, String)>,
    /// The part after the head.
    pub body: RequestBody,
    /// Which key it is about.
    pub key: KeyUse,
    /// The response's body must be the value of the key.
    pub expects_value: bool,
    /// Which responses are right.
    pub validation: Validation,
}

impl RequestClass {
    /// GET `target`, of weight 1, any response below 400 right.
    pub fn get(name: &str, target: &str) -> Self {
        Self {
            name: name.to_owned(),
            weight: 1,
            is_second: false,
            method: Method::Get,
            target: target.to_owned(),
            fields: Vec::new(),
            body: RequestBody::Template(Vec::new()),
            key: KeyUse::Drawn,
            expects_value: false,
            validation: Validation::of(StatusSet::range(200, 399), BodyCheck::Ignore),
        }
    }
}

/// The requests of a run: classes in proportion to their weights.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMix {
    /// At least one.
    pub classes: Vec<RequestClass>,
    /// The ids they are about; `None` if no class names one.
    pub keys: Option<KeySpace>,
    /// Sizes of values, each as likely.
    pub value_bytes: RangeInclusive<usize>,
    /// Keys, values and draws follow from it.
    pub seed: u64,
    /// The file that `{file}` stands for.
    pub template_file: Option<PathBuf>,
}

impl RequestMix {
    /// These classes, without keys.
    pub fn of(classes: Vec<RequestClass>) -> Self {
        Self {
            classes,
            keys: None,
            value_bytes: 0..=0,
            seed: 1,
            template_file: None,
        }
    }
}
