//! Parses a line of JSON into an entity. Unknown fields are refused: an import that ignores a field would change the
//! entity's meaning.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use millpond_http::FieldValue;
use serde::Deserialize;

use crate::key::ID_BYTES_MAX;
use crate::record::{CONTENT_ENCODING_BYTES_MAX, CONTENT_TYPE_BYTES_MAX, Version};

/// The engine takes no larger value.
const VALUE_BYTES_MAX: usize = 1 << 30;

/// Longer lines are refused: the value in base64, and the other fields.
pub const LINE_BYTES_MAX: usize = VALUE_BYTES_MAX / 3 * 4 + (64 << 10);

/// Versions of a later time (in microseconds since 1970: the year 2112) are none that a server gave out.
const VERSION_US_MAX: u64 = 1 << 52;

/// Later ends are refused, as those of `expires=` are: ten digits of seconds.
const EXPIRES_S_MAX: f64 = 9_999_999_999.0;

/// Content of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ParsedLine {
    /// An entity.
    Entity(ParsedEntity),
    /// The response or the export ends here.
    End {
        /// Places that could not be read.
        skipped: u64,
    },
    /// A limit ended the response.
    Next,
}

/// An entity as a line has it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParsedEntity {
    /// Its id.
    pub id: Vec<u8>,
    /// That of its tag, if it has one.
    pub version: Option<Version>,
    /// Its type; empty: none.
    pub content_type: Vec<u8>,
    /// Its encoding; empty: none.
    pub content_encoding: Vec<u8>,
    /// When it ends, in milliseconds since 1970; 0: never.
    pub expires_ms: u64,
    /// Its value.
    pub value: Vec<u8>,
}

/// Why a line is none.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// No JSON, or fields that are not known.
    #[error("it is not understood: {0}")]
    Json(#[from] serde_json::Error),
    /// One of the two is needed.
    #[error("it has neither {name} nor {name}_base64")]
    Missing {
        /// The first of them.
        name: &'static str,
    },
    /// Which of them counts?
    #[error("it has both {name} and {name}_base64")]
    Twice {
        /// The first of them.
        name: &'static str,
    },
    /// Other letters, or padding that lacks.
    #[error("{name}_base64 is no base64 with padding: {cause}")]
    Base64 {
        /// The field without its ending.
        name: &'static str,
        /// The fault.
        cause: base64::DecodeError,
    },
    /// More or less than there may be.
    #[error("{name} has {found_bytes} bytes: {min_bytes} to {max_bytes} are possible")]
    Length {
        /// The field.
        name: &'static str,
        /// The length it has.
        found_bytes: usize,
        /// The length it must have.
        min_bytes: usize,
        /// The length it may have.
        max_bytes: usize,
    },
    /// Not as a server writes it.
    #[error("the etag {found:?} is none that a server gave out: leave it out for a new one")]
    Tag {
        /// The value found.
        found: String,
    },
    /// No field of a head can hold it.
    #[error("its type has bytes that no Content-Type may have")]
    Type,
    /// The same.
    #[error("its encoding has bytes that no Content-Encoding may have")]
    Encoding,
    /// Not a time.
    #[error("expires is {found}: use seconds since 1970, up to {EXPIRES_S_MAX}")]
    Expires {
        /// The value found.
        found: f64,
    },
    /// Fields of an entity and of an end.
    #[error("it has fields of an entity beside those of a last line")]
    Mixed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id_base64: Option<Cow<'a, str>>,
    #[serde(borrow)]
    etag: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type_base64")]
    content_type_base64: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "encoding")]
    content_encoding: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "encoding_base64")]
    content_encoding_base64: Option<Cow<'a, str>>,
    expires: Option<f64>,
    #[serde(borrow)]
    value: Option<Cow<'a, str>>,
    #[serde(borrow)]
    value_base64: Option<Cow<'a, str>>,
    end: Option<bool>,
    skipped: Option<u64>,
    #[serde(borrow)]
    next: Option<Cow<'a, str>>,
    #[serde(borrow)]
    next_base64: Option<Cow<'a, str>>,
}

/// Reads one line.
///
/// # Errors
/// [`LineError`], a sentence about "it".
pub fn parse_line(line: &[u8]) -> Result<ParsedLine, LineError> {
    let fields: Fields<'_> = serde_json::from_slice(line)?;
    let is_next = fields.next.is_some() || fields.next_base64.is_some();
    let has_entity = fields.has_entity();
    match (fields.end, is_next, has_entity) {
        (Some(true), false, false) => Ok(ParsedLine::End {
            skipped: fields.skipped.unwrap_or(0),
        }),
        (None, true, false) if fields.skipped.is_none() => Ok(ParsedLine::Next),
        (None, false, _) if fields.skipped.is_none() => fields.entity().map(ParsedLine::Entity),
        _ => Err(LineError::Mixed),
    }
}

impl Fields<'_> {
    fn has_entity(&self) -> bool {
        let texts = [
            &self.id,
            &self.id_base64,
            &self.etag,
            &self.content_type,
            &self.content_type_base64,
            &self.content_encoding,
            &self.content_encoding_base64,
            &self.value,
            &self.value_base64,
        ];
        self.expires.is_some() || texts.iter().any(|text| text.is_some())
    }

    fn entity(self) -> Result<ParsedEntity, LineError> {
        let id = bytes("id", self.id, self.id_base64)?;
        let id = id.ok_or(LineError::Missing { name: "id" })?;
        check_length("id", &id, 1, ID_BYTES_MAX)?;
        let content_type = bytes("type", self.content_type, self.content_type_base64)?;
        let content_type = content_type.unwrap_or_default();
        check_length("type", &content_type, 0, CONTENT_TYPE_BYTES_MAX)?;
        FieldValue::new(&content_type).map_err(|_| LineError::Type)?;
        let (text, coded) = (self.content_encoding, self.content_encoding_base64);
        let content_encoding = bytes("encoding", text, coded)?.unwrap_or_default();
        let type_bytes = content_type.len() + 1;
        let bytes_max = CONTENT_TYPE_BYTES_MAX.saturating_sub(type_bytes);
        let bytes_max = bytes_max.min(CONTENT_ENCODING_BYTES_MAX);
        check_length("encoding", &content_encoding, 0, bytes_max)?;
        FieldValue::new(&content_encoding).map_err(|_| LineError::Encoding)?;
        let value = bytes("value", self.value, self.value_base64)?;
        let value = value.ok_or(LineError::Missing { name: "value" })?;
        check_length("value", &value, 0, VALUE_BYTES_MAX)?;
        Ok(ParsedEntity {
            id,
            version: self.etag.map(|tag| version(&tag)).transpose()?,
            content_type,
            content_encoding,
            expires_ms: self.expires.map_or(Ok(0), expires_ms)?,
            value,
        })
    }
}

fn bytes(
    name: &'static str,
    text: Option<Cow<'_, str>>,
    coded: Option<Cow<'_, str>>,
) -> Result<Option<Vec<u8>>, LineError> {
    match (text, coded) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.into_owned().into_bytes())),
        (None, Some(coded)) => match STANDARD.decode(coded.as_bytes()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(cause) => Err(LineError::Base64 { name, cause }),
        },
        (Some(_), Some(_)) => Err(LineError::Twice { name }),
    }
}

fn check_length(
    name: &'static str,
    bytes: &[u8],
    min_bytes: usize,
    max_bytes: usize,
) -> Result<(), LineError> {
    let found_bytes = bytes.len();
    match (min_bytes..=max_bytes).contains(&found_bytes) {
        true => Ok(()),
        false => Err(LineError::Length {
            name,
            found_bytes,
            min_bytes,
            max_bytes,
        }),
    }
}

/// 16 hexadecimal digits in quotes.
fn version(tag: &str) -> Result<Version, LineError> {
    let digits = tag
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let is_hex = |digits: &&str| {
        digits.len() == 16
            && digits
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let number = digits
        .filter(is_hex)
        .and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number
        .map(Version)
        .filter(|version| version.given_out_us() <= VERSION_US_MAX)
        .ok_or_else(|| LineError::Tag {
            found: tag.to_owned(),
        })
}

fn expires_ms(seconds: f64) -> Result<u64, LineError> {
    let ms = (seconds * 1000.0).round();
    // 0 would be no end at all.
    match ms >= 1.0 && seconds <= EXPIRES_S_MAX {
        true => Ok(ms as u64),
        false => Err(LineError::Expires { found: seconds }),
    }
}

#[cfg(test)]
#[path = "tests/parse.rs"]
mod tests;
