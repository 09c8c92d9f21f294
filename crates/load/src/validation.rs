//! Whether a response is right. A fast wrong response is an error, never a success.
//!
//! `connection` feeds each response through its check while it arrives; `outcome` counts what comes out.
//! The first response's body is kept and later ones are compared with it in place, which is cheaper
//! than a hash and cannot collide.

use std::sync::OnceLock;

use memchr::memmem;
use ring::digest::{Context, SHA256};

use crate::config::Workload;
use crate::workload::{Expected, KEY_BYTES_MAX};

/// A first response longer than this is compared by its first part and its length.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// How bodies are checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BodyCheck {
    /// Not at all: for pages that differ each time.
    Ignore,
    /// As long as the first response (entity GET: as long as the value).
    Length,
    /// Byte for byte the first response (entity GET: the value of the key).
    Exact,
}

/// Which responses are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Validation {
    /// Which status codes.
    pub statuses: StatusSet,
    /// Which bodies.
    pub body: BodyCheck,
    /// How long bodies are; `None`: any length.
    pub length: Option<u64>,
    /// The sum of bodies; `None`: anything.
    pub checksum: Option<Checksum>,
    /// The key of the request must occur in the body.
    pub has_echo: bool,
}

impl Validation {
    /// Only statuses and bodies in comparison with others.
    pub const fn of(statuses: StatusSet, body: BodyCheck) -> Self {
        Self {
            statuses,
            body,
            length: None,
            checksum: None,
            has_echo: false,
        }
    }

    /// Whether the bytes of bodies matter, not only their number.
    const fn looks_at_bodies(&self) -> bool {
        matches!(self.body, BodyCheck::Exact) || self.checksum.is_some() || self.has_echo
    }

    /// 201 for entity PUT, 200 with the exact value for entity GET; below 400 with any body for
    /// other people's servers, as wrk judges.
    pub fn for_workload(workload: &Workload) -> Self {
        match workload {
            Workload::Static { .. } | Workload::StaticChunked { .. } | Workload::Mix(_) => {
                Self::of(StatusSet::range(200, 399), BodyCheck::Ignore)
            }
            Workload::EntityPut { .. } => Self::of(StatusSet::of(&[201]), BodyCheck::Exact),
            Workload::EntityGet { .. } => Self::of(StatusSet::of(&[200]), BodyCheck::Exact),
        }
    }
}

/// The outcome of one response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Judgement {
    /// Status and body are right.
    Right,
    /// A status outside the set; its body was not checked.
    WrongStatus,
    /// The status is right, the body is not what was stored or what others got.
    WrongBody,
    /// The body has not the length it must have.
    WrongLength,
    /// The body has not the checksum it must have.
    WrongChecksum,
    /// The key is not in the body.
    NoEcho,
}

#[derive(Debug)]
struct FirstResponse {
    status: u16,
    body_bytes: u64,
    /// At most [`KEPT_BYTES_MAX`] of the body; empty unless bodies are compared exactly.
    body: Vec<u8>,
}

/// The standard all responses of a run are held to; shared by its threads.
#[derive(Debug)]
pub(crate) struct Validator {
    validation: Validation,
    looks_at_bodies: bool,
    /// Nothing but the status matters: most runs.
    is_status_only: bool,
    first: OnceLock<FirstResponse>,
}

impl Validator {
    /// Whether bodies are more than counted.
    #[inline]
    pub(crate) fn looks_at_bodies(&self) -> bool {
        self.looks_at_bodies
    }

    /// Whether nothing but the status matters.
    pub(crate) fn is_status_only(&self) -> bool {
        self.is_status_only
    }

    /// The kind of a response of which nothing but this matters.
    #[inline]
    pub(crate) fn judge_status(&self, status: u16) -> Judgement {
        if self.validation.statuses.contains(status) {
            Judgement::Right
        } else {
            Judgement::WrongStatus
        }
    }

    pub(crate) fn new(validation: Validation) -> Self {
        Self {
            looks_at_bodies: validation.looks_at_bodies(),
            is_status_only: validation.body == BodyCheck::Ignore
                && validation.length.is_none()
                && !validation.looks_at_bodies(),
            validation,
            first: OnceLock::new(),
        }
    }
}

/// A known body that bodies are compared with.
#[derive(Debug, Default)]
struct Known {
    hasher: Option<Hasher>,
    echo: EchoSearch,
}

/// One response being checked while it arrives. Reused; allocates only until a first response stands.
#[derive(Debug, Default)]
pub(crate) struct ResponseCheck {
    status: u16,
    received_bytes: u64,
    body_differs: bool,
    /// Made for the first body that needs it; most runs need none.
    known: Option<Box<Known>>,
    /// This session's candidate for the first response.
    collected: Vec<u8>,
}

impl ResponseCheck {
    /// A head arrived.
    pub(crate) fn begin(&mut self, status: u16) {
        self.status = status;
        self.received_bytes = 0;
        self.body_differs = false;
        if let Some(known) = &mut self.known {
            known.hasher = None;
            known.echo.begin();
        }
        self.collected.clear();
    }

    /// The next bytes of a body arrived that no check reads.
    #[inline]
    pub(crate) fn skip(&mut self, part: &[u8]) {
        self.received_bytes += part.len() as u64;
    }

    /// The next bytes of the body arrived. `expected`: what is known of it beforehand.
    pub(crate) fn part(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
        part: &[u8],
    ) {
        let offset = self.received_bytes as usize;
        self.received_bytes += part.len() as u64;
        let validation = &validator.validation;
        if !validator.looks_at_bodies || !validation.statuses.contains(self.status) {
            return;
        }
        if let Some(checksum) = &validation.checksum {
            let hasher = &mut self.known.get_or_insert_default().hasher;
            hasher
                .get_or_insert_with(|| Hasher::of(checksum))
                .update(part);
        }
        if let Some(expected) = expected.filter(|_| validation.has_echo) {
            let echo = &mut self.known.get_or_insert_default().echo;
            echo.look(expected.key_id(&mut [0; KEY_BYTES_MAX]), part);
        }
        if validation.body == BodyCheck::Exact {
            self.compare(validator, expected, offset, part);
        }
    }

    fn compare(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
        offset: usize,
        part: &[u8],
    ) {
        if let Some((values, key)) = expected.and_then(Expected::value) {
            self.body_differs = self.body_differs || !values.matches(key, offset, part);
            return;
        }
        match validator.first.get() {
            Some(first) if first.status == self.status => {
                let kept = first.body.get(offset..).unwrap_or_default();
                let len = kept.len().min(part.len());
                // Bytes beyond the kept part are judged by length alone.
                self.body_differs = self.body_differs || kept[..len] != part[..len];
            }
            Some(_) => {}
            None => {
                let room = KEPT_BYTES_MAX.saturating_sub(self.collected.len());
                self.collected
                    .extend_from_slice(&part[..part.len().min(room)]);
            }
        }
    }

    /// The response is complete. Of several mistakes the first in this order is reported: status, length, checksum,
    /// echo, content.
    pub(crate) fn finish(
        &mut self,
        validator: &Validator,
        expected: Option<&Expected<'_>>,
    ) -> Judgement {
        let validation = &validator.validation;
        if !validation.statuses.contains(self.status) {
            return Judgement::WrongStatus;
        }
        if validator.is_status_only {
            return Judgement::Right;
        }
        if validation
            .length
            .is_some_and(|length| length != self.received_bytes)
        {
            return Judgement::WrongLength;
        }
        if let Some(checksum) = &validation.checksum {
            let begun = self.known.as_mut().and_then(|known| known.hasher.take());
            let hasher = begun.unwrap_or_else(|| Hasher::of(checksum));
            if hasher.finish() != *checksum {
                return Judgement::WrongChecksum;
            }
        }
        if validation.has_echo
            && !self
                .known
                .as_ref()
                .is_some_and(|known| known.echo.is_found())
        {
            return Judgement::NoEcho;
        }
        let right = match (validation.body, expected.and_then(Expected::value)) {
            (BodyCheck::Ignore, _) => true,
            // A status that allows it, such as 404 of a deleted key, has a body of its own.
            (_, Some(_)) if self.status != 200 => true,
            (BodyCheck::Length | BodyCheck::Exact, Some((values, key))) => {
                !self.body_differs && self.received_bytes == values.len_of(key) as u64
            }
            (BodyCheck::Length | BodyCheck::Exact, None) => self.equals_first(validator),
        };
        if right {
            Judgement::Right
        } else {
            Judgement::WrongBody
        }
    }

    /// Whether the body is the first response's; makes it the first response if there is none. A
    /// response with another status of the set is not comparable and passes.
    fn equals_first(&mut self, validator: &Validator) -> bool {
        let first = validator.first.get_or_init(|| FirstResponse {
            status: self.status,
            body_bytes: self.received_bytes,
            body: std::mem::take(&mut self.collected),
        });
        if first.status != self.status {
            return true;
        }
        // Another session became first while this body was being collected: what was collected
        // before that has not been compared yet. (If this one became first, it is empty now.)
        let differs_from_rival = !first.body.starts_with(&self.collected);
        self.collected = Vec::new();
        first.body_bytes == self.received_bytes && !self.body_differs && !differs_from_rival
    }
}

// Sets of status codes.

/// Status codes a set can hold: 0..640.
const STATUS_CODES: usize = 640;

/// Which status codes are right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatusSet {
    words: [u64; STATUS_CODES / 64],
}

impl StatusSet {
    /// Exactly these.
    pub fn of(codes: &[u16]) -> Self {
        let mut set = Self {
            words: [0; STATUS_CODES / 64],
        };
        codes.iter().for_each(|&code| set.insert(code));
        set
    }

    /// All from `first` to `last`.
    pub fn range(first: u16, last: u16) -> Self {
        let mut set = Self::of(&[]);
        (first..=last).for_each(|code| set.insert(code));
        set
    }

    fn insert(&mut self, code: u16) {
        if let Some(word) = self.words.get_mut(usize::from(code) / 64) {
            *word |= 1 << (code % 64);
        }
    }

    /// Whether `code` is right.
    pub fn contains(&self, code: u16) -> bool {
        self.words
            .get(usize::from(code) / 64)
            .is_some_and(|word| word >> (code % 64) & 1 == 1)
    }
}

// Checksums of a body that are known to the user.

/// The sum of a body's bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checksum {
    /// Of `cksum -a crc32b`, gzip and PNG.
    Crc32(u32),
    /// Of `sha256sum`.
    Sha256([u8; 32]),
}

impl Checksum {
    /// From eight hexadecimal digits.
    pub fn crc32(hex: &str) -> Result<Self, String> {
        let wrong = || format!("`{hex}` is not a CRC-32: eight hexadecimal digits");
        let digits = hex.len() == 8 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(hex, 16).ok().filter(|_| digits);
        value.map(Self::Crc32).ok_or_else(wrong)
    }

    /// From 64 hexadecimal digits.
    pub fn sha256(hex: &str) -> Result<Self, String> {
        let wrong = || format!("`{hex}` is not a SHA-256: 64 hexadecimal digits");
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, start) in bytes.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&hex[start..start + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self::Sha256(bytes))
    }
}

/// The SHA-256 of `bytes`, in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&SHA256, bytes);
    let digits = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

/// A checksum being computed.
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in a box of its own already"
)]
#[derive(Clone)]
enum Hasher {
    Crc32(crc32fast::Hasher),
    Sha256(Context),
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hasher")
    }
}

impl Hasher {
    fn of(checksum: &Checksum) -> Self {
        match checksum {
            Checksum::Crc32(_) => Self::Crc32(crc32fast::Hasher::new()),
            Checksum::Sha256(_) => Self::Sha256(Context::new(&SHA256)),
        }
    }

    fn update(&mut self, part: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(part),
            Self::Sha256(context) => context.update(part),
        }
    }

    fn finish(self) -> Checksum {
        match self {
            Self::Crc32(hasher) => Checksum::Crc32(hasher.finalize()),
            Self::Sha256(context) => {
                let mut bytes = [0; 32];
                bytes.copy_from_slice(context.finish().as_ref());
                Checksum::Sha256(bytes)
            }
        }
    }
}

// Whether a key occurs in a body that arrives in parts.

/// One search; reused.
#[derive(Debug)]
struct EchoSearch {
    is_found: bool,
    /// The end of what came before, shorter than the key.
    tail: [u8; 2 * KEY_BYTES_MAX],
    tail_bytes: usize,
}

impl Default for EchoSearch {
    fn default() -> Self {
        Self {
            is_found: false,
            tail: [0; 2 * KEY_BYTES_MAX],
            tail_bytes: 0,
        }
    }
}

impl EchoSearch {
    fn begin(&mut self) {
        self.is_found = false;
        self.tail_bytes = 0;
    }

    fn is_found(&self) -> bool {
        self.is_found
    }

    /// Searches for `key`, the same for all parts of a body, in the next part.
    fn look(&mut self, key: &[u8], part: &[u8]) {
        if self.is_found {
            return;
        }
        // Across the seam: what was kept, and as much of the part as the key could reach into.
        let reach = part.len().min(key.len().saturating_sub(1));
        let end = self.tail_bytes + reach;
        self.tail[self.tail_bytes..end].copy_from_slice(&part[..reach]);
        self.is_found =
            memmem::find(&self.tail[..end], key).is_some() || memmem::find(part, key).is_some();
        let kept = key.len().saturating_sub(1);
        if part.len() >= kept {
            self.tail[..kept].copy_from_slice(&part[part.len() - kept..]);
            self.tail_bytes = kept;
        } else {
            let kept = kept.min(end);
            self.tail.copy_within(end - kept..end, 0);
            self.tail_bytes = kept;
        }
    }
}

#[cfg(test)]
#[path = "tests/validation.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/checksum.rs"]
mod checksum_tests;
