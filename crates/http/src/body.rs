//! Bodies in: by length, in chunks, or until the peer closes.
//!
//! `connection` and `client` feed received bytes through a decoder and take the data out, borrowed
//! from what they fed. No byte is copied or kept here, so input may be cut anywhere.
//!
//! Trailer fields are checked like header fields and handed out apart from the data, so that
//! nothing downstream takes them for header fields; a service that wants them gathers them for
//! [`crate::parse_trailer_fields`].

use crate::error::BodyError;
use crate::head::Framing;
use crate::limits::Limits;
use crate::scan;

/// Hexadecimal digits of a chunk size: sixteen fill a `u64`.
const CHUNK_SIZE_DIGITS_MAX: u8 = 16;

/// Extensions of all chunks of a body together, beside the limit on those of one chunk: otherwise
/// chunks of one byte carry hundreds of times their data past the limit on the body.
const EXTENSIONS_BYTES_MAX: usize = 16 * 1024;

/// Result of one call of [`BodyDecoder::decode`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BodyStep<'b> {
    /// Input bytes used up; never zero unless the input was empty or the body is complete.
    pub consumed_bytes: usize,
    /// Body data, possibly empty: framing bytes carry none.
    pub data: &'b [u8],
    /// The next bytes of the trailer fields, with their line ends and without the empty line after
    /// them. Nearly always empty, and never beside `data`.
    pub trailer: &'b [u8],
    /// Nothing more belongs to this body.
    pub is_complete: bool,
}

/// Finds the end of a body.
#[derive(Clone, Debug)]
pub struct BodyDecoder {
    state: DecoderState,
}

#[derive(Clone, Debug)]
enum DecoderState {
    Length { remaining_bytes: u64 },
    Chunked(ChunkDecoder),
    UntilClose,
}

impl BodyDecoder {
    /// A decoder for a body framed like this; none for `Framing::None`.
    #[must_use]
    pub fn new(framing: Framing, limits: &Limits) -> Option<Self> {
        let state = match framing {
            Framing::None => return None,
            Framing::Length(remaining_bytes) => DecoderState::Length { remaining_bytes },
            Framing::Chunked => DecoderState::Chunked(ChunkDecoder::new(limits)),
            Framing::UntilClose => DecoderState::UntilClose,
        };
        Some(Self { state })
    }

    /// A decoder for bytes that are not framed.
    pub(crate) fn until_close() -> Self {
        Self {
            state: DecoderState::UntilClose,
        }
    }

    /// Takes body bytes off the front of `bytes`. Call again with what is left until the step is
    /// complete or nothing is left. A fault is final.
    pub fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<BodyStep<'b>, BodyError> {
        match &mut self.state {
            DecoderState::Length { remaining_bytes } => {
                let take = bytes
                    .len()
                    .min(usize::try_from(*remaining_bytes).unwrap_or(usize::MAX));
                *remaining_bytes -= take as u64;
                let data = &bytes[..take];
                let is_complete = *remaining_bytes == 0;
                Ok(BodyStep {
                    consumed_bytes: take,
                    data,
                    trailer: &[],
                    is_complete,
                })
            }
            DecoderState::Chunked(chunks) => chunks.decode(bytes),
            DecoderState::UntilClose => Ok(BodyStep {
                consumed_bytes: bytes.len(),
                data: bytes,
                trailer: &[],
                is_complete: false,
            }),
        }
    }

    /// Whether the peer's close is the valid end of this body.
    #[must_use]
    pub fn ends_with_close(&self) -> bool {
        matches!(self.state, DecoderState::UntilClose)
    }

    /// Data bytes still to come, where that is known.
    #[must_use]
    pub fn remaining_bytes(&self) -> Option<u64> {
        match self.state {
            DecoderState::Length { remaining_bytes } => Some(remaining_bytes),
            _ => None,
        }
    }
}

/// State in the chunk grammar at the next byte.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChunkState {
    /// Digits of a size, so many seen.
    Size {
        digits: u8,
    },
    /// After `;`: at least one token character.
    ExtensionName {
        is_empty: bool,
    },
    /// After `=`: a token or a quoted string.
    ExtensionValue {
        is_empty: bool,
    },
    ExtensionQuoted,
    ExtensionEscape,
    ExtensionQuotedEnd,
    /// LF of the size line.
    SizeLineFeed,
    Data,
    /// CR and LF after the data.
    DataCarriageReturn,
    DataLineFeed,
    /// First byte of a trailer line or of the final empty line.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    FinalLineFeed,
    Complete,
}

#[derive(Clone, Debug)]
struct ChunkDecoder {
    state: ChunkState,
    /// Size being read, then data left of the chunk.
    chunk_bytes: u64,
    /// Data the body may still grow by.
    budget_bytes: u64,
    /// Of this chunk.
    extension_bytes: usize,
    /// Of all chunks.
    extensions_bytes: usize,
    trailer_bytes: usize,
    trailer_fields: usize,
    trailer_name: TrailerName,
    body_bytes_max: u64,
    extension_bytes_max: usize,
    trailer_bytes_max: usize,
    trailer_fields_max: usize,
}

/// Start of the current field name, long enough to recognize the fields that a trailer may not hold.
#[derive(Clone, Copy, Debug, Default)]
struct TrailerName {
    lower_case: [u8; TrailerName::BYTES],
    /// Of the whole name, which may be longer than what is kept.
    length: usize,
}

impl TrailerName {
    /// One more than the longest of the fields that matter.
    const BYTES: usize = b"transfer-encoding".len() + 1;

    fn push(&mut self, byte: u8) {
        if let Some(place) = self.lower_case.get_mut(self.length) {
            *place = byte.to_ascii_lowercase();
        }
        self.length += 1;
    }

    /// Fields that frame or route a message are not allowed in trailers (RFC 9110 6.5.1).
    fn is_forbidden(&self) -> bool {
        let name = self.lower_case.get(..self.length).unwrap_or_default();
        matches!(name, b"transfer-encoding" | b"content-length" | b"host")
    }
}

impl ChunkDecoder {
    fn new(limits: &Limits) -> Self {
        Self {
            state: ChunkState::Size { digits: 0 },
            chunk_bytes: 0,
            budget_bytes: limits.body_bytes_max,
            extension_bytes: 0,
            extensions_bytes: 0,
            trailer_bytes: 0,
            trailer_fields: 0,
            trailer_name: TrailerName::default(),
            body_bytes_max: limits.body_bytes_max,
            extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
            trailer_fields_max: limits.fields_max,
        }
    }

    fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<BodyStep<'b>, BodyError> {
        let mut at = 0;
        let mut trailer_start = None;
        while at < bytes.len() && self.state != ChunkState::Complete {
            match self.state {
                ChunkState::Data => return Ok(self.take_data(bytes, at)),
                // The empty line, which is none of the fields.
                ChunkState::TrailerStart if bytes[at] == b'\r' && trailer_start.is_some() => break,
                ChunkState::TrailerStart if bytes[at] == b'\r' => {}
                ChunkState::TrailerStart
                | ChunkState::TrailerName
                | ChunkState::TrailerValue
                | ChunkState::TrailerLineFeed => {
                    trailer_start.get_or_insert(at);
                }
                _ => {}
            }
            self.step(bytes[at])?;
            at += 1;
        }
        let is_complete = self.state == ChunkState::Complete;
        Ok(BodyStep {
            consumed_bytes: at,
            data: &[],
            trailer: trailer_start.map_or(&[], |start| &bytes[start..at]),
            is_complete,
        })
    }

    /// As much of the chunk's data as `bytes` has from `at` on.
    fn take_data<'b>(&mut self, bytes: &'b [u8], at: usize) -> BodyStep<'b> {
        let room = usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX);
        let data = &bytes[at..][..room.min(bytes.len() - at)];
        self.chunk_bytes -= data.len() as u64;
        if self.chunk_bytes == 0 {
            self.state = ChunkState::DataCarriageReturn;
        }
        BodyStep {
            consumed_bytes: at + data.len(),
            data,
            trailer: &[],
            is_complete: false,
        }
    }

    /// One byte of framing.
    fn step(&mut self, byte: u8) -> Result<(), BodyError> {
        use ChunkState as S;
        self.state = match self.state {
            S::Size { digits } => self.size_byte(digits, byte)?,
            S::ExtensionName { .. }
            | S::ExtensionValue { .. }
            | S::ExtensionQuoted
            | S::ExtensionEscape
            | S::ExtensionQuotedEnd => self.extension_byte(byte)?,
            S::SizeLineFeed => self.size_line_ended(byte)?,
            S::DataCarriageReturn if byte == b'\r' => S::DataLineFeed,
            S::DataLineFeed if byte == b'\n' => S::Size { digits: 0 },
            S::DataCarriageReturn | S::DataLineFeed => return Err(BodyError::BadChunkEnd),
            S::TrailerStart
            | S::TrailerName
            | S::TrailerValue
            | S::TrailerLineFeed
            | S::FinalLineFeed => self.trailer_byte(byte)?,
            S::Data | S::Complete => unreachable!("decode() handles the states without framing"),
        };
        Ok(())
    }

    fn size_byte(&mut self, digits: u8, byte: u8) -> Result<ChunkState, BodyError> {
        if let Some(value) = (byte as char).to_digit(16) {
            if digits == CHUNK_SIZE_DIGITS_MAX {
                return Err(BodyError::BadChunkSize);
            }
            self.chunk_bytes = self.chunk_bytes << 4 | u64::from(value);
            return Ok(ChunkState::Size { digits: digits + 1 });
        }
        match byte {
            _ if digits == 0 => Err(BodyError::BadChunkSize),
            b'\r' => Ok(ChunkState::SizeLineFeed),
            b';' => {
                self.extension_bytes = 0;
                self.count_extension_byte()?;
                Ok(ChunkState::ExtensionName { is_empty: true })
            }
            _ => Err(BodyError::BadChunkSize),
        }
    }

    fn count_extension_byte(&mut self) -> Result<(), BodyError> {
        self.extension_bytes += 1;
        self.extensions_bytes += 1;
        for (count, limit_bytes) in [
            (self.extension_bytes, self.extension_bytes_max),
            (self.extensions_bytes, EXTENSIONS_BYTES_MAX),
        ] {
            if count > limit_bytes {
                return Err(BodyError::ChunkExtensionTooLong { limit_bytes });
            }
        }
        Ok(())
    }

    fn extension_byte(&mut self, byte: u8) -> Result<ChunkState, BodyError> {
        use ChunkState as S;
        if byte != b'\r' {
            self.count_extension_byte()?;
        }
        match (self.state, byte) {
            (S::ExtensionName { .. }, _) if scan::is_token(byte) => {
                Ok(S::ExtensionName { is_empty: false })
            }
            (S::ExtensionName { is_empty: false }, b'=') => {
                Ok(S::ExtensionValue { is_empty: true })
            }
            (S::ExtensionValue { .. }, _) if scan::is_token(byte) => {
                Ok(S::ExtensionValue { is_empty: false })
            }
            (S::ExtensionValue { is_empty: true }, b'"') => Ok(S::ExtensionQuoted),
            (S::ExtensionQuoted, b'"') => Ok(S::ExtensionQuotedEnd),
            (S::ExtensionQuoted, b'\\') => Ok(S::ExtensionEscape),
            (S::ExtensionQuoted, _) if scan::is_quoted_text(byte) => Ok(S::ExtensionQuoted),
            (S::ExtensionEscape, _) if scan::is_field_value(byte) => Ok(S::ExtensionQuoted),
            (
                S::ExtensionName { is_empty: false }
                | S::ExtensionValue { is_empty: false }
                | S::ExtensionQuotedEnd,
                b';',
            ) => Ok(S::ExtensionName { is_empty: true }),
            (
                S::ExtensionName { is_empty: false }
                | S::ExtensionValue { is_empty: false }
                | S::ExtensionQuotedEnd,
                b'\r',
            ) => Ok(S::SizeLineFeed),
            _ => Err(BodyError::BadChunkExtension),
        }
    }

    /// The budget is checked on the announced size, before any of the data is read.
    fn size_line_ended(&mut self, byte: u8) -> Result<ChunkState, BodyError> {
        if byte != b'\n' {
            return Err(BodyError::BadChunkSize);
        }
        if self.chunk_bytes == 0 {
            return Ok(ChunkState::TrailerStart);
        }
        self.budget_bytes =
            self.budget_bytes
                .checked_sub(self.chunk_bytes)
                .ok_or(BodyError::TooLong {
                    limit_bytes: self.body_bytes_max,
                })?;
        Ok(ChunkState::Data)
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<ChunkState, BodyError> {
        use ChunkState as S;
        self.trailer_bytes += 1;
        if self.trailer_bytes > self.trailer_bytes_max {
            return Err(BodyError::TrailerTooLong {
                limit_bytes: self.trailer_bytes_max,
            });
        }
        match (self.state, byte) {
            (S::TrailerStart, b'\r') => Ok(S::FinalLineFeed),
            (S::FinalLineFeed, b'\n') => Ok(S::Complete),
            (S::TrailerStart, _) if scan::is_token(byte) => self.trailer_line_begins(byte),
            (S::TrailerName, _) if scan::is_token(byte) => {
                self.trailer_name.push(byte);
                Ok(S::TrailerName)
            }
            (S::TrailerName, b':') if self.trailer_name.is_forbidden() => {
                Err(BodyError::ForbiddenTrailer)
            }
            (S::TrailerName, b':') => Ok(S::TrailerValue),
            (S::TrailerValue, b'\r') => Ok(S::TrailerLineFeed),
            (S::TrailerValue, _) if scan::is_field_value(byte) => Ok(S::TrailerValue),
            (S::TrailerLineFeed, b'\n') => Ok(S::TrailerStart),
            _ => Err(BodyError::BadTrailer),
        }
    }

    fn trailer_line_begins(&mut self, byte: u8) -> Result<ChunkState, BodyError> {
        if self.trailer_fields == self.trailer_fields_max {
            let limit = self.trailer_fields_max;
            return Err(BodyError::TooManyTrailers { limit });
        }
        self.trailer_fields += 1;
        self.trailer_name = TrailerName::default();
        self.trailer_name.push(byte);
        Ok(ChunkState::TrailerName)
    }
}
