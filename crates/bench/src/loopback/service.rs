//! The server's side of the workload: a body of known length is taken whole and answered in one chunk.
//!
//! On the path: `pair` makes one for each shard. Absent on purpose: routes. Whatever is asked gets the
//! answer; only the length of what was sent is looked at, so that a body that is lost on the way fails.

use millpond_http::{
    BodyLength, FieldName, FieldValue, Flow, Request, Response, Service, ServiceContext,
    StatusCode, WriteError,
};

/// Answers bodies of `request_bytes` with `answer`, and others with 400.
#[derive(Clone, Debug)]
pub(super) struct Answering {
    pub(super) request_bytes: usize,
    pub(super) answer: Box<[u8]>,
}

impl Service for Answering {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        // What could not be written is cut or answered 503 by the server, and counted by the client.
        let _ = if request.body().len() == self.request_bytes {
            in_one_chunk(response, &self.answer)
        } else {
            let refused = response.send(StatusCode::BAD_REQUEST, None, b"not the body agreed on\n");
            refused.map_err(WriteError::from)
        };
        Flow::Done
    }
}

fn in_one_chunk(response: &mut Response<'_>, answer: &[u8]) -> Result<(), WriteError> {
    const XML: FieldValue<'_> = FieldValue::from_static("text/xml");
    let fields = &[(FieldName::CONTENT_TYPE, XML)];
    response.start(StatusCode::OK, fields, BodyLength::Unknown)?;
    response.write(answer)?;
    response.finish()
}
