//! Requests of entity servers: what `millpond load` asks with --put, --get, --mix and --ycsb.

use super::Failure;
use super::mixes::{Mix, Ycsb};
use super::requests::{RequestFlags, Urls, parse_sizes};
use clap::Args;
use millpond_http::Method;
use millpond_load::{
    BodyCheck, KeyDistribution, RequestBody, RequestClass, RequestMix, StatusSet, Validation,
    Workload,
};
use std::ops::RangeInclusive;

/// YCSB's own default.
const YCSB_KEYS_DEFAULT: u64 = 1_000;
/// The path of the entity API, for which the server's root stands too.
const ENTITY_PATH: &str = "/v0/entity";

/// The flags.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub(super) struct EntityRequestFlags {
    /// Write the values of an entity server
    #[arg(long, requires = "keys",
        conflicts_with_all = ["get", "urls", "method", "body", "body_size", "script"])]
    put: bool,
    /// Read back the values that --put wrote, and check them
    #[arg(long, requires = "keys",
        conflicts_with_all = ["urls", "method", "body", "body_size", "script", "expect_same_body"])]
    get: bool,
    /// Operations on an entity server by weight: read=95,update=5; also insert, delete, scan, and rmw
    /// (a read and an update of one key, which count as two requests)
    #[arg(long, value_name = "MIX", value_parser = Mix::parse, requires = "keys",
        conflicts_with_all = ["put", "get", "ycsb", "urls", "method", "body", "body_size", "no_templates", "script",
            "expect_same_body"])]
    mix: Option<Mix>,
    /// One of YCSB's core workloads, after --put has written the keys [default keys: 1000]
    #[arg(long, value_name = "a|b|c|d|e|f", value_parser = Ycsb::parse,
        conflicts_with_all = ["put", "get", "urls", "method", "body", "body_size", "no_templates", "script",
            "expect_same_body"])]
    ycsb: Option<Ycsb>,
    /// Size of a value, or sizes, each as likely
    #[arg(long, value_name = "SIZE|MIN..MAX", value_parser = parse_sizes, default_value = "1KiB")]
    value_size: RangeInclusive<usize>,
}

impl EntityRequestFlags {
    /// Whether requests are those of an entity server.
    pub(super) const fn is_given(&self) -> bool {
        self.put || self.get || self.mix.is_some() || self.ycsb.is_some()
    }

    /// The path of the target, for workloads that have but one.
    pub(super) fn target_path(&self, urls: &Urls) -> String {
        match (self.put || self.get, urls.first.path.as_str()) {
            (true, "/") => ENTITY_PATH.to_owned(),
            (_, path) => path.to_owned(),
        }
    }

    /// The requests.
    pub(super) fn workload(
        &self,
        asked: &RequestFlags,
        urls: &Urls,
        seed: u64,
    ) -> Result<Workload, Failure> {
        if urls.lines.len() > 1 {
            return Err(Failure::usage(
                "--put, --get and mixes take one URL: that of an entity server",
            ));
        }
        let path = match urls.first.path.as_str() {
            "/" => ENTITY_PATH,
            path => path,
        };
        let fields = asked.fields();
        let ycsb = self.ycsb.as_ref();
        let classes = match self.mix.as_ref().or(ycsb.map(|ycsb| &ycsb.mix)) {
            Some(mix) => mix.classes(path, &fields).map_err(Failure::usage)?,
            None => match self.plain_workload(asked, seed) {
                Some(plain) => return Ok(plain),
                None => vec![self.class(path, fields)],
            },
        };
        let distribution = match (ycsb, self.put) {
            (Some(ycsb), _) => ycsb.distribution,
            (None, true) => KeyDistribution::Sequential,
            (None, false) => KeyDistribution::Uniform,
        };
        let keys = asked.keys.or(ycsb.map(|_| YCSB_KEYS_DEFAULT));
        Ok(Workload::Mix(RequestMix {
            keys: keys.map(|count| asked.key_space(count, distribution)),
            value_bytes: self.value_size.clone(),
            seed,
            template_file: asked.template_file.clone(),
            classes,
        }))
    }

    /// The forms without anything that those of before did not have.
    fn plain_workload(&self, asked: &RequestFlags, seed: u64) -> Option<Workload> {
        let is_plain = asked.key_distribution.is_none()
            && asked.key_prefix == "k"
            && asked.key_digits.is_none()
            && asked.fields().is_empty()
            && self.value_size.start() == self.value_size.end();
        let (keys, value_bytes) = (asked.keys.unwrap_or_default(), *self.value_size.start());
        match (is_plain, self.put) {
            (false, _) => None,
            (true, true) => Some(Workload::EntityPut {
                keys,
                value_bytes,
                seed,
            }),
            (true, false) => Some(Workload::EntityGet {
                keys,
                value_bytes,
                seed,
            }),
        }
    }

    fn class(&self, path: &str, fields: Vec<(String, String)>) -> RequestClass {
        let class = RequestClass {
            fields,
            ..RequestClass::get("get", &format!("{path}?id={{key}}"))
        };
        if self.put {
            return RequestClass {
                name: "put".to_owned(),
                method: Method::Put,
                body: RequestBody::Value,
                validation: Validation::of(StatusSet::of(&[201]), BodyCheck::Exact),
                ..class
            };
        }
        RequestClass {
            expects_value: true,
            validation: Validation::of(StatusSet::of(&[200]), BodyCheck::Exact),
            ..class
        }
    }
}
