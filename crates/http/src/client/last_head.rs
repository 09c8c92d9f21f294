//! What the last head meant, so that the next one, if it is the same, need not be parsed.
//!
//! On the path: `client` asks here first. What is remembered is whole heads, to their empty line, and
//! the parser sees nothing but the head, the method and the limits, so the same bytes mean the same.
//! Absent on purpose: heads that differ in one field, such as the date; they are parsed.

use super::AlikeResponses;
use super::expected::Expected;
use crate::head::{Framing, HeadFields};
use crate::limits::Limits;
use crate::method::Method;
use crate::status::StatusCode;

/// Longer heads are parsed each time.
const LAST_HEAD_BYTES_MAX: usize = 512;

/// The head that came last, on whichever connection of one owner, and what it meant.
///
/// A server's heads differ from one to the next in a date that changes once a second, if at all. One
/// that begins as the last one did, to its empty line, means the same: it is compared, not parsed.
#[derive(Clone, Debug)]
pub struct LastHead {
    pub(super) fields: HeadFields,
    bytes: [u8; LAST_HEAD_BYTES_MAX],
    /// 0: none to compare with.
    length: usize,
    /// Length of a whole response with this head; 0: it does not tell, or the connection ends with it.
    whole_bytes: usize,
    pub(super) meaning: Meaning,
}

impl Default for LastHead {
    fn default() -> Self {
        Self {
            fields: HeadFields::new(),
            bytes: [0; LAST_HEAD_BYTES_MAX],
            length: 0,
            whole_bytes: 0,
            meaning: Meaning {
                method: Method::Get,
                status: StatusCode::OK,
                keep_alive: false,
                framing: Framing::None,
            },
        }
    }
}

impl LastHead {
    /// What the head at the beginning of `bytes` means, if it is the last one again.
    #[inline]
    pub(super) fn again(&self, bytes: &[u8], method: Method) -> Option<(usize, Meaning)> {
        let is_same = self.length > 0
            && self.meaning.method == method
            && bytes.starts_with(&self.bytes[..self.length]);
        is_same.then_some((self.length, self.meaning))
    }

    /// The whole responses at the beginning of `bytes` that answer `expected` and have the last head
    /// again, and how many bytes those are; `None`: there are none.
    #[inline]
    pub(super) fn alike(
        &self,
        bytes: &[u8],
        expected: &Expected,
        limits: &Limits,
    ) -> Option<(AlikeResponses, usize)> {
        let body_bytes = self.meaning.body_bytes();
        if self.whole_bytes == 0
            || self.meaning.method != expected.method
            || body_bytes > limits.body_bytes_max
        {
            return None;
        }
        let alike = |count| AlikeResponses {
            count,
            status: self.meaning.status,
            body_bytes,
        };
        let head = &self.bytes[..self.length];
        if let Some(count) = self.repetitions(bytes, head)
            && count <= expected.count
        {
            return Some((alike(count), bytes.len()));
        }
        let (mut count, mut rest) = (0, bytes);
        while count < expected.count && rest.len() >= self.whole_bytes && rest.starts_with(head) {
            count += 1;
            rest = &rest[self.whole_bytes..];
        }
        (count > 0).then_some((alike(count), bytes.len() - rest.len()))
    }

    /// How many responses `bytes` are if they are one again and again, its body too, as those of a pipeline mostly are:
    /// one comparison of the bytes with themselves, a response later.
    #[inline]
    fn repetitions(&self, bytes: &[u8], head: &[u8]) -> Option<usize> {
        let later = bytes.get(self.whole_bytes..)?;
        let is_repeated = self.whole_bytes <= LAST_HEAD_BYTES_MAX
            && !later.is_empty()
            && bytes.len().is_multiple_of(self.whole_bytes)
            && bytes.starts_with(head)
            && *later == bytes[..later.len()];
        is_repeated.then(|| bytes.len() / self.whole_bytes)
    }

    pub(super) fn remember(&mut self, head: &[u8], meaning: Meaning) {
        (self.length, self.whole_bytes) = (0, 0);
        if let Some(place) = self.bytes.get_mut(..head.len()) {
            place.copy_from_slice(head);
            self.length = head.len();
            self.whole_bytes = meaning.whole_bytes(head.len()).unwrap_or(0);
            self.meaning = meaning;
        }
    }
}

/// What a final response's head says, as the answer to a request of this method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) method: Method,
    pub(super) status: StatusCode,
    pub(super) keep_alive: bool,
    pub(super) framing: Framing,
}

impl Meaning {
    /// Length of a whole response, if that is known and another may follow it.
    fn whole_bytes(&self, head_bytes: usize) -> Option<usize> {
        let has_length = matches!(self.framing, Framing::None | Framing::Length(_));
        if !has_length || !self.keep_alive || self.status.is_informational() {
            return None;
        }
        head_bytes.checked_add(usize::try_from(self.body_bytes()).ok()?)
    }

    /// Length of the body where the head tells it.
    pub(super) fn body_bytes(&self) -> u64 {
        match self.framing {
            Framing::Length(length) => length,
            _ => 0,
        }
    }
}
