//! The bytes of each request, from its number alone.
//!
//! On the path: `worker` asks for request i and appends it to a connection's output; `validation`
//! asks what its answer must hold. Everything that does not depend on the number is encoded once,
//! so a static request is one copy and an entity request one copy with its digits patched.
//! Absent on purpose: state. Request i is the same whichever thread sends it, so a run with the
//! same seed asks the same whatever the number of threads.
use crate::config::{LoadConfig, Workload};
use crate::values::{Values, key_digits, mix, write_key};
use millpond_http::{Method, encode_request};
use millpond_mempool::{BlockPool, Buffer, PoolError, PoolMode};
use std::ops::Range;

/// Separates the order in which keys are read from the seed of their values.
const READ_ORDER: u64 = 0x6b65_7973;

/// The requests of a run; shared by its threads.
#[derive(Debug)]
pub(crate) struct Requests {
    method: Method,
    /// The whole static request, or the head of an entity request with any key in it.
    template: Box<[u8]>,
    entity: Option<Entity>,
}

#[derive(Debug)]
struct Entity {
    /// Where the digits of the key stand in the template.
    digits: Range<usize>,
    keys: u64,
    /// Where a request's key comes from, and whether its value is sent or expected.
    is_put: bool,
    read_seed: u64,
    values: Values,
}

impl Requests {
    pub(crate) fn new(config: &LoadConfig) -> Result<Self, PoolError> {
        match &config.workload {
            Workload::Static {
                method,
                fields,
                body,
            } => {
                let fields: Vec<(&str, &[u8])> = fields
                    .iter()
                    .map(|(name, value)| (&name[..], value.as_bytes()))
                    .collect();
                let path = config.target.path.as_bytes();
                let template = encode(config, *method, path, &fields, body)?;
                Ok(Self {
                    method: *method,
                    template,
                    entity: None,
                })
            }
            Workload::EntityPut {
                keys,
                value_bytes,
                seed,
            } => Self::entity(config, Method::Put, *keys, *value_bytes, *seed),
            Workload::EntityGet {
                keys,
                value_bytes,
                seed,
            } => Self::entity(config, Method::Get, *keys, *value_bytes, *seed),
        }
    }

    fn entity(
        config: &LoadConfig,
        method: Method,
        keys: u64,
        value_bytes: usize,
        seed: u64,
    ) -> Result<Self, PoolError> {
        let is_put = method == Method::Put;
        let target = format!(
            "{}?id=k{}",
            config.target.path,
            "0".repeat(key_digits(keys))
        );
        let body = vec![0; if is_put { value_bytes } else { 0 }];
        let whole = encode(config, method, target.as_bytes(), &[], &body)?;
        let template = whole[..whole.len() - body.len()].into();
        let digits_end = method.as_str().len() + 1 + target.len();
        let entity = Entity {
            digits: digits_end - key_digits(keys)..digits_end,
            keys,
            is_put,
            read_seed: mix(seed ^ READ_ORDER),
            values: Values::new(seed, value_bytes),
        };
        Ok(Self {
            method,
            template,
            entity: Some(entity),
        })
    }

    pub(crate) fn method(&self) -> Method {
        self.method
    }

    /// Size of each request; all of a run are equally long.
    pub(crate) fn request_bytes(&self) -> usize {
        let value_bytes = match &self.entity {
            Some(entity) if entity.is_put => entity.values.value_bytes(),
            _ => 0,
        };
        self.template.len() + value_bytes
    }

    /// Appends request `number`; `out` has room for [`Self::request_bytes`].
    pub(crate) fn append(&self, number: u64, out: &mut Buffer) {
        let start = out.len();
        out.append_within_capacity(&self.template);
        let Some(entity) = &self.entity else { return };
        let key = entity.key(number);
        write_key(key, &mut out.as_mut_slice()[start..][entity.digits.clone()]);
        if entity.is_put {
            entity
                .values
                .write(key, |stretch| out.append_within_capacity(stretch));
        }
    }

    /// The value that the answer to request `number` must hold, if it is known beforehand.
    pub(crate) fn expected_value(&self, number: u64) -> Option<(&Values, u64)> {
        let entity = self.entity.as_ref().filter(|entity| !entity.is_put)?;
        Some((&entity.values, entity.key(number)))
    }
}

impl Entity {
    /// Writes go through the keys in order, so that `keys` requests write each exactly once; reads
    /// jump about uniformly (multiply-shift of a mixed number: no modulo bias worth the name).
    fn key(&self, number: u64) -> u64 {
        if self.is_put {
            return number % self.keys;
        }
        let draw = u128::from(mix(self.read_seed.wrapping_add(mix(number))));
        ((draw * u128::from(self.keys)) >> 64) as u64
    }
}

fn encode(
    config: &LoadConfig,
    method: Method,
    target: &[u8],
    fields: &[(&str, &[u8])],
    body: &[u8],
) -> Result<Box<[u8]>, PoolError> {
    let pool = BlockPool::new("load_template", PoolMode::Off);
    let mut out = Buffer::new();
    let host = config.target.host.as_bytes();
    encode_request(&mut out, &pool, method, target, host, fields, body)?;
    Ok(out.as_slice().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Target;
    use std::collections::HashSet;

    fn requests(workload: Workload) -> Requests {
        let address = "127.0.0.1:80".parse().unwrap();
        let target = Target {
            address,
            host: "pond".into(),
            path: "/v0/entity".into(),
        };
        Requests::new(&LoadConfig::new(target, workload)).unwrap()
    }

    fn text(requests: &Requests, number: u64) -> Vec<u8> {
        let pool = BlockPool::new("test", PoolMode::Off);
        let mut out = Buffer::with_capacity(&pool, requests.request_bytes()).unwrap();
        requests.append(number, &mut out);
        assert_eq!(out.len(), requests.request_bytes());
        out.to_vec()
    }

    #[test]
    fn static_requests_are_encoded_once_and_equal() {
        let requests = requests(Workload::Static {
            method: Method::Post,
            fields: vec![("X-A".into(), "b".into())],
            body: b"body".to_vec(),
        });
        let wire = text(&requests, 0);
        assert_eq!(
            String::from_utf8(wire.clone()).unwrap(),
            "POST /v0/entity HTTP/1.1\r\nHost: pond\r\nX-A: b\r\nContent-Length: 4\r\n\r\nbody"
        );
        assert_eq!(text(&requests, 77), wire);
        assert!(requests.expected_value(0).is_none());
    }

    /// Goal: K requests write each of K keys exactly once, with the value GET will check.
    #[test]
    fn puts_write_each_key_once_with_the_value_gets_expect() {
        let puts = requests(Workload::EntityPut {
            keys: 500,
            value_bytes: 32,
            seed: 7,
        });
        let gets = requests(Workload::EntityGet {
            keys: 500,
            value_bytes: 32,
            seed: 7,
        });
        let mut ids = HashSet::new();
        for number in 0..500 {
            let wire = text(&puts, number);
            let head = format!(
                "PUT /v0/entity?id=k{number:09} HTTP/1.1\r\nHost: pond\r\nContent-Length: 32\r\n\r\n"
            );
            assert!(
                wire.starts_with(head.as_bytes()),
                "{}",
                String::from_utf8_lossy(&wire)
            );
            let (values, _) = gets.expected_value(0).unwrap();
            assert!(values.matches(number, 0, &wire[head.len()..]));
            ids.insert(head);
        }
        assert_eq!(ids.len(), 500);
    }

    /// Goal: reads are uniform (chi-square over 100 keys) and repeat with the seed.
    #[test]
    fn gets_are_uniform_and_repeatable() {
        let workload = |seed| Workload::EntityGet {
            keys: 100,
            value_bytes: 8,
            seed,
        };
        let gets = requests(workload(1));
        let mut counts = [0f64; 100];
        for number in 0..100_000 {
            let wire = String::from_utf8(text(&gets, number)).unwrap();
            let id = wire
                .split("id=k")
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap();
            let key: usize = id.parse().unwrap();
            assert_eq!(gets.expected_value(number).unwrap().1, key as u64);
            counts[key] += 1.0;
        }
        let chi_square: f64 = counts
            .iter()
            .map(|count| (count - 1_000.0).powi(2) / 1_000.0)
            .sum();
        // 99 degrees of freedom: outside 50..170 only once in a hundred thousand seeds.
        assert!((50.0..170.0).contains(&chi_square), "{chi_square}");
        assert_eq!(text(&gets, 9), text(&requests(workload(1)), 9));
        assert!((0..50).any(|number| text(&gets, number) != text(&requests(workload(2)), number)));
    }

    #[test]
    fn empty_values_and_single_keys_work() {
        let puts = requests(Workload::EntityPut {
            keys: 1,
            value_bytes: 0,
            seed: 0,
        });
        assert!(text(&puts, 5).ends_with(b"Content-Length: 0\r\n\r\n"));
        let gets = requests(Workload::EntityGet {
            keys: 1,
            value_bytes: 0,
            seed: 0,
        });
        assert_eq!(gets.expected_value(12).unwrap().1, 0);
    }
}
