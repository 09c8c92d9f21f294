//! What is asked and how the server is reached: the part of a run that says nothing of its length and rate.
//!
//! `millpond load` makes one run of a plan; a comparison makes many short ones, each towards another server.
use crate::config::{LoadConfig, Target, Workload};
use crate::connection_plan::{AddressUse, ConnectionPlan};
use crate::error::LoadError;
use crate::request_mix::RequestBody;
use crate::script::ScriptConfig;
use crate::validation::{Validation, sha256_hex};
use crate::workload::Requests;
use millpond_http::Method;
use millpond_io::Address;
use millpond_io::tls::TlsClient;
use millpond_measure::record::{SentRequest, SentRequests, SentScript, SentTls};
use millpond_mempool::{BlockPool, Buffer, PoolMode};

/// What is asked of a server.
#[derive(Clone, Debug)]
pub struct RequestPlan {
    /// Where requests go.
    pub target: Target,
    /// What they are; with a script only what it finds in its table.
    pub workload: Workload,
    /// Which answers are right.
    pub validation: Validation,
    /// The script that makes the requests.
    pub script: Option<ScriptConfig>,
    /// TLS towards the target; `None`: clear text.
    pub tls: Option<TlsClient>,
    /// Whether `tls` verifies the server's certificate.
    pub is_verified: bool,
    /// Which of the target's addresses connections use.
    pub addresses: AddressUse,
    /// A connection is closed after so many requests; `None`: never.
    pub requests_per_connection: Option<u64>,
}

impl RequestPlan {
    /// These requests of `target`, in clear text, any answer right that the workload allows.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_mix::{RequestClass, RequestMix};

    fn target() -> Target {
        Target {
            addresses: ["127.0.0.1:80".parse().unwrap()].into(),
            host: "pond".to_owned(),
            path: "/whole".to_owned(),
        }
    }

    fn mix() -> RequestPlan {
        let post = RequestClass {
            method: Method::Post,
            weight: 3,
            body: RequestBody::Template(b"abc".to_vec()),
            fields: vec![("X-Secret".to_owned(), "1234".to_owned())],
            ..RequestClass::get("post", "/first/{seq}?q=1")
        };
        let classes = vec![post, RequestClass::get("get", "/second")];
        RequestPlan::new(target(), Workload::Mix(RequestMix::of(classes)))
    }

    /// Goal: the path of the first URL is known as the server has it, with its placeholders filled in.
    #[test]
    fn the_first_path_is_that_of_a_request() {
        assert_eq!(RequestPlan::get(target()).first_path().unwrap(), "/whole");
        assert_eq!(mix().first_path().unwrap(), "/first/0?q=1");
        let broken = RequestMix::of(vec![RequestClass::get("x", "/{nothing}")]);
        let broken = RequestPlan::new(target(), Workload::Mix(broken));
        let told = broken.first_path().unwrap_err().to_string();
        assert!(told.contains("{nothing}"), "{told}");
    }

    /// Goal: a record names methods, paths, weights and the script's text by its checksum, and no secret.
    #[test]
    fn a_record_names_what_is_sent() {
        let mut plan = mix();
        let sent = plan.sent(None);
        assert_eq!(
            sent.to_string(),
            "POST /first/{seq}?q=1 with a body of 3 bytes (weight 3), GET /second (weight 1)"
        );
        assert_eq!(sent.requests[0].fields, ["X-Secret"]);
        assert!(!format!("{sent:?}").contains("1234"));
        plan = RequestPlan::get(target());
        plan.script = Some(ScriptConfig {
            file: "post.lua".into(),
            source: b"abc".to_vec().into(),
            url: String::new(),
            args: vec!["word".to_owned()],
            method: "GET".to_owned(),
            fields: Vec::new(),
            body: Some(b"12".to_vec()),
            seed: None,
        });
        plan.target.addresses = ["unix:/run/x".parse().unwrap()].into();
        let sent = plan.sent(Some("TLS 1.3"));
        let script = sent.script.unwrap();
        assert_eq!(script.args, ["word"]);
        assert!(
            script.sha256.starts_with("ba7816bf8f01cfea"),
            "{}",
            script.sha256
        );
        assert_eq!(sent.unix.as_deref(), Some("/run/x"));
        assert_eq!(sent.tls, None, "in clear text");
        assert_eq!(sent.requests[0].body_bytes, Some(2));
    }
}
