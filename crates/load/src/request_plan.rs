//! The requests and how the server is reached: the part of a run without its length and rate.
//!
//! `millpond load` makes one run of a plan; a comparison makes many short ones, each towards another server.

use millpond_http::Method;
use millpond_io::Address;
use millpond_io::tls::TlsClient;
use millpond_measure::record::{SentRequest, SentRequests, SentScript, SentTls};
use millpond_mempool::{BlockPool, Buffer, PoolMode};

use crate::config::{LoadConfig, Target, Workload};
use crate::connection_plan::{AddressUse, ConnectionPlan};
use crate::error::LoadError;
use crate::request_mix::RequestBody;
use crate::script::ScriptConfig;
use crate::validation::{Validation, sha256_hex};
use crate::workload::Requests;

/// The requests for a server.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// Where requests go.
    pub target: Target,
    /// Their kinds; with a script only what it finds in its table.
    pub workload: Workload,
    /// Which responses are right.
    pub validation: Validation,
    /// The script that makes the requests.
    pub script: Option<ScriptConfig>,
    /// TLS towards the target; `None`: plaintext.
    pub tls: Option<TlsClient>,
    /// Whether `tls` verifies the server's certificate.
    pub is_verified: bool,
    /// Which of the target's addresses connections use.
    pub addresses: AddressUse,
    /// A connection is closed after so many requests; `None`: never.
    pub requests_per_connection: Option<u64>,
}

impl RequestPlan {
    /// These requests of `target`, in plaintext, any response right that the workload allows.
    #[must_use]
    pub fn new(target: Target, workload: Workload) -> Self {
        Self {
            validation: Validation::for_workload(&workload),
            target,
            workload,
            script: None,
            tls: None,
            is_verified: false,
            addresses: AddressUse::All,
            requests_per_connection: None,
        }
    }

    /// GET of the target's path.
    #[must_use]
    pub fn get(target: Target) -> Self {
        let workload = Workload::Static {
            method: Method::Get,
            fields: Vec::new(),
            body: Vec::new(),
        };
        Self::new(target, workload)
    }

    /// A run of these requests, with the defaults of [`LoadConfig::new`] for all else. The script is the caller's to
    /// load.
    #[must_use]
    pub fn config(&self) -> LoadConfig {
        LoadConfig {
            validation: self.validation,
            tls: self.tls.clone(),
            plan: ConnectionPlan {
                requests_max: self.requests_per_connection,
                addresses: self.addresses,
                ..ConnectionPlan::default()
            },
            ..LoadConfig::new(self.target.clone(), self.workload.clone())
        }
    }

    /// Path and query of the first URL, with its placeholders filled in; a script's as its table has it.
    ///
    /// # Errors
    /// If the requests cannot be made.
    pub fn first_path(&self) -> Result<String, LoadError> {
        let mut config = self.config();
        if let Workload::Mix(mix) = &mut config.workload {
            mix.classes.truncate(1);
        }
        let requests = Requests::new(&config)?;
        let pool = BlockPool::new("first request", PoolMode::On);
        let mut out = Buffer::new();
        let asked = requests.append(0, &pool, &mut out, 0);
        asked.map_err(|error| LoadError::Bug {
            message: error.to_string(),
        })?;
        let line = out.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let path = line.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        Ok(String::from_utf8_lossy(path).into_owned())
    }

    /// The same for a record. `tls_version`: as a handshake had it.
    #[must_use]
    pub fn sent(&self, tls_version: Option<&str>) -> SentRequests {
        let script = self.script.as_ref().map(|script| SentScript {
            file: script.file.display().to_string(),
            sha256: sha256_hex(&script.source),
            args: script.args.clone(),
        });
        let tls = self.tls.as_ref().map(|_| SentTls {
            version: tls_version.map(str::to_owned),
            is_verified: self.is_verified,
        });
        let mut addresses = self.target.addresses.iter();
        let unix = addresses.find_map(|address| match address {
            Address::Unix(path) => Some(path.display().to_string()),
            Address::Inet(_) => None,
        });
        SentRequests {
            requests: self.sent_requests(),
            script,
            tls,
            unix,
        }
    }

    fn sent_requests(&self) -> Vec<SentRequest> {
        let names =
            |fields: &[(String, String)]| fields.iter().map(|(name, _)| name.clone()).collect();
        let only = |method: Method, fields: &[(String, String)], body: &[u8]| {
            vec![SentRequest {
                method: method.as_str().to_owned(),
                path: self.target.path.clone(),
                weight: 1,
                fields: names(fields),
                body_bytes: Some(body.len() as u64),
            }]
        };
        match &self.workload {
            Workload::Static {
                method,
                fields,
                body,
            } => match &self.script {
                Some(script) => only(
                    *method,
                    &script.fields,
                    script.body.as_deref().unwrap_or_default(),
                ),
                None => only(*method, fields, body),
            },
            Workload::StaticChunked {
                method,
                fields,
                body,
                ..
            } => only(*method, fields, body),
            Workload::EntityPut { .. } => only(Method::Put, &[], &[]),
            Workload::EntityGet { .. } => only(Method::Get, &[], &[]),
            Workload::Mix(mix) => {
                let classes = mix.classes.iter();
                let sent = classes.map(|class| SentRequest {
                    method: class.method.as_str().to_owned(),
                    path: class.target.clone(),
                    weight: class.weight,
                    fields: names(&class.fields),
                    body_bytes: match &class.body {
                        RequestBody::Template(body) => Some(body.len() as u64),
                        RequestBody::Value | RequestBody::Generated => None,
                    },
                });
                sent.collect()
            }
        }
    }
}

// Keys and values of the entity workloads: both follow from a number and a seed.

/// Longer than the 64 KiB window of LZ4, so one value never repeats within reach of compression.
const TABLE_BYTES: usize = 65_536 + 4_096;
/// Bytes at the beginning of a value that identify its key.
const MARK_BYTES: usize = 8;
/// Keys are like `k000000123`; more digits only beyond a billion keys.
const KEY_DIGITS_MIN: usize = 9;

/// Finaliser of splitmix64: every input bit changes every output bit.
pub(crate) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// How many digits the ids of `keys` keys have; all ids of a run are equally long.
pub(crate) fn key_digits(keys: u64) -> usize {
    let highest = keys.saturating_sub(1);
    (highest.checked_ilog10().unwrap_or(0) as usize + 1).max(KEY_DIGITS_MIN)
}

/// Writes `key` in decimal over all of `digits`, zero-padded.
pub(crate) fn write_key(mut key: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (key % 10) as u8;
        key /= 10;
    }
    debug_assert_eq!(key, 0, "the id is wide enough for every key");
}

/// The values of all keys under one seed.
#[derive(Debug)]
pub(crate) struct Values {
    value_bytes_min: usize,
    /// How many bytes more a value may have.
    span_bytes: u64,
    seed: u64,
    table: Box<[u8]>,
}

impl Values {
    #[cfg(test)]
    pub(crate) fn new(seed: u64, value_bytes: usize) -> Self {
        Self::ranging(seed, value_bytes, value_bytes)
    }

    /// Sizes from `value_bytes_min` to `value_bytes_max`, each as likely; that of a key stays.
    pub(crate) fn ranging(seed: u64, value_bytes_min: usize, value_bytes_max: usize) -> Self {
        let words = (0..TABLE_BYTES as u64 / 8).map(|index| mix(seed ^ mix(index)));
        let table = words.flat_map(u64::to_le_bytes).collect();
        Self {
            value_bytes_min,
            span_bytes: value_bytes_max.saturating_sub(value_bytes_min) as u64,
            seed,
            table,
        }
    }

    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_min + self.span_bytes as usize
    }

    pub(crate) fn is_one_size(&self) -> bool {
        self.span_bytes == 0
    }

    /// Size of the value of `key`.
    pub(crate) fn len_of(&self, key: u64) -> usize {
        if self.span_bytes == 0 {
            return self.value_bytes_min;
        }
        let draw = u128::from(mix(!self.seed ^ mix(key)));
        self.value_bytes_min + ((draw * u128::from(self.span_bytes + 1)) >> 64) as usize
    }

    /// Hands the value of `key` from `offset` on to `piece`, in stretches, until it says stop.
    fn walk(&self, key: u64, offset: usize, mut piece: impl FnMut(&[u8]) -> bool) {
        let value_bytes = self.len_of(key);
        let mark = mix(self.seed ^ mix(key));
        let mark_bytes = mark.to_le_bytes();
        let mut offset = offset;
        if offset < MARK_BYTES.min(value_bytes) {
            let end = MARK_BYTES.min(value_bytes);
            if !piece(&mark_bytes[offset..end]) {
                return;
            }
            offset = end;
        }
        while offset < value_bytes {
            let at = ((mark % TABLE_BYTES as u64) as usize + offset) % TABLE_BYTES;
            let len = (TABLE_BYTES - at).min(value_bytes - offset);
            if !piece(&self.table[at..][..len]) {
                return;
            }
            offset += len;
        }
    }

    /// Hands the whole value of `key` to `append`, in order.
    pub(crate) fn write(&self, key: u64, mut append: impl FnMut(&[u8])) {
        self.walk(key, 0, |stretch| {
            append(stretch);
            true
        });
    }

    /// Whether `part` is what the value of `key` holds at `offset`.
    pub(crate) fn matches(&self, key: u64, offset: usize, part: &[u8]) -> bool {
        let mut rest = part;
        self.walk(key, offset, |stretch| {
            let len = stretch.len().min(rest.len());
            if stretch[..len] != rest[..len] {
                return false;
            }
            rest = &rest[len..];
            !rest.is_empty()
        });
        rest.is_empty()
    }
}

#[cfg(test)]
#[path = "tests/request_plan.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/values.rs"]
mod values_tests;
