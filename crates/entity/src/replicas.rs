//! `replicas=ack/from`: how many copies of an entity have to answer before a client is told.
//!
//! On the path: `api` cuts the parameter out of the request target, `handler` measures it here by what
//! the engine keeps (`store::Engine::replicas`: one copy, where there is no cluster), and a job carries
//! the number of acknowledgements to whoever asks for them.
//! Absent on purpose: `from` as a choice. A keyspace has its replication factor, and all its entities
//! have as many copies; `from` says what the client believes it to be, so that it learns of an error.

/// Why the parameter was refused. The client's fault: 400.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReplicasError {
    /// Not two numbers.
    #[error("bad replicas: write replicas=ACK/FROM, as in replicas=2/3")]
    Malformed,
    /// Nobody is to acknowledge it.
    #[error("replicas=0/{from}: one or more have to answer")]
    None {
        /// What was given.
        from: u16,
    },
    /// More are to answer than there are.
    #[error("replicas={ack}/{from}: no more than {from} can answer")]
    TooMany {
        /// What was given.
        ack: u16,
        /// What was given.
        from: u16,
    },
    /// The store keeps another number of copies.
    #[error("replicas={ack}/{from}: there are {kept} copies here, so write replicas=ACK/{kept}")]
    OtherFrom {
        /// What was given.
        ack: u16,
        /// What was given.
        from: u16,
        /// What there are.
        kept: u16,
    },
}

/// More than half of them: two such sets have one in common, so what one was told the other knows.
#[must_use]
pub fn quorum(kept: u16) -> u16 {
    kept / 2 + 1
}

/// How many of `kept` copies have to answer; without the parameter a quorum.
///
/// # Errors
/// [`ReplicasError`].
pub fn acks(parameter: Option<&[u8]>, kept: u16) -> Result<u16, ReplicasError> {
    let Some(text) = parameter else {
        return Ok(quorum(kept));
    };
    let (ack, from) = split(text).ok_or(ReplicasError::Malformed)?;
    let ack = number(ack).ok_or(ReplicasError::Malformed)?;
    let from = number(from).ok_or(ReplicasError::Malformed)?;
    match ack {
        0 => Err(ReplicasError::None { from }),
        _ if ack > from => Err(ReplicasError::TooMany { ack, from }),
        _ if from != kept => Err(ReplicasError::OtherFrom { ack, from, kept }),
        _ => Ok(ack),
    }
}

/// Both sides of the slash, which some clients escape.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|&byte| byte == b'/' || byte == b'%')?;
    let (ack, rest) = text.split_at(at);
    let from = rest
        .strip_prefix(b"/")
        .or_else(|| rest.strip_prefix(b"%2F"))
        .or_else(|| rest.strip_prefix(b"%2f"))?;
    Some((ack, from))
}

fn number(digits: &[u8]) -> Option<u16> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is asked for is what is waited for, and without a word a quorum.
    #[test]
    fn acknowledgements_are_counted() {
        for (kept, quorum) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            assert_eq!(acks(None, kept), Ok(quorum));
            for ack in 1..=kept {
                let text = format!("{ack}/{kept}");
                assert_eq!(acks(Some(text.as_bytes()), kept), Ok(ack));
            }
        }
        assert_eq!(acks(Some(b"2%2F3"), 3), Ok(2));
        assert_eq!(acks(Some(b"2%2f3"), 3), Ok(2));
    }

    /// Goal: each way to ask for what cannot be is refused by its own name.
    #[test]
    fn impossible_replicas_are_refused() {
        use ReplicasError::{Malformed, None, OtherFrom, TooMany};
        let of = |text: &str| acks(Some(text.as_bytes()), 3);
        assert_eq!(of("0/3"), Err(None { from: 3 }));
        assert_eq!(of("4/3"), Err(TooMany { ack: 4, from: 3 }));
        for (ack, from) in [(1, 1), (2, 2), (3, 4), (2, 5)] {
            let refusal = OtherFrom { ack, from, kept: 3 };
            assert_eq!(of(&format!("{ack}/{from}")), Err(refusal));
        }
        for text in [
            "",
            "/",
            "2",
            "2/",
            "/3",
            "a/b",
            "2/3/",
            "2/3/4",
            "-1/3",
            "+2/3",
            " 2/3",
            "2:3",
            "2%3",
            "2%2f",
            "2%2e3",
            "65536/65536",
            "2.0/3",
        ] {
            assert_eq!(of(text), Err(Malformed), "{text}");
        }
    }
}
