//! The smallest useful service: one fixed text, for measuring everything around it.

use crate::head_text::FieldValue;
use crate::method::Method;
use crate::request::Request;
use crate::request::{READ_ONLY, answer_other_method};
use crate::response::Response;
use crate::service::{Flow, Service, ServiceContext};
use crate::status::StatusCode;

/// `GET /` and `GET /plaintext` respond with "Hello, World!".
#[derive(Clone, Copy, Debug, Default)]
pub struct Plaintext;

const TEXT_PLAIN: Option<FieldValue<'_>> = Some(FieldValue::TEXT_PLAIN);

impl Service for Plaintext {
    #[inline(always)]
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        let path = request.path();
        // Compared whole; a pattern would be matched byte by byte.
        let is_known_path = path == b"/plaintext" || path == b"/" || path == b"*";
        let is_read = matches!(request.method, Method::Get | Method::Head);
        // Out of memory leaves the response unsent, and the server responds with 503.
        let _ = match (is_known_path, is_read) {
            (true, true) => response.send(StatusCode::OK, TEXT_PLAIN, b"Hello, World!"),
            (true, false) => {
                let sentence = b"this path can only be read: use GET\n";
                return answer_other_method(request.method, response, READ_ONLY, sentence);
            }
            (false, _) => response.send(
                StatusCode::NOT_FOUND,
                TEXT_PLAIN,
                b"no such path: use / or /plaintext\n",
            ),
        };
        Flow::Done
    }

    /// They are not read, so they are not kept: waiting for a body would hold up to `body_bytes_max` of memory for each
    /// connection.
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }
}
