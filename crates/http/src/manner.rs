//! What of a request, and of the connection it came on, decides how its answer is framed.
//!
//! On the path: `server` finds it out once for each request; `response` frames by it. One byte, zero
//! for nearly all requests, so that what is usual is one comparison.
//!
//! Absent on purpose: what the service answers; its status frames an answer too.

use crate::encode::Persistence;
use crate::head::{RequestHead, Version};
use crate::method::Method;

/// See the module.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Manner(u8);

impl Manner {
    /// An HTTP/1.0 client that asked for it is told that the connection stays.
    const KEEP_ALIVE: u8 = 1;
    /// This is the last answer.
    const CLOSE: u8 = 2;
    /// The body is announced and left out.
    const HEAD: u8 = 4;
    /// The client knows no chunks.
    const OLD_VERSION: u8 = 8;
    /// The client said that this request is its last.
    const LAST_OF_CLIENT: u8 = 32;
    /// More of the request's body is to come than anybody would read behind an answer.
    const CLOSES_IF_ANSWERED: u8 = 16;

    /// How the answer to this is framed.
    #[inline(always)]
    pub(crate) fn of(head: &RequestHead, is_draining: bool) -> Self {
        let is_usual = head.version == Version::Http11
            && head.keep_alive
            && head.method != Method::Head
            && !is_draining;
        if is_usual {
            return Self::default();
        }
        Self::of_unusual(head, is_draining)
    }

    #[inline(never)]
    fn of_unusual(head: &RequestHead, is_draining: bool) -> Self {
        let is_old = head.version == Version::Http10;
        let persistence = match head.keep_alive && !is_draining {
            false => Self::CLOSE,
            true if is_old => Self::KEEP_ALIVE,
            true => 0,
        };
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        Self(
            persistence
                | flag(head.method == Method::Head, Self::HEAD)
                | flag(is_old, Self::OLD_VERSION)
                | flag(!head.keep_alive, Self::LAST_OF_CLIENT),
        )
    }

    /// HTTP/1.1, no HEAD, and the connection stays.
    #[inline(always)]
    pub(crate) fn is_usual(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn is_head(self) -> bool {
        self.0 & Self::HEAD != 0
    }

    #[inline]
    pub(crate) fn is_old_version(self) -> bool {
        self.0 & Self::OLD_VERSION != 0
    }

    /// The connection closes behind the answer.
    #[inline]
    pub(crate) fn closes(self) -> bool {
        self.0 & Self::CLOSE != 0
    }

    /// The client sends nothing behind this request: it said so.
    #[inline]
    pub(crate) fn is_last_of_client(self) -> bool {
        self.0 & Self::LAST_OF_CLIENT != 0
    }

    /// What the answer's head says of that.
    pub(crate) fn persistence(self) -> Persistence {
        match self.0 & (Self::CLOSE | Self::KEEP_ALIVE) {
            0 => Persistence::Silent,
            Self::KEEP_ALIVE => Persistence::KeepAlive,
            _ => Persistence::Close,
        }
    }

    /// The same, but the connection closes.
    #[inline]
    pub(crate) fn closing(self) -> Self {
        Self(self.0 & !Self::KEEP_ALIVE | Self::CLOSE)
    }

    /// The same, where an answer now closes the connection or not.
    #[inline]
    pub(crate) fn closing_if_answered(self, closes: bool) -> Self {
        let others = self.0 & !Self::CLOSES_IF_ANSWERED;
        Self(if closes {
            others | Self::CLOSES_IF_ANSWERED
        } else {
            others
        })
    }

    /// The answer is written now.
    pub(crate) fn answered(self) -> Self {
        if self.0 & Self::CLOSES_IF_ANSWERED != 0 {
            return self.closing();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: every combination says what its parts say, and only the usual one is usual.
    #[test]
    fn a_manner_is_its_parts() {
        for version in [Version::Http10, Version::Http11] {
            for method in [Method::Get, Method::Head, Method::Post] {
                for (keep_alive, is_draining) in
                    [(true, false), (true, true), (false, false), (false, true)]
                {
                    let head = RequestHead {
                        method,
                        version,
                        keep_alive,
                        ..RequestHead::EMPTY
                    };
                    let manner = Manner::of(&head, is_draining);
                    let closes = !keep_alive || is_draining;
                    let persistence = match version {
                        _ if closes => Persistence::Close,
                        Version::Http10 => Persistence::KeepAlive,
                        Version::Http11 => Persistence::Silent,
                    };
                    assert_eq!(manner.persistence(), persistence);
                    assert_eq!(manner.closes(), closes);
                    assert_eq!(manner.is_last_of_client(), !keep_alive);
                    assert_eq!(manner.is_head(), method == Method::Head);
                    assert_eq!(manner.is_old_version(), version == Version::Http10);
                    let is_usual = version == Version::Http11 && !closes && !manner.is_head();
                    assert_eq!(manner.is_usual(), is_usual);
                    assert_eq!(manner.closing().persistence(), Persistence::Close);
                    assert_eq!(manner.closing().is_head(), manner.is_head());
                    let unread = manner.closing_if_answered(true);
                    assert!(!unread.is_usual() && unread.answered().closes());
                    assert_eq!(unread.closes(), closes);
                    assert_eq!(unread.closing_if_answered(false), manner);
                    assert_eq!(manner.answered(), manner);
                }
            }
        }
    }
}
