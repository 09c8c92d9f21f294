//! When an entity is to end, as a client says it.
//!
//! On the path: `api` reads it off a PUT; `record` keeps it; reads and ranges pass over what has
//! ended, and the engine's compaction takes it away.
//! Absent on purpose: a thread that looks for what has ended.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::record::now_ms;

/// The last second of the year 9999, behind which no HTTP date can be written.
const SECONDS_MAX: u64 = 253_402_300_799;

/// An end that is none. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "bad expiry: write expires=UNIX_SECONDS, expires=+SECONDS from now, or Expires: with an HTTP date"
)]
pub struct ExpiryError;

/// Milliseconds since 1970, or 0 for never. The parameter counts where both are given.
///
/// # Errors
/// [`ExpiryError`].
pub fn expiry_ms(parameter: Option<&[u8]>, field: Option<&[u8]>) -> Result<u64, ExpiryError> {
    match (parameter, field) {
        (Some(parameter), _) => of_parameter(parameter),
        (None, Some(field)) => of_field(field),
        (None, None) => Ok(0),
    }
}

fn of_parameter(text: &[u8]) -> Result<u64, ExpiryError> {
    let from_now = text.strip_prefix(b"+").or_else(|| {
        let encoded = text.strip_prefix(b"%2B");
        encoded.or_else(|| text.strip_prefix(b"%2b"))
    });
    match from_now {
        Some(digits) => {
            let end_ms = now_ms().checked_add(seconds(digits)? * 1000);
            end_ms
                .filter(|&end_ms| end_ms / 1000 <= SECONDS_MAX)
                .ok_or(ExpiryError)
        }
        None => Ok(end(seconds(text)?)),
    }
}

fn seconds(digits: &[u8]) -> Result<u64, ExpiryError> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let seconds = text.and_then(|text| text.parse().ok());
    seconds
        .filter(|&seconds| seconds <= SECONDS_MAX)
        .ok_or(ExpiryError)
}

fn of_field(value: &[u8]) -> Result<u64, ExpiryError> {
    let text = std::str::from_utf8(value).map_err(|_| ExpiryError)?;
    let time = httpdate::parse_http_date(text).map_err(|_| ExpiryError)?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(end(since.as_secs()))
}

/// 0 would be never: what ended with 1970's first second ends a millisecond later.
fn end(seconds: u64) -> u64 {
    (seconds * 1000).max(1)
}

/// The HTTP date of an end.
#[must_use]
pub fn date_of(expires_ms: u64) -> httpdate::HttpDate {
    let seconds = (expires_ms / 1000).min(SECONDS_MAX);
    let time: SystemTime = UNIX_EPOCH + Duration::from_secs(seconds);
    time.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: each way to say it means the same moment, and the parameter counts.
    #[test]
    fn every_way_is_understood() {
        let date = b"Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(expiry_ms(None, None), Ok(0));
        assert_eq!(expiry_ms(None, Some(date)), Ok(784_111_777_000));
        assert_eq!(
            expiry_ms(Some(b"784111777"), Some(b"x")),
            Ok(784_111_777_000)
        );
        assert_eq!(expiry_ms(Some(b"0"), None), Ok(1), "long ago, not never");
        assert_eq!(
            date_of(784_111_777_000).to_string().as_bytes(),
            date,
            "what is sent is what was given"
        );
        for text in [&b"+60"[..], b"%2B60", b"%2b60"] {
            let (before, end, after) = (now_ms(), expiry_ms(Some(text), None), now_ms());
            assert!((before + 60_000..=after + 60_000).contains(&end.unwrap()));
        }
    }

    /// Goal: nothing else is.
    #[test]
    fn all_else_is_refused() {
        for text in [
            "",
            "+",
            "-1",
            "1.5",
            "1e9",
            "+ 1",
            "soon",
            "253402300800",
            "99999999999999999999",
        ] {
            assert_eq!(
                expiry_ms(Some(text.as_bytes()), None),
                Err(ExpiryError),
                "{text}"
            );
        }
        for text in ["0", "", "tomorrow", "1994-11-06"] {
            assert_eq!(
                expiry_ms(None, Some(text.as_bytes())),
                Err(ExpiryError),
                "{text}"
            );
        }
    }
}
