//! Parts of a request that the service does not support: refused, if ignoring them would change the request's meaning.
//!
//! A `Content-Range` makes a fragment of a value, a condition on
//! dates or a misspelled parameter a write that was not meant. Fields that may be ignored (RFC 9110: ranges of reads,
//! preferences) are ignored.

use millpond_http::{Framing, Request};

use crate::api::{Reply, Route};
use crate::record::CONTENT_ENCODING_BYTES_MAX;

/// The query parameters of a route.
fn parameters(route: &Route<'_>) -> &'static [&'static [u8]] {
    match route {
        Route::Put(_) => &[b"id", b"expires", b"replicas"],
        Route::Get(_) | Route::Delete(_) => &[b"id", b"replicas"],
        Route::Range(_) => &[b"start", b"after", b"end", b"limit", b"replicas"],
        Route::Checkpoint(_) => &[b"name"],
        Route::Upkeep(_) | Route::Status | Route::OpenApi | Route::Metrics | Route::Refuse(_) => {
            &[]
        }
    }
}

/// Whether the service would do what the request means.
///
/// # Errors
/// The response to one that does not.
pub(crate) fn check(route: &Route<'_>, request: &Request<'_>) -> Result<(), Reply> {
    let names = parameters(route);
    // A path without parameters refers to no entity.
    if !names.is_empty() {
        check_parameters(names, request.query().unwrap_or_default())?;
    }
    check_fields(route, request)?;
    match (route, request.framing()) {
        // Without a length there is no body (RFC 9112 6.3): the value would be wiped.
        (Route::Put(_), Framing::None) => Err(Reply::NoLength),
        _ => Ok(()),
    }
}

fn check_parameters(names: &[&[u8]], query: &[u8]) -> Result<(), Reply> {
    let mut seen = 0_u8;
    for pair in query.split(|&byte| byte == b'&') {
        let end = pair.iter().position(|&byte| byte == b'=');
        let name = &pair[..end.unwrap_or(pair.len())];
        let index = names.iter().position(|known| *known == name);
        match index {
            Some(index) if seen & 1 << index == 0 => seen |= 1 << index,
            None if pair.is_empty() => {}
            _ => return Err(Reply::BadParameter),
        }
    }
    Ok(())
}

/// Each of them may come once.
const SINGLE: [&[u8]; 3] = [b"Authorization", b"Content-Type", b"Expires"];

/// Behind the bits of those.
const ENCODING_SEEN: u8 = 1 << SINGLE.len();

fn check_fields(route: &Route<'_>, request: &Request<'_>) -> Result<(), Reply> {
    let is_write = matches!(route, Route::Put(_) | Route::Delete(_));
    let is_put = matches!(route, Route::Put(_));
    let mut seen = 0_u8;
    for (name, value) in request.headers() {
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        match name.len() {
            7 | 12 | 13 => {
                if let Some(index) = SINGLE.iter().position(|known| is(known)) {
                    if seen & 1 << index != 0 {
                        return Err(Reply::DoubledField);
                    }
                    seen |= 1 << index;
                } else if is_put && is(b"Content-Range") {
                    return Err(Reply::PartialValue);
                }
            }
            16 if is_put && is(b"Content-Encoding") => {
                if seen & ENCODING_SEEN != 0 || !is_encoding(value) {
                    return Err(Reply::BadEncoding);
                }
                seen |= ENCODING_SEEN;
            }
            19 if is_write && is(b"If-Unmodified-Since") => return Err(Reply::NoDates),
            _ => {}
        }
    }
    Ok(())
}

/// Whether it can be kept and sent again: a list of tokens.
fn is_encoding(value: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let mut codings = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    value.len() <= CONTENT_ENCODING_BYTES_MAX
        && codings.all(|coding| !coding.is_empty() && coding.iter().all(is_token))
}

#[cfg(test)]
#[path = "tests/strictness.rs"]
mod tests;
