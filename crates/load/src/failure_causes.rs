//! Why requests failed, by kind, with the first of each kind as an example. Nothing here is on the path of a request
//! that is answered rightly.
use millpond_http::{BodyError, ClientError, ParseError};
use millpond_measure::record::{LoadErrors, LoadFailure, LoadFailureExample, LoadFailureKind};

/// Bytes of an answer that an example keeps.
const EXAMPLE_BYTES_MAX: usize = 64;
const KINDS: usize = LoadFailureKind::ALL.len();

/// The causes that one thread saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct FailureCauses {
    /// Of connections that were not opened: how many failed in the handshake.
    pub(crate) tls: u64,
    /// Of requests that failed while an answer was awaited: those whose answer is no HTTP.
    framing: u64,
    /// Of the same: those whose answer is too large.
    limit: u64,
    /// At most one of each kind.
    first: [Option<LoadFailureExample>; KINDS],
}

impl FailureCauses {
    /// Keeps the first failure of each kind, at `at_ns` of the clock.
    #[cold]
    pub(crate) fn note(
        &mut self,
        kind: LoadFailureKind,
        at_ns: u64,
        connection: usize,
        what: impl FnOnce() -> String,
        bytes: &[u8],
    ) {
        let first = &mut self.first[kind.index()];
        if first.is_none() {
            let shown = &bytes[..bytes.len().min(EXAMPLE_BYTES_MAX)];
            *first = Some(LoadFailureExample {
                at_ns,
                connection: connection as u64,
                what: what(),
                bytes: shown.escape_ascii().to_string(),
            });
        }
    }

    /// So many requests failed because of an answer of this kind; others are read errors.
    pub(crate) fn count(&mut self, kind: LoadFailureKind, requests: u64) {
        match kind {
            LoadFailureKind::Framing => self.framing += requests,
            LoadFailureKind::Limit => self.limit += requests,
            _ => {}
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.tls += other.tls;
        self.framing += other.framing;
        self.limit += other.limit;
        for (mine, theirs) in self.first.iter_mut().zip(&other.first) {
            let is_earlier = match (&*mine, theirs) {
                (Some(mine), Some(theirs)) => theirs.at_ns < mine.at_ns,
                (None, Some(_)) => true,
                _ => false,
            };
            if is_earlier {
                mine.clone_from(theirs);
            }
        }
    }

    /// Each kind that occurred; examples count from `start_ns`.
    pub(crate) fn list(&self, errors: &LoadErrors, start_ns: u64) -> Vec<LoadFailure> {
        let tls = self.tls.min(errors.connect);
        let (framing, limit) = (self.framing, self.limit);
        let counts = [
            errors.connect - tls,
            tls,
            errors.write,
            errors.read.saturating_sub(framing + limit),
            framing,
            limit,
            errors.timeout,
            errors.status,
            errors.validation,
        ];
        let kinds = LoadFailureKind::ALL.into_iter().zip(counts);
        kinds
            .filter(|(_, count)| *count > 0)
            .map(|(kind, count)| LoadFailure {
                kind,
                count,
                first: self.first[kind.index()].clone().map(|first| {
                    let at_ns = first.at_ns.saturating_sub(start_ns);
                    LoadFailureExample { at_ns, ..first }
                }),
            })
            .collect()
    }
}

/// What kind of failure an answer is that the parser refuses.
pub(crate) fn kind_of(error: &ClientError) -> LoadFailureKind {
    match error {
        ClientError::ClosedEarly { .. } => LoadFailureKind::Read,
        ClientError::Head(
            ParseError::HeadTooLong { .. }
            | ParseError::TooManyFields { .. }
            | ParseError::TrailerTooLong { .. }
            | ParseError::BodyTooLong { .. },
        )
        | ClientError::Body(
            BodyError::TooLong { .. }
            | BodyError::ChunkExtensionTooLong { .. }
            | BodyError::TooManyTrailers { .. }
            | BodyError::TrailerTooLong { .. },
        )
        | ClientError::Pool(_) => LoadFailureKind::Limit,
        _ => LoadFailureKind::Framing,
    }
}

/// Why an answer is not taken, with the flag where one decides it.
pub(crate) fn sentence_of(error: &ClientError) -> String {
    match error {
        ClientError::Head(ParseError::HeadTooLong { limit_bytes }) => {
            format!("head over {limit_bytes} bytes, the limit of --max-response-header")
        }
        ClientError::Head(ParseError::TooManyFields { limit }) => {
            format!("head with more than {limit} fields")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the kinds add up to the failures, the earliest of all threads is the example, and bytes are escaped and
    /// bounded.
    #[test]
    fn causes_add_up_to_the_errors() {
        let mut one = FailureCauses::default();
        let bad = [b"\x16\x03\x01 \"x\"\n".as_slice(), &[b'a'; 100]].concat();
        one.note(
            LoadFailureKind::Framing,
            1_900,
            7,
            || "second".to_owned(),
            b"",
        );
        one.count(LoadFailureKind::Framing, 2);
        let mut two = FailureCauses::default();
        two.note(
            LoadFailureKind::Framing,
            1_500,
            3,
            || "first".to_owned(),
            &bad,
        );
        two.note(
            LoadFailureKind::Framing,
            1_600,
            3,
            || "later".to_owned(),
            b"",
        );
        two.count(LoadFailureKind::Framing, 1);
        two.count(LoadFailureKind::Limit, 1);
        two.count(LoadFailureKind::Read, 5);
        two.tls = 2;
        one.merge(&two);
        let errors = LoadErrors {
            connect: 3,
            read: 9,
            ..LoadErrors::default()
        };
        let list = one.list(&errors, 1_000);
        assert_eq!(
            list.iter().map(|one| one.count).sum::<u64>(),
            errors.total()
        );
        let counts: Vec<(&str, u64)> = list
            .iter()
            .map(|one| (one.kind.label(), one.count))
            .collect();
        let expected = [
            ("connect", 1),
            ("tls", 2),
            ("read", 5),
            ("framing", 3),
            ("limit", 1),
        ];
        assert_eq!(counts, expected);
        let first = list[3].first.clone().unwrap();
        assert_eq!(
            (first.at_ns, first.connection, first.what.as_str()),
            (500, 3, "first")
        );
        assert!(
            first.bytes.starts_with(r#"\x16\x03\x01 \"x\"\na"#),
            "{}",
            first.bytes
        );
        assert!(first.bytes.len() < 100);
    }
}
