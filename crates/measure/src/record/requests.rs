//! What was asked of a server of the user's, as a record of a comparison says it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One request of those that were sent in turn.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequest {
    /// Its method.
    pub method: String,
    /// Path and query, as a template where it is one.
    pub path: String,
    /// How often it was sent, in proportion to the others.
    pub weight: u64,
    /// Names of its header fields besides Host and those of its framing; values may be secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Length of its body, or of the template of its body; `None`: it differs from one request to the next.
    pub body_bytes: Option<u64>,
}

/// A script that made the requests.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentScript {
    /// The file's name.
    pub file: String,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// What its `init` was given.
    pub args: Vec<String>,
}

/// TLS towards the server.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentTls {
    /// `TLS 1.3` or `TLS 1.2`, as the first handshake of the baseline had it; `None`: there was none.
    pub version: Option<String>,
    /// Whether the server's certificate was verified.
    pub is_verified: bool,
}

/// All that describes the requests.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SentRequests {
    /// What was sent; with a script what its table `wrk` said before it ran.
    pub requests: Vec<SentRequest>,
    /// The script that made them, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<SentScript>,
    /// TLS, if there was any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<SentTls>,
    /// The unix socket, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<String>,
}

/// Requests after so many are counted and not named in a sentence.
const NAMED_MAX: usize = 4;

impl fmt::Display for SentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        match self.body_bytes {
            Some(0) => Ok(()),
            Some(bytes) => write!(f, " with a body of {bytes} bytes"),
            None => write!(f, " with bodies that differ"),
        }
    }
}

impl fmt::Display for SentRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(script) = &self.script {
            let digits = script.sha256.get(..12).unwrap_or(&script.sha256);
            write!(
                f,
                "made by the script {} (SHA-256 {digits}...)",
                script.file
            )?;
        } else {
            let has_weights = self.requests.len() > 1;
            for (place, request) in self.requests.iter().take(NAMED_MAX).enumerate() {
                let comma = if place > 0 { ", " } else { "" };
                write!(f, "{comma}{request}")?;
                if has_weights {
                    write!(f, " (weight {})", request.weight)?;
                }
            }
            if self.requests.len() > NAMED_MAX {
                write!(f, " and {} more", self.requests.len() - NAMED_MAX)?;
            }
        }
        if let Some(tls) = &self.tls {
            let version = tls.version.as_deref().unwrap_or("TLS");
            let trust = if tls.is_verified {
                ""
            } else {
                ", certificate not verified"
            };
            write!(f, "; {version}{trust}")?;
        }
        if let Some(path) = &self.unix {
            write!(f, "; over the unix socket {path}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, weight: u64, body_bytes: Option<u64>) -> SentRequest {
        SentRequest {
            method: method.to_owned(),
            path: path.to_owned(),
            weight,
            fields: Vec::new(),
            body_bytes,
        }
    }

    /// Goal: a person reads what was sent: methods, paths and weights, bodies, the script, TLS and the socket.
    #[test]
    fn requests_are_named() {
        let mut sent = SentRequests {
            requests: vec![request("GET", "/a", 1, Some(0))],
            ..SentRequests::default()
        };
        assert_eq!(sent.to_string(), "GET /a");
        sent.requests.push(request("POST", "/b", 3, Some(12)));
        sent.requests.push(request("PUT", "/c", 1, None));
        assert_eq!(
            sent.to_string(),
            "GET /a (weight 1), POST /b with a body of 12 bytes (weight 3), PUT /c with bodies that differ (weight 1)"
        );
        sent.requests.resize(7, request("GET", "/d", 1, Some(0)));
        assert!(sent.to_string().ends_with("GET /d (weight 1) and 3 more"));
        sent.script = Some(SentScript {
            file: "post.lua".to_owned(),
            sha256: "0123456789abcdef".to_owned(),
            args: Vec::new(),
        });
        sent.tls = Some(SentTls {
            version: Some("TLS 1.3".to_owned()),
            is_verified: false,
        });
        sent.unix = Some("/run/x".to_owned());
        assert_eq!(
            sent.to_string(),
            "made by the script post.lua (SHA-256 0123456789ab...); TLS 1.3, certificate not verified; over the unix \
             socket /run/x"
        );
    }
}
