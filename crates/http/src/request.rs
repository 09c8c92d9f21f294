//! A request as a service gets it: borrowed parts of the received bytes, and the whole body.
//!
//! A body that a service wants in parts is not here: it comes to `Service::stream`.

use std::borrow::Cow;

use millpond_mempool::{BlockPool, Buffer, PoolError};

use crate::body_budget::BodyHold;
use crate::head::{Framing, HeadFields, RequestHead, Version};
use crate::head_text::{Authority, FieldName, FieldValue, ReceivedFields, RequestTarget};
use crate::method::Method;
use crate::response::Response;
use crate::service::Flow;
use crate::status::StatusCode;

/// A body that came in pieces or in chunks, in pooled memory.
#[derive(Debug)]
pub(crate) struct GatheredBody {
    pub(crate) buffer: Buffer,
    /// Of a large one.
    pub(crate) hold: Option<BodyHold>,
}

/// Where a complete body lies. Borrowed in either case: a request that owned one would be moved and dropped
/// with care for each of those that have none.
#[derive(Debug)]
pub(crate) enum RequestBody<'a> {
    /// In the receive buffer, behind the head.
    Received(&'a [u8]),
    Gathered(&'a mut GatheredBody),
}

/// One complete request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method; `Extension` for one without a name here, see [`Self::method_token`].
    pub method: Method,
    pub(crate) bytes: &'a [u8],
    pub(crate) head: &'a RequestHead,
    pub(crate) fields: &'a HeadFields,
    pub(crate) body: RequestBody<'a>,
}

impl<'a> Request<'a> {
    /// The method as sent.
    #[must_use]
    pub fn method_token(&self) -> &'a [u8] {
        self.head.method_token.of(self.bytes)
    }

    /// The whole target as sent.
    #[inline]
    #[must_use]
    pub fn target(&self) -> RequestTarget<'a> {
        RequestTarget::received(self.head.target.of(self.bytes))
    }

    /// [`Self::path`] as the target of another request.
    #[must_use]
    pub fn path_target(&self) -> RequestTarget<'a> {
        RequestTarget::received(self.path())
    }

    /// The path as sent, not decoded; at least `/`, or `*` for OPTIONS.
    #[inline]
    #[must_use]
    pub fn path(&self) -> &'a [u8] {
        let path = self.head.path.of(self.bytes);
        if path.is_empty() { b"/" } else { path }
    }

    /// The query after the first `?`, not decoded.
    #[inline]
    #[must_use]
    pub fn query(&self) -> Option<&'a [u8]> {
        self.head.query.map(|query| query.of(self.bytes))
    }

    /// Value of the first query parameter with this name, as sent; empty for `name` and `name=`.
    #[must_use]
    pub fn query_parameter(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.query()?.split(|&byte| byte == b'&').find_map(|pair| {
            match pair.strip_prefix(name)? {
                [] => Some(&pair[pair.len()..]),
                [b'=', value @ ..] => Some(value),
                _ => None,
            }
        })
    }

    /// All query parameters in their order, decoded as those of an HTML form: `+` is a space, and what is not UTF-8 is
    /// replaced. Allocates only for what is encoded.
    pub fn query_pairs(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        form_urlencoded::parse(self.query().unwrap_or_default())
    }

    /// Host and port the request is for; may be empty.
    #[must_use]
    pub fn authority(&self) -> Authority<'a> {
        Authority::known(self.head.authority.of(self.bytes))
    }

    /// Value of the first field with this name, compared without regard to case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.value_of(self.bytes, name.as_bytes())
    }

    /// All fields in the order they came.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + '_ {
        self.fields
            .spans()
            .iter()
            .map(|f| (f.name.of(self.bytes), f.value.of(self.bytes)))
    }

    /// The fields that can be written into another message as they are.
    #[must_use]
    pub fn fields(&self) -> ReceivedFields<'a> {
        ReceivedFields::new(self.bytes, self.fields)
    }

    /// How the end of the body is known: the framing a relay passes on.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.head.framing
    }

    /// The client's version.
    #[must_use]
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The complete body, chunks joined; empty where the service takes it in parts.
    #[inline]
    #[must_use]
    pub fn body(&self) -> &[u8] {
        match &self.body {
            RequestBody::Received(bytes) => bytes,
            RequestBody::Gathered(body) => &body.buffer,
        }
    }

    /// Whether it is a large body with a hold: see [`Self::take_held_body`].
    pub fn has_held_body(&self) -> bool {
        matches!(&self.body, RequestBody::Gathered(body) if body.hold.is_some())
    }

    /// The body to keep: a pooled one moves, one that lies in the receive buffer is copied once.
    /// The body is empty afterwards.
    pub fn take_body(&mut self, blocks: &BlockPool) -> Result<Buffer, PoolError> {
        Ok(self.take_held_body(blocks)?.0)
    }

    /// The same, with the hold of a large body on `Limits::bodies_bytes_max`: to be kept for as long as
    /// the body is.
    pub fn take_held_body(
        &mut self,
        blocks: &BlockPool,
    ) -> Result<(Buffer, Option<BodyHold>), PoolError> {
        match std::mem::replace(&mut self.body, RequestBody::Received(&[])) {
            RequestBody::Gathered(body) => Ok((std::mem::take(&mut body.buffer), body.hold.take())),
            RequestBody::Received([]) => Ok((Buffer::new(), None)),
            RequestBody::Received(bytes) => {
                let mut buffer = Buffer::with_capacity(blocks, bytes.len())?;
                buffer.append_within_capacity(bytes);
                Ok((buffer, None))
            }
        }
    }
}

// Responses to methods that a resource does not have (RFC 9110 9.1, 9.3.7 and 15.5.6): OPTIONS gets the list, a known
// method gets 405, and any other 501.

/// Methods of read-only resources.
pub(crate) const READ_ONLY: FieldValue<'_> = FieldValue::from_static("GET, HEAD, OPTIONS");

/// Responds to a request whose method `allow` does not list, also to OPTIONS. `sentence`: what to do instead. Without
/// memory nothing is sent, and the server responds with 503.
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
