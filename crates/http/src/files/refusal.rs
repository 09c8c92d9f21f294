//! Answers without a file: a redirection, or a refusal in one sentence that says what to do.

use super::path::PathRefusal;
use super::question::Question;
use super::root::OpenRefusal;
use crate::allowed_methods::{READ_ONLY, answer_other_method};
use crate::head_text::{Field, FieldName, FieldValue};
use crate::method::Method;
use crate::response::Response;
use crate::service::Flow;
use crate::status::StatusCode;
use millpond_mempool::{BlockPool, Buffer};

const TEXT_PLAIN: Option<FieldValue<'_>> = Some(FieldValue::TEXT_PLAIN);
const CONTENT_IS_TEXT: Field<'_> = (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN);

#[cold]
pub(super) fn redirect_to_directory(
    question: &Question<'_>,
    response: &mut Response<'_>,
    blocks: &BlockPool,
) {
    // The path begins with one slash, so that the location is on this server.
    let mut location = Buffer::new();
    let query = question
        .query
        .map_or([&b""[..], b""], |query| [b"?", query]);
    let is_whole = [question.path, b"/", query[0], query[1]]
        .iter()
        .all(|part| location.extend_from_slice(blocks, part).is_ok());
    if is_whole && let Ok(location) = FieldValue::new(&*location) {
        // Without memory nothing is sent, which the server answers with 503.
        let _ = response.send_with(
            StatusCode::MOVED_PERMANENTLY,
            &[CONTENT_IS_TEXT, (FieldName::LOCATION, location)],
            b"this is a directory: its name ends with a slash\n",
        );
    }
}

pub(super) fn refuse_method(method: Method, response: &mut Response<'_>) -> Flow {
    let sentence = b"files can only be read: use GET or HEAD\n";
    answer_other_method(method, response, READ_ONLY, sentence)
}

#[cold]
pub(super) fn refuse_path(refusal: PathRefusal, response: &mut Response<'_>) -> Flow {
    match refusal {
        PathRefusal::Malformed => {
            // Without memory nothing is sent, which the server answers with 503.
            let _ = response.send(
                StatusCode::BAD_REQUEST,
                TEXT_PLAIN,
                b"this path names no file: write it without . and .. segments, empty ones, and \
                  escaped slashes or zeros\n",
            );
        }
        PathRefusal::Hidden => refuse_open(OpenRefusal::NotFound, response),
        // Not answering is 503.
        PathRefusal::Memory => {}
    }
    Flow::Done
}

#[cold]
pub(super) fn refuse_open(refusal: OpenRefusal, response: &mut Response<'_>) {
    let (status, text): (StatusCode, &[u8]) = match refusal {
        OpenRefusal::NotFound => (StatusCode::NOT_FOUND, b"no such file\n"),
        OpenRefusal::Forbidden => (
            StatusCode::FORBIDDEN,
            b"the server may not read this file\n",
        ),
        OpenRefusal::Failed => (
            StatusCode::INTERNAL_SERVER_ERROR,
            b"the file cannot be read\n",
        ),
        // The server's own words: 503.
        OpenRefusal::Exhausted | OpenRefusal::NotCached => return,
    };
    // Without memory nothing is sent, which the server answers with 503.
    let _ = response.send(status, TEXT_PLAIN, text);
}
