//! Heads of answers, parsed: those that came last of some upstreams are compared first.
//!
//! On the path: `reading` and `whole` have every head read here. What is remembered is whole heads, to
//! their empty line, and the parser sees nothing but the head and the limits, so the same bytes mean
//! the same.
//!
//! Absent on purpose: what a head means for the request it answers (`head::ResponseHead` says).

use crate::error::ParseError;
use crate::head::{HeadFields, ResponseHead};
use crate::limits::Limits;
use crate::parse::{Parsed, parse_response_head};
use millpond_io::connection_pool::PoolKey;

/// Longer heads are parsed each time.
const KNOWN_BYTES_MAX: usize = 1024;
/// Upstreams share them by their number.
const PLACES: usize = 4;

/// One head.
#[derive(Debug)]
struct Place {
    /// As received; empty: `head` and `fields` say nothing that lasts.
    bytes: Vec<u8>,
    head: ResponseHead,
    fields: HeadFields,
}

/// See the module. One client has one, with the same limits always.
#[derive(Debug)]
pub(super) struct AnswerHeads {
    places: [Place; PLACES],
    /// Where the head is that was asked for last.
    at: usize,
}

impl Default for AnswerHeads {
    fn default() -> Self {
        let place = |_| Place {
            bytes: Vec::with_capacity(KNOWN_BYTES_MAX),
            head: ResponseHead::EMPTY,
            fields: HeadFields::new(),
        };
        Self {
            places: std::array::from_fn(place),
            at: 0,
        }
    }
}

impl AnswerHeads {
    /// The head at the beginning of what came from one upstream. Allocates nothing.
    #[inline]
    pub(super) fn read(
        &mut self,
        from: PoolKey,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Parsed<ResponseHead>, ParseError> {
        self.at = from.to_bits() as usize % PLACES;
        let place = &mut self.places[self.at];
        if !place.bytes.is_empty() && bytes.starts_with(&place.bytes) {
            return Ok(Parsed::Complete(place.head));
        }
        place.bytes.clear();
        let parsed = parse_response_head(bytes, limits, &mut place.fields);
        if let Ok(Parsed::Complete(head)) = &parsed
            && head.head_bytes <= KNOWN_BYTES_MAX
        {
            place.head = *head;
            place.bytes.extend_from_slice(&bytes[..head.head_bytes]);
        }
        parsed
    }

    /// The fields of the head that was read last.
    #[inline]
    pub(super) fn fields(&self) -> &HeadFields {
        &self.places[self.at].fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Goal: whatever was read before, of whichever upstream, a head and its fields are what
        /// parsing it alone says, cut ones, bad ones and those with an answer behind them included.
        #[test]
        fn what_is_known_is_what_parsing_says(
            steps in proptest::collection::vec((0..6_u64, 0..10_usize, 0..3_usize), 0..60),
        ) {
            let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(KNOWN_BYTES_MAX));
            let heads = [
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\n",
                "HTTP/1.1 200 OK\r\n\r\n",
                "HTTP/1.1 100 Continue\r\n\r\n",
                "HTTP/1.0 404 No\r\nConnection: close\r\n\r\n",
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
                "HTTP/1.1 200 OK\r\nContent-Len",
                "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\n",
                &long,
            ];
            let limits = Limits::default();
            let mut known = AnswerHeads::default();
            for (from, head, rest) in steps {
                let bytes = format!("{}{}", heads[head], ["", "hello", "HTTP/1.1 "][rest]);
                let mut fields = HeadFields::new();
                let expected = parse_response_head(bytes.as_bytes(), &limits, &mut fields);
                let found = known.read(PoolKey::from_bits(from), bytes.as_bytes(), &limits);
                prop_assert_eq!(&found, &expected, "{}", bytes);
                if matches!(found, Ok(Parsed::Complete(_))) {
                    prop_assert_eq!(known.fields().spans(), fields.spans());
                }
            }
        }
    }
}
