//! Answers to methods that a resource does not have (RFC 9110 9.1, 9.3.7 and 15.5.6): OPTIONS is told what it
//! has, a method that is known is refused with 405, and any other with 501.

use crate::head_text::{FieldName, FieldValue};
use crate::method::Method;
use crate::response::Response;
use crate::service::Flow;
use crate::status::StatusCode;

/// What resources have that are only read.
pub(crate) const READ_ONLY: FieldValue<'_> = FieldValue::from_static("GET, HEAD, OPTIONS");

/// Answers a request whose method is not among those that `allow` lists, OPTIONS aside. `sentence` says
/// what to do instead. Without memory nothing is sent, which the server answers with 503.
#[cold]
pub fn answer_other_method(
    method: Method,
    response: &mut Response<'_>,
    allow: FieldValue<'_>,
    sentence: &[u8],
) -> Flow {
    let content_type = (FieldName::CONTENT_TYPE, FieldValue::TEXT_PLAIN);
    let allow = (FieldName::ALLOW, allow);
    let _ = match method {
        Method::Options => response.send_with(StatusCode::NO_CONTENT, &[allow], b""),
        Method::Extension | Method::Connect => response.send_with(
            StatusCode::NOT_IMPLEMENTED,
            &[content_type, allow],
            b"this method is not known here: see Allow\n",
        ),
        _ => response.send_with(
            StatusCode::METHOD_NOT_ALLOWED,
            &[content_type, allow],
            sentence,
        ),
    };
    Flow::Done
}
