//! Where a body ends and whether the connection lives on, out of the fields that say so.

use super::fields::FieldLine;
use crate::error::ParseError;
use crate::head::{Framing, Version};
use crate::scan;

/// What the fields that decide framing and reuse said, gathered while they pass by.
#[derive(Clone, Copy)]
pub(super) struct FramingFields {
    /// Which of them were there; zero for most heads, and then nothing else is looked at.
    pub(super) seen: u8,
    content_length: u64,
}

impl FramingFields {
    const LENGTH: u8 = 1;
    const CHUNKED: u8 = 2;
    const CLOSE: u8 = 4;
    const KEEP_ALIVE: u8 = 8;
    pub(super) const HOST: u8 = 16;
    pub(super) const EXPECTS_CONTINUE: u8 = 32;
    /// The target has an authority of its own, which outranks the Host field.
    pub(super) const AUTHORITY: u8 = 64;

    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            seen: 0,
            content_length: 0,
        }
    }

    /// Whether there may be a body, or no host.
    #[inline(always)]
    pub(super) fn is_more_than_host(self) -> bool {
        self.seen & (Self::LENGTH | Self::CHUNKED | Self::HOST) != Self::HOST
    }

    #[inline(always)]
    pub(super) fn has(self, which: u8) -> bool {
        self.seen & which != 0
    }

    /// Looks at one field.
    #[inline(always)]
    pub(super) fn visit(&mut self, line: &FieldLine<'_>) -> Result<(), ParseError> {
        let name = line.name;
        if name.is(b"connection") {
            self.seen |= match line.value {
                // What nearly everybody says.
                b"keep-alive" => Self::KEEP_ALIVE,
                other => connection_options(other),
            };
        } else if name.is(b"content-length") {
            self.visit_content_length(line.value)?;
        } else if name.is(b"transfer-encoding") {
            self.visit_transfer_encoding(line.value)?;
        }
        Ok(())
    }

    /// Notes a Host field; true when it says which site is meant.
    #[inline(always)]
    pub(super) fn is_first_host(&mut self) -> Result<bool, ParseError> {
        let before = self.seen & (Self::HOST | Self::AUTHORITY);
        self.seen |= Self::HOST;
        match before {
            0 => Ok(true),
            Self::AUTHORITY => Ok(false),
            _ => Err(ParseError::DuplicateHost),
        }
    }

    #[inline(never)]
    pub(super) fn visit_expect(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if !value.eq_ignore_ascii_case(b"100-continue") {
            return Err(ParseError::UnknownExpectation);
        }
        self.seen |= Self::EXPECTS_CONTINUE;
        Ok(())
    }

    #[inline(never)]
    fn visit_content_length(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.has(Self::LENGTH) {
            return Err(ParseError::DuplicateContentLength);
        }
        self.seen |= Self::LENGTH;
        self.content_length = parse_content_length(value)?;
        Ok(())
    }

    #[inline(never)]
    fn visit_transfer_encoding(&mut self, value: &[u8]) -> Result<(), ParseError> {
        if self.has(Self::CHUNKED) {
            return Err(ParseError::BadTransferEncoding);
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.seen |= Self::CHUNKED;
            return Ok(());
        }
        let is_token = !value.is_empty() && value.iter().all(|&byte| scan::is_token(byte));
        if is_token && !value.eq_ignore_ascii_case(b"identity") {
            return Err(ParseError::UnknownTransferCoding);
        }
        Err(ParseError::BadTransferEncoding)
    }

    /// RFC 9112 6.3, with the cases it leaves to us refused.
    #[inline(always)]
    pub(super) fn framing(
        self,
        version: Version,
        otherwise: Framing,
    ) -> Result<Framing, ParseError> {
        match self.seen & (Self::LENGTH | Self::CHUNKED) {
            0 => Ok(otherwise),
            Self::LENGTH => Ok(Framing::Length(self.content_length)),
            Self::CHUNKED if version == Version::Http10 => {
                Err(ParseError::TransferEncodingInOldVersion)
            }
            Self::CHUNKED => Ok(Framing::Chunked),
            _ => Err(ParseError::LengthAndTransferEncoding),
        }
    }

    /// RFC 9112 9.3: `close` wins over `keep-alive`; the default is the version's.
    #[inline(always)]
    pub(super) fn keep_alive(self, version: Version) -> bool {
        !self.has(Self::CLOSE) && (version == Version::Http11 || self.has(Self::KEEP_ALIVE))
    }
}

/// What `Connection` says that matters here, of all its options.
#[inline(never)]
fn connection_options(value: &[u8]) -> u8 {
    let mut options = 0;
    for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if option.eq_ignore_ascii_case(b"close") {
            options |= FramingFields::CLOSE;
        } else if option.eq_ignore_ascii_case(b"keep-alive") {
            options |= FramingFields::KEEP_ALIVE;
        }
    }
    options
}

/// 1*DIGIT and nothing else: no sign, no list, no `0x`, no overflow.
fn parse_content_length(value: &[u8]) -> Result<u64, ParseError> {
    if value.is_empty() {
        return Err(ParseError::BadContentLength);
    }
    let mut length = 0_u64;
    for &byte in value {
        if byte == b',' {
            return Err(ParseError::DuplicateContentLength);
        }
        if !byte.is_ascii_digit() {
            return Err(ParseError::BadContentLength);
        }
        length = length
            .checked_mul(10)
            .and_then(|tens| tens.checked_add(u64::from(byte - b'0')))
            .ok_or(ParseError::BadContentLength)?;
    }
    Ok(length)
}
