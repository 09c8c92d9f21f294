//! A service that is one function: `|request, response| -> Result<(), HandlerError>`.
//!
//! [`Handler`] is for services that respond to every request at once. Shared state is what the function captures. An
//! error becomes a response: the one given by [`HandlerError::response`], 503 where memory ran out, and 500 for any
//! other error, which is also logged (the first one, then once a minute how many there were).

use std::error::Error;
use std::fmt;

use millpond_mempool::PoolError;

use crate::head_text::FieldValue;
use crate::log::{LogLevel, Repeated};
use crate::request::Request;
use crate::response::{Response, SendError, WriteError};
use crate::service::{Flow, Service, ServiceContext};
use crate::status::StatusCode;

/// A [`Service`] that calls one function for each request, with its whole body.
///
/// ```
/// use millpond_http::{Handler, Method, StatusCode, HandlerError};
///
/// let service = Handler::new(|request, response| match (request.method, request.path()) {
///     (Method::Get, b"/") => Ok(response.send(StatusCode::OK, None, b"hello\n")?),
///     _ => Err(HandlerError::response(StatusCode::NOT_FOUND, "use GET /\n")),
/// });
/// ```
pub struct Handler<F> {
    function: F,
    failures: Repeated,
}

impl<F> fmt::Debug for Handler<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Handler").finish_non_exhaustive()
    }
}

impl<F> Handler<F>
where
    F: FnMut(&mut Request<'_>, &mut Response<'_>) -> Result<(), HandlerError>,
{
    /// The service of one shard.
    pub fn new(function: F) -> Self {
        Self {
            function,
            failures: Repeated::default(),
        }
    }

    #[cold]
    fn failed(&mut self, error: HandlerError, response: &mut Response<'_>, now_ns: u64) {
        let (status, text) = match error.0 {
            Kind::Response { status, text } => (status, text),
            // Nothing is sent, or what was begun is cut: the server does both.
            Kind::Error(error) if is_lack_of_memory(&*error) => return,
            Kind::Error(error) => {
                if let Some(told) = self.failures.add(1, now_ns) {
                    let sentence = format!("a request failed, the response is 500: {error}");
                    told.write(LogLevel::Error, "request_failed", &sentence);
                }
                let text = "internal server error\n".to_owned();
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        };
        if !response.is_sent() {
            // Without memory nothing is sent, and the server responds with 503.
            let _ = response.send(status, Some(FieldValue::TEXT_PLAIN), text.as_bytes());
        }
    }
}

impl<F> Service for Handler<F>
where
    F: FnMut(&mut Request<'_>, &mut Response<'_>) -> Result<(), HandlerError>,
{
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if let Err(error) = (self.function)(request, response) {
            self.failed(error, response, context.now_ns);
        }
        Flow::Done
    }
}

/// Why a [`Handler`]'s function has not responded. Made from any error by `?`.
pub struct HandlerError(Kind);

enum Kind {
    /// For example the client's mistake: the response it gets.
    Response {
        status: StatusCode,
        text: String,
    },
    Error(Box<dyn Error + Send + Sync>),
}

impl HandlerError {
    /// The request gets this status and text.
    #[must_use]
    pub fn response(status: StatusCode, text: impl fmt::Display) -> Self {
        let text = text.to_string();
        Self(Kind::Response { status, text })
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Response { status, text } => write!(f, "{status}: {text}"),
            Kind::Error(error) => write!(f, "{error:?}"),
        }
    }
}

// `HandlerError` is no `Error` itself, or this would cover it, too.
impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self(Kind::Error(error.into()))
    }
}

/// Whether a pool had no memory, anywhere in the chain of causes.
fn is_lack_of_memory(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let is_lack = error.is::<PoolError>()
            || matches!(error.downcast_ref(), Some(SendError::Memory(_)))
            || matches!(error.downcast_ref(), Some(WriteError::Memory(_)));
        if is_lack {
            return true;
        }
        // An I/O error shows what it carries only this way.
        next = match error.downcast_ref::<std::io::Error>() {
            Some(error) => error.get_ref().map(|error| error as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    false
}
