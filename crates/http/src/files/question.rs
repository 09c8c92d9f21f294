//! What a request asks of the files, whether its head is still there or was copied to wait.

use super::path::FilePath;
use crate::method::Method;
use crate::request::Request;
use millpond_mempool::{BlockPool, Buffer, PoolError};

/// A request for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) file: FilePath<'a>,
    /// Path and query as sent, for a redirection.
    pub(super) path: &'a [u8],
    pub(super) query: Option<&'a [u8]>,
    pub(super) is_get: bool,
}

/// A question that waits, with the fields that decide about its answer.
#[derive(Debug)]
pub(super) struct KeptQuestion {
    /// Name, path, query, then one line for each field.
    text: Buffer,
    name_bytes: usize,
    path_bytes: usize,
    query_bytes: Option<usize>,
    is_index: bool,
    is_get: bool,
}

fn decides(name: &[u8]) -> bool {
    [
        "range",
        "if-range",
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
    ]
    .iter()
    .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

impl KeptQuestion {
    pub(super) fn keep(
        question: &Question<'_>,
        request: &Request<'_>,
        blocks: &BlockPool,
    ) -> Result<Self, PoolError> {
        let mut text = Buffer::new();
        let query = question.query.unwrap_or_default();
        for part in [question.file.relative, question.path, query] {
            text.extend_from_slice(blocks, part)?;
        }
        for (name, value) in request.headers().filter(|(name, _)| decides(name)) {
            // Neither has a line feed in it, and a name has no colon: the parser saw to that.
            for part in [name, b":", value, b"\n"] {
                text.extend_from_slice(blocks, part)?;
            }
        }
        Ok(Self {
            text,
            name_bytes: question.file.relative.len(),
            path_bytes: question.path.len(),
            query_bytes: question.query.map(<[u8]>::len),
            is_index: question.file.is_index,
            is_get: question.is_get,
        })
    }

    pub(super) fn question(&self) -> Question<'_> {
        let (name, rest) = self.text.split_at(self.name_bytes);
        let (path, rest) = rest.split_at(self.path_bytes);
        Question {
            file: FilePath {
                relative: name,
                is_index: self.is_index,
            },
            path,
            query: self.query_bytes.map(|query_bytes| &rest[..query_bytes]),
            is_get: self.is_get,
        }
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let start = self.name_bytes + self.path_bytes + self.query_bytes.unwrap_or(0);
        self.text[start..]
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let colon = memchr::memchr(b':', line)?;
                Some((&line[..colon], &line[colon + 1..]))
            })
    }
}

impl<'a> Question<'a> {
    pub(super) fn new(file: FilePath<'a>, request: &Request<'a>) -> Self {
        Self {
            file,
            path: request.path(),
            query: request.query(),
            is_get: request.method == Method::Get,
        }
    }
}
