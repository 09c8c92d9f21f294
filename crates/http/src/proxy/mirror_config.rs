//! Mirrors: servers that get a copy of some requests, and whose responses are dropped.
//!
//! What is configured of them. [`super::mirrors`] takes the samples and sends the copies.

use crate::method::Method;
use millpond_io::connection_pool::Place;
use millpond_io::tls::TlsClient;
use std::fmt;
use std::str::FromStr;

/// Mirrors of one proxy at most: each has copies of its own.
pub const MIRRORS_MAX: usize = 4;

/// Copies under way to one mirror, of one shard: as many connections are opened at most. With as many,
/// the next one is dropped.
pub const MIRROR_IN_FLIGHT_MAX: usize = 64;

/// Longest body that may be copied: [`MirrorPolicy::body_bytes_max`] is at most this.
pub const MIRROR_BODY_BYTES_CAPACITY: usize = 16 << 20;

/// One server that gets copies.
#[derive(Clone, Debug)]
pub struct MirrorConfig {
    /// As the user wrote it: for logs and metrics, and to find it again after a reload.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// What it is called in `Host`, with [`super::HostPolicy::Upstream`] or where the client names none.
    pub host: String,
    /// How TLS is spoken with it, if it is.
    pub tls: Option<TlsClient>,
    /// How many of the requests are copied.
    pub share: MirrorShare,
}

/// What holds for the copies of all mirrors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MirrorPolicy {
    /// Requests that are copied.
    pub methods: MirrorMethods,
    /// A request with a longer body is not copied. At most [`MIRROR_BODY_BYTES_CAPACITY`].
    pub body_bytes_max: usize,
    /// From the beginning of a copy to the end of its response; the connection is closed beyond it.
    pub timeout_ns: u64,
}

impl Default for MirrorPolicy {
    fn default() -> Self {
        Self {
            methods: MirrorMethods::default(),
            body_bytes_max: 64 << 10,
            timeout_ns: 10_000_000_000,
        }
    }
}

/// Which methods are copied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MirrorMethods {
    /// GET, HEAD, OPTIONS and TRACE, which change nothing: a mirror that shares a database with the
    /// upstream would carry others out twice.
    #[default]
    Safe,
    /// Every method: the mirror's data is its own.
    All,
}

impl MirrorMethods {
    #[inline]
    pub(super) fn has(self, method: Method) -> bool {
        match self {
            Self::Safe => method.is_safe(),
            Self::All => true,
        }
    }
}

/// How many of a million requests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MirrorShare {
    parts_per_million: u32,
}

pub(super) const MILLION: u32 = 1_000_000;

impl MirrorShare {
    /// Every request.
    pub const ALL: Self = Self {
        parts_per_million: MILLION,
    };

    /// A percentage above 0 up to 100, in steps of 0.0001.
    pub fn of_percent(percent: f64) -> Result<Self, MirrorShareError> {
        let parts = (percent * f64::from(MILLION / 100)).round();
        match parts >= 1.0 && percent <= 100.0 {
            // At most a million.
            true => Ok(Self {
                parts_per_million: parts as u32,
            }),
            false => Err(MirrorShareError {
                text: percent.to_string(),
            }),
        }
    }

    pub(super) const fn parts_per_million(self) -> u32 {
        self.parts_per_million
    }
}

impl FromStr for MirrorShare {
    type Err = MirrorShareError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.strip_suffix('%').unwrap_or(text);
        let percent = number.parse().ok().and_then(|it| Self::of_percent(it).ok());
        percent.ok_or_else(|| MirrorShareError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for MirrorShare {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = f64::from(self.parts_per_million) / f64::from(MILLION / 100);
        write!(formatter, "{percent}%")
    }
}

/// No such share.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is no percentage of requests: write a number from 0.0001 to 100")]
pub struct MirrorShareError {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: percentages are read with and without their sign, and what is none, or less than the
    /// smallest step, is refused.
    #[test]
    fn shares_are_read() {
        for (text, parts) in [
            ("5", 50_000),
            ("5%", 50_000),
            ("0.1%", 1_000),
            ("0.0001", 1),
            ("100%", 1_000_000),
        ] {
            let share: MirrorShare = text.parse().unwrap();
            assert_eq!(share.parts_per_million(), parts, "{text}");
            let again: MirrorShare = share.to_string().parse().unwrap();
            assert_eq!(again, share, "{text}");
        }
        for text in [
            "", "0", "-1", "100.1", "0.00001", "NaN", "inf", "five", "5 %",
        ] {
            assert!(text.parse::<MirrorShare>().is_err(), "{text}");
        }
    }
}
