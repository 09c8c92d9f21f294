//! The name by which a proxy knows itself in `Via` (RFC 9110 7.6.3), and requests that it has passed on
//! before.
//!
//! A proxy that is its own upstream, or one of a ring, would pass a request on until descriptors run
//! out. Each proxy writes a name that no other one has into the `Via` of requests, and answers 508 to a
//! request that has its name already.

use super::field_rule::FieldRule;
use crate::request::Request;
use std::hash::{BuildHasher, Hasher, RandomState};

const NAME_BYTES: usize = "millpond-".len() + 16;

/// `millpond-` and 64 random bits in hexadecimal digits: one of each [`super::ProxyControl`], for all its
/// shards.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct ViaName([u8; NAME_BYTES]);

impl ViaName {
    /// One that no other proxy has.
    pub(super) fn random() -> Self {
        // Keyed anew from the system's random numbers.
        Self::of_bits(RandomState::new().build_hasher().finish())
    }

    pub(super) fn of_bits(bits: u64) -> Self {
        let mut name = [0; NAME_BYTES];
        name.copy_from_slice(format!("millpond-{bits:016x}").as_bytes());
        Self(name)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the request has this name in any of its `Via` lines: the proxy has passed it on before.
    pub(super) fn is_in(&self, request: &Request<'_>) -> bool {
        request.fields.spans().iter().any(|field| {
            FieldRule::of(field.name.of(request.bytes)) == FieldRule::Via
                && self.is_listed(field.value.of(request.bytes))
        })
    }

    /// Members are what stands between commas, also within comments: a parenthesis that a client has
    /// opened and not closed must not hide what proxies have written behind it.
    fn is_listed(&self, list: &[u8]) -> bool {
        list.split(|&byte| byte == b',').any(|member| {
            let mut words = member
                .split(|byte| matches!(byte, b' ' | b'\t'))
                .filter(|word| !word.is_empty());
            let _protocol = words.next();
            // Names are compared without regard to case, as hosts are, in whose place this one stands.
            let received_by = words.next();
            received_by.is_some_and(|name| name.eq_ignore_ascii_case(&self.0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: u64 = 0x0123_4567_89ab_cdef;
    const OURS: &str = "millpond-0123456789abcdef";

    /// Goal: no two are the same, and each is a token.
    #[test]
    fn names_are_tokens_of_their_own() {
        assert_eq!(ViaName::of_bits(BITS).as_bytes(), OURS.as_bytes());
        let [one, other] = [ViaName::random(), ViaName::random()];
        assert_ne!(one, other);
        let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
        assert!(one.as_bytes().iter().all(is_token));
    }

    /// Goal: our name is found as the receiver of any member, in any case, behind whatever else a client
    /// has written; what others write that looks like it is not taken for it.
    #[test]
    fn only_our_name_is_found_wherever_it_stands() {
        let name = ViaName::of_bits(BITS);
        for (list, is_ours) in [
            ("1.1 OURS", true),
            ("1.0 a, HTTP/1.1 OURS", true),
            ("1.1 OURS (comment), 1.1 b", true),
            ("\t1.1\t OURS \t", true),
            ("1.0 x ( , 1.1 OURS", true),
            ("1.0 x (\\, 1.1 OURS, 1.1 nginx", true),
            ("1.0 \"x, 1.1 OURS", true),
            ("", false),
            ("1.1 millpond", false),
            ("1.1 millpond-0123456789abcdee", false),
            ("1.1 OURS0", false),
            ("1.1 xOURS", false),
            ("1.1 OURS:80", false),
            ("OURS", false),
            ("1.1 a (by OURS)", false),
            ("OURS/1.1 a", false),
        ] {
            let upper = OURS.to_uppercase();
            for ours in [OURS, &upper] {
                let list = list.replace("OURS", ours);
                assert_eq!(name.is_listed(list.as_bytes()), is_ours, "{list}");
            }
        }
    }
}
