//! The requests of one class in a load run, and what was wrong with wrong answers.

use serde::{Deserialize, Serialize};

use super::LoadErrors;
use crate::histogram::LatencySummary;

/// Wrong answers by the first thing that was wrong with them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WrongAnswers {
    /// A status that is not among the right ones.
    pub status: u64,
    /// Not as long as it must be.
    pub length: u64,
    /// Not the checksum it must have.
    pub checksum: u64,
    /// Without the key that was asked for.
    pub echo: u64,
    /// Not what was stored, or not what the first answer was.
    pub content: u64,
}

impl WrongAnswers {
    /// Adds those of another thread or run.
    pub const fn add(&mut self, other: &Self) {
        self.status += other.status;
        self.length += other.length;
        self.checksum += other.checksum;
        self.echo += other.echo;
        self.content += other.content;
    }

    /// Counts with the words for them, those that occurred; the status has its own line elsewhere.
    #[must_use]
    pub fn contents(&self) -> Vec<(&'static str, u64)> {
        let all = [
            ("length", self.length),
            ("checksum", self.checksum),
            ("no echo of the key", self.echo),
            ("content", self.content),
        ];
        all.into_iter().filter(|(_, count)| *count > 0).collect()
    }
}

/// TLS handshakes of a load run, those before the window too.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadTls {
    /// With a certificate.
    pub full: u64,
    /// That resumed a session.
    pub resumed: u64,
    /// That failed, among the connections that could not be opened.
    pub failed: u64,
    /// Those of TLS 1.2, full or resumed; absent in records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls12: u64,
    /// Those of TLS 1.3, likewise.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls13: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl LoadTls {
    /// Adds those of another thread or run.
    pub const fn add(&mut self, other: &Self) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.tls12 += other.tls12;
        self.tls13 += other.tls13;
    }

    /// The version that most handshakes had, if any succeeded.
    #[must_use]
    pub const fn version(&self) -> Option<&'static str> {
        match (self.tls12, self.tls13) {
            (0, 0) => None,
            (older, newer) if older > newer => Some("TLS 1.2"),
            _ => Some("TLS 1.3"),
        }
    }
}

/// Figures of one class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadClass {
    /// As it was named: an operation of a mix, or a URL.
    pub name: String,
    /// Right answers.
    pub requests: u64,
    /// Failures by phase; those before anything was sent belong to no class.
    pub errors: LoadErrors,
    /// Right answers per second.
    pub requests_per_s: f64,
    /// From the intended start to the last byte.
    pub response_ns: LatencySummary,
    /// From the actual send to the last byte.
    pub service_ns: LatencySummary,
}
