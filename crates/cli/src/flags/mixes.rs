//! `--mix` and `--ycsb`: operations on an entity server, in proportion.
//!
//! Absent on purpose: what a request is (`millpond_load::RequestMix`).

use millpond_http::Method;
use millpond_load::{
    BodyCheck, KeyDistribution, KeyUse, RequestBody, RequestClass, SCAN_KEYS_MAX, StatusSet,
    Validation,
};

/// What a mix is made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Read,
    Update,
    Insert,
    Delete,
    Scan,
    ReadModifyWrite,
}

/// Operations with their weights.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mix(Vec<(Operation, u64)>);

/// One of YCSB's core workloads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ycsb {
    pub(super) mix: Mix,
    pub(super) distribution: KeyDistribution,
}

impl Mix {
    /// `read=95,update=5`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for part in text.split(',') {
            let wrong = || format!("`{part}` is not an operation with its weight, as in read=95");
            let (name, weight) = part.split_once('=').ok_or_else(wrong)?;
            let operation = match name {
                "read" => Operation::Read,
                "update" => Operation::Update,
                "insert" => Operation::Insert,
                "delete" => Operation::Delete,
                "scan" => Operation::Scan,
                "rmw" => Operation::ReadModifyWrite,
                _ => {
                    return Err(format!(
                        "`{name}` is none of read, update, insert, delete, scan and rmw"
                    ));
                }
            };
            let weight: u64 = weight.parse().map_err(|_| wrong())?;
            if parts.iter().any(|(known, _)| *known == operation) {
                return Err(format!("{name} is given twice"));
            }
            // As in YCSB's own files, a weight of 0 leaves the operation out.
            if weight > 0 {
                parts.push((operation, weight));
            }
        }
        if parts.is_empty() {
            return Err("every weight is 0".to_owned());
        }
        Ok(Self(parts))
    }

    /// A class for each operation, two for a read-modify-write. `path` is that of single entities.
    pub(super) fn classes(
        &self,
        path: &str,
        fields: &[(String, String)],
    ) -> Result<Vec<RequestClass>, String> {
        let has_deletes = self
            .0
            .iter()
            .any(|(operation, _)| *operation == Operation::Delete);
        let maker = ClassMaker {
            path,
            fields,
            has_deletes,
        };
        let mut classes = Vec::new();
        for &(operation, weight) in &self.0 {
            match operation {
                Operation::Read => classes.push(maker.read("read", weight)),
                Operation::Update => classes.push(maker.write("update", weight, KeyUse::Drawn)),
                Operation::Insert => classes.push(maker.write("insert", weight, KeyUse::New)),
                Operation::Delete => classes.push(maker.delete(weight)),
                Operation::Scan => classes.push(maker.scan(weight)?),
                Operation::ReadModifyWrite => classes.extend([
                    maker.read("rmw-read", weight),
                    RequestClass {
                        is_second: true,
                        ..maker.write("rmw-update", weight, KeyUse::Drawn)
                    },
                ]),
            }
        }
        Ok(classes)
    }
}

/// Requests of the entity API.
struct ClassMaker<'a> {
    path: &'a str,
    fields: &'a [(String, String)],
    /// A key may be gone.
    has_deletes: bool,
}

impl ClassMaker<'_> {
    fn class(&self, name: &str, weight: u64, method: Method, statuses: &[u16]) -> RequestClass {
        RequestClass {
            weight,
            method,
            fields: self.fields.to_vec(),
            validation: Validation::of(StatusSet::of(statuses), BodyCheck::Ignore),
            ..RequestClass::get(name, &format!("{}?id={{key}}", self.path))
        }
    }

    fn read(&self, name: &str, weight: u64) -> RequestClass {
        let statuses: &[u16] = if self.has_deletes {
            &[200, 404]
        } else {
            &[200]
        };
        let class = self.class(name, weight, Method::Get, statuses);
        RequestClass {
            expects_value: true,
            validation: Validation {
                body: BodyCheck::Exact,
                ..class.validation
            },
            ..class
        }
    }

    fn write(&self, name: &str, weight: u64, key: KeyUse) -> RequestClass {
        RequestClass {
            key,
            body: RequestBody::Value,
            ..self.class(name, weight, Method::Put, &[200, 201, 204])
        }
    }

    fn delete(&self, weight: u64) -> RequestClass {
        self.class("delete", weight, Method::Delete, &[200, 202, 204, 404])
    }

    fn scan(&self, weight: u64) -> Result<RequestClass, String> {
        let path = self.path.strip_suffix("entity").ok_or_else(|| {
            format!(
                "scans are for a path that ends with entity, which {} does not",
                self.path
            )
        })?;
        let target = format!("{path}entities?start={{key}}&end={{scan_end:{SCAN_KEYS_MAX}}}");
        Ok(RequestClass {
            target,
            ..self.class("scan", weight, Method::Get, &[200])
        })
    }
}

impl Ycsb {
    /// `a` to `f`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let zipfian = KeyDistribution::Zipfian { exponent: 0.99 };
        let latest = KeyDistribution::Latest { exponent: 0.99 };
        let (mix, distribution) = match text {
            "a" | "A" => ("read=50,update=50", zipfian),
            "b" | "B" => ("read=95,update=5", zipfian),
            "c" | "C" => ("read=100", zipfian),
            "d" | "D" => ("read=95,insert=5", latest),
            "e" | "E" => ("scan=95,insert=5", zipfian),
            "f" | "F" => ("read=50,rmw=50", zipfian),
            _ => return Err("YCSB's workloads are a, b, c, d, e and f".to_owned()),
        };
        Ok(Self {
            mix: Mix::parse(mix)?,
            distribution,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each operation is a class of its own with the API's method, path and answers.
    #[test]
    fn mixes_become_classes() {
        let mix = Mix::parse("read=4,update=3,insert=2,delete=1,scan=5,rmw=6").unwrap();
        let classes = mix.classes("/v0/entity", &[]).unwrap();
        let seen: Vec<_> = classes
            .iter()
            .map(|class| (&class.name[..], class.weight, class.method, class.is_second))
            .collect();
        assert_eq!(
            seen,
            [
                ("read", 4, Method::Get, false),
                ("update", 3, Method::Put, false),
                ("insert", 2, Method::Put, false),
                ("delete", 1, Method::Delete, false),
                ("scan", 5, Method::Get, false),
                ("rmw-read", 6, Method::Get, false),
                ("rmw-update", 6, Method::Put, true),
            ]
        );
        assert_eq!(
            classes[4].target,
            "/v0/entities?start={key}&end={scan_end:100}"
        );
        assert_eq!(classes[2].key, KeyUse::New);
        // A key that was deleted is gone rightly; without deletes it must be there.
        assert!(classes[0].validation.statuses.contains(404));
        let reads = Mix::parse("read=1").unwrap().classes("/e", &[]).unwrap();
        assert!(!reads[0].validation.statuses.contains(404));
        assert!(Mix::parse("scan=1").unwrap().classes("/e", &[]).is_err());
    }

    #[test]
    fn wrong_mixes_are_refused() {
        for (text, part) in [
            ("", "read=95"),
            ("read", "read=95"),
            ("read=x", "read=95"),
            ("write=5", "none of read"),
            ("read=1,read=2", "twice"),
            ("read=0,update=0", "every weight"),
        ] {
            let error = Mix::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(Mix::parse("read=1,scan=0"), Mix::parse("read=1"));
        assert!(Ycsb::parse("g").is_err());
        assert_eq!(
            Ycsb::parse("D").unwrap().mix,
            Mix::parse("read=95,insert=5").unwrap()
        );
    }
}
