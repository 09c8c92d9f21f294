//! Routes and status codes: the requests and their possible responses.
//!
//! On the path: `handler` asks [`route`] first, acts on the response, then sends one [`Reply`].
//! ```text
//! GET    /v0/entity?id=ID   200 value, 404
//! PUT    /v0/entity?id=ID   201; &expires=SECONDS or Expires: ends it, as Entity-Expires tells; Content-Type is kept
//! DELETE /v0/entity?id=ID   202, also for an absent entity
//! GET    /v0/entities?start=ID[&end=ID]   200, one chunk <id>\n<value> for each entity, or a line of JSON (`ndjson`);
//!                           after=ID instead of start= for what follows it, &limit=N
//! GET    /openapi.json      200, all of this for programs
//! PUT    /v0/admin/checkpoint?name=NAME   201, 409: a copy of the data beside it, while it is served
//! PUT    /v0/admin/flush|compact   200 when it is done, 503 while another one is
//! GET    /v0/status         200, or 503 once writes are refused, 507 while the disk is full
//! ```
//! Values carry an ETag, and caches must revalidate them; If-Match and If-None-Match make 412, and 304 for reads. All
//! about entities take replicas=ACK/FROM: 504 if fewer copies than that responded in time. With configured tokens, 401
//! without one of them, and 403 for a write with one for reading. A read-only server responds with 403 to all writes;
//! one with configured names, with 421 to requests for others. Unsupported parts that would change a request's meaning
//! are refused (`strictness`): 400, 411, 412, 415. HEAD is allowed wherever GET is. Everywhere: 400 for a missing,
//! empty or malformed id and for an unknown path, 405 for another method, 501 for an unknown one, 204 to OPTIONS, 503
//! when the store cannot, 507 for writes without room. Sizes are `http`'s (413, 414, 431). There is no content
//! negotiation: it is opaque bytes under the type it was put with.

use std::io::Write as _;

use millpond_http::{
    BodyLength, Field, FieldName, FieldValue, Method, Request, Response, SendError, StatusCode,
    answer_other_method,
};

use crate::access::{AccessRefusal, Right};
use crate::condition::ExpiryError;
use crate::condition::ReplicasError;
use crate::condition::{self, Condition, ConditionError, ReadVerdict, TAG_BYTES};
use crate::key::KeyError;
use crate::monitor::Upkeep;
use crate::range::{RangeFormat, RangeQuery};
use crate::record::{CONTENT_TYPE_BYTES_MAX, Head, Value, Version};

const TEXT: FieldValue<'_> = FieldValue::from_static("text/plain; charset=utf-8");
const CONTENT_IS_TEXT: Field<'_> = (FieldName::CONTENT_TYPE, TEXT);
const READ_AND_WRITE: FieldValue<'_> = FieldValue::from_static("GET, HEAD, PUT, DELETE, OPTIONS");
const READ: FieldValue<'_> = FieldValue::from_static("GET, HEAD, OPTIONS");
const WRITE: FieldValue<'_> = FieldValue::from_static("PUT, OPTIONS");
const CONTENT_ENCODING: FieldName<'_> = FieldName::from_static("Content-Encoding");
const CONTENT_TYPE_OPTIONS: FieldName<'_> = FieldName::from_static("X-Content-Type-Options");
const NO_SNIFF: FieldValue<'_> = FieldValue::from_static("nosniff");
/// When an entity ends. Not `Expires`, by which caches would serve it until then, whatever became of it.
const ENTITY_EXPIRES: FieldName<'_> = FieldName::from_static("Entity-Expires");
/// On every response to a read, also 404: any of them may be outdated a moment later, and caches keep responses without
/// it (haproxy for a minute, where there is an `ETag`; nginx for as long as `proxy_cache_valid` says).
pub(crate) const UNCACHED: Field<'_> = (
    FieldName::CACHE_CONTROL,
    FieldValue::from_static("no-cache"),
);
const ONE_SECOND: FieldValue<'_> = FieldValue::from_static("1");
const TEN_SECONDS: FieldValue<'_> = FieldValue::from_static("10");

/// The operation of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route<'a> {
    /// Is the server able to read and write?
    Status,
    /// Read the entity whose encoded id this is.
    Get(&'a [u8]),
    /// Set it to the request's body.
    Put(&'a [u8]),
    /// Remove it.
    Delete(&'a [u8]),
    /// Read all entities from one encoded id to another.
    Range(RangeQuery<'a>),
    /// Copy the data into a new directory of this name.
    Checkpoint(&'a [u8]),
    /// Write out what lies in memory, or merge all tables.
    Upkeep(Upkeep),
    /// The description of all this.
    OpenApi,
    /// The metrics, which the server itself returns where they may be read: an unknown path here.
    Metrics,
    /// Nothing; this is the response.
    Refuse(Reply),
}

/// Routes as metrics name them, by [`Route::metric_index`].
pub(crate) const ROUTE_NAMES: [&str; 7] = [
    "other",
    "GET /v0/entity",
    "PUT /v0/entity",
    "DELETE /v0/entity",
    "GET /v0/entities",
    "GET /v0/status",
    "PUT /v0/admin",
];

impl Route<'_> {
    /// Where it is in [`ROUTE_NAMES`].
    pub(crate) fn metric_index(&self) -> u8 {
        match self {
            Self::OpenApi | Self::Metrics | Self::Refuse(_) => 0,
            Self::Get(_) => 1,
            Self::Put(_) => 2,
            Self::Delete(_) => 3,
            Self::Range(_) => 4,
            Self::Status => 5,
            Self::Checkpoint(_) | Self::Upkeep(_) => 6,
        }
    }

    /// Conditions for serving the request; empty for operations without an entity.
    #[must_use]
    pub fn right(&self) -> Option<Right> {
        match self {
            Self::Get(_) | Self::Range(_) | Self::Metrics => Some(Right::Read),
            Self::Put(_) | Self::Delete(_) | Self::Checkpoint(_) | Self::Upkeep(_) => {
                Some(Right::Write)
            }
            Self::Status | Self::OpenApi | Self::Refuse(_) => None,
        }
    }
}

/// A path that is known, and has no such method.
fn other_method<'a>(request: &Request<'a>, allow: FieldValue<'static>) -> Route<'a> {
    let method = request.method;
    Route::Refuse(Reply::OtherMethod { method, allow })
}

fn upkeep<'a>(request: &Request<'a>, upkeep: Upkeep) -> Route<'a> {
    match request.method {
        Method::Put => Route::Upkeep(upkeep),
        _ => other_method(request, WRITE),
    }
}

/// Sorts a request. The id is still encoded.
#[must_use]
pub fn route<'a>(request: &Request<'a>) -> Route<'a> {
    match request.path() {
        b"/v0/entity" => {
            let with_id: fn(&'a [u8]) -> Route<'a> = match request.method {
                Method::Get | Method::Head => Route::Get,
                Method::Put => Route::Put,
                Method::Delete => Route::Delete,
                _ => return other_method(request, READ_AND_WRITE),
            };
            match request.query_parameter(b"id") {
                Some(encoded) => with_id(encoded),
                None => Route::Refuse(Reply::MissingId),
            }
        }
        b"/v0/entities" => match request.method {
            Method::Get | Method::Head => {
                RangeQuery::of(request).map_or_else(Route::Refuse, Route::Range)
            }
            _ => other_method(request, READ),
        },
        b"/v0/status" => match request.method {
            Method::Get | Method::Head => Route::Status,
            _ => other_method(request, READ),
        },
        // Not POST, which a web page may send to any server of its reader's machine without asking.
        b"/v0/admin/checkpoint" => match request.method {
            Method::Put => Route::Checkpoint(request.query_parameter(b"name").unwrap_or_default()),
            _ => other_method(request, WRITE),
        },
        b"/v0/admin/flush" => upkeep(request, Upkeep::Flush),
        b"/v0/admin/compact" => upkeep(request, Upkeep::Compact),
        // Of the server as a whole, which only OPTIONS may ask for.
        b"*" => other_method(request, READ_AND_WRITE),
        b"/metrics" => Route::Metrics,
        b"/openapi.json" => match request.method {
            Method::Get | Method::Head => Route::OpenApi,
            _ => other_method(request, READ),
        },
        _ => Route::Refuse(Reply::UnknownPath),
    }
}

/// Every response but a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply {
    /// 200: ready.
    Ready,
    /// 200: ready, and a thread of the store has panicked since the start.
    ReadyAfterPanic,
    /// 200: reads are possible; writes were not to be.
    ReadyToRead,
    /// 421: a name that is none of the server's.
    OtherHost,
    /// 403: a write to a server that only reads.
    ReadsOnly,
    /// 404.
    NotFound,
    /// 201: the put is durable, as this version.
    Created(Version),
    /// 202: the delete is durable.
    Accepted,
    /// 400: none of the paths above.
    UnknownPath,
    /// 400: no `id` in the query.
    MissingId,
    /// 400: a range read with neither start nor after, or with both.
    MissingStart,
    /// 400: a limit that is no number, or 0.
    BadLimit,
    /// 400: an id that is none.
    BadId(KeyError),
    /// 400: an If-Match or If-None-Match that is none.
    BadCondition(ConditionError),
    /// 400: an end that is none.
    BadExpiry(ExpiryError),
    /// 400: not as many copies as there are.
    BadReplicas(ReplicasError),
    /// 400: a Content-Type too long to keep.
    LongContentType,
    /// 400: a query parameter that is unknown or comes twice.
    BadParameter,
    /// 400: a field of which only one counts.
    DoubledField,
    /// 400: a part of a value.
    PartialValue,
    /// 413: a value longer than the server takes, which was not announced.
    TooLarge,
    /// 408: others wait for the memory that a value takes which comes too slowly.
    TooSlow,
    /// 411: a PUT without a body's length.
    NoLength,
    /// 415: a Content-Encoding that cannot be kept.
    BadEncoding,
    /// 412: a condition on a date, and entities have none.
    NoDates,
    /// 412: another version is there than the request depends on.
    PreconditionFailed,
    /// Methods that the path does allow: 204 to OPTIONS, 405 to another method, 501 to an unknown one.
    OtherMethod {
        /// The request's.
        method: Method,
        /// The `Allow` field.
        allow: FieldValue<'static>,
    },
    /// 401, or 403 for a token with fewer rights.
    NotAllowed(AccessRefusal),
    /// 503: too much waits; the same request may succeed later.
    Overloaded,
    /// 507: the disk has no room; once it has, the same request may succeed.
    NoRoom,
    /// 503: a commit failed; no write will succeed until a restart.
    WritesRefused,
    /// 503: the engine is short of something, or is opened again; the same request may succeed soon.
    Paused,
    /// 503: the engine could not read.
    ReadFailed,
    /// 504: the cluster may have the newest value, but not enough copies responded to be sure.
    TooFewReplicas,
    /// 504: fewer copies than requested have confirmed the write; it may be done.
    Unknown,
    /// 500: the cluster rejects the write; the reason is in the log.
    Rejected,
    /// 501: the keyspace was made without them.
    NoConditions,
    /// 503: no node of the cluster is connected.
    Unreachable,
    /// 201: the copy is complete.
    CheckpointMade,
    /// 200: the flush or the compaction is complete.
    UpkeepDone,
    /// 503: another one is under way.
    UpkeepBusy,
    /// 403: no directory for them is configured.
    NoCheckpoints,
    /// 400: not a plain name.
    BadName,
    /// 409: there is something of that name.
    NotNew,
    /// 500: the reason is in the log.
    CheckpointFailed,
}

impl Reply {
    /// The responses that are no more than a sentence.
    const fn sentence(self) -> Option<(StatusCode, &'static str)> {
        Some(match self {
            Self::Ready => (StatusCode::OK, "ready\n"),
            Self::ReadyAfterPanic => (
                StatusCode::OK,
                "ready, but a thread of the store has panicked and was started again: the log says where\n",
            ),
            Self::ReadyToRead => (StatusCode::OK, "ready, for reads alone (--read-only)\n"),
            Self::OtherHost => (
                StatusCode::MISDIRECTED_REQUEST,
                "this server is not asked under that name: use one of its --allowed-hosts, its address, or localhost\n",
            ),
            Self::ReadsOnly => (
                StatusCode::FORBIDDEN,
                "this server was started with --read-only: send writes to one that was not\n",
            ),
            Self::UnknownPath => (
                StatusCode::BAD_REQUEST,
                "unknown path: use /v0/entity?id=ID, /v0/entities?start=ID or /v0/status\n",
            ),
            Self::MissingId => (StatusCode::BAD_REQUEST, "no id: use /v0/entity?id=ID\n"),
            Self::MissingStart => (
                StatusCode::BAD_REQUEST,
                "a range begins either at an id or behind one: use /v0/entities?start=ID or /v0/entities?after=ID\n",
            ),
            Self::BadLimit => (
                StatusCode::BAD_REQUEST,
                "bad limit: use limit=N, a whole number from 1 on\n",
            ),
            Self::BadParameter => (
                StatusCode::BAD_REQUEST,
                "a query parameter is unknown or comes twice: an entity takes id, replicas and, put, expires; a range \
                 start or after, end, limit and replicas; a checkpoint name\n",
            ),
            Self::DoubledField => (
                StatusCode::BAD_REQUEST,
                "Authorization, Content-Type and Expires may each come once\n",
            ),
            Self::PartialValue => (
                StatusCode::BAD_REQUEST,
                "a part of a value cannot be put: send all of it, without Content-Range\n",
            ),
            Self::TooLarge => (
                StatusCode::CONTENT_TOO_LARGE,
                "the value is longer than the server takes (--max-value)\n",
            ),
            Self::TooSlow => (
                StatusCode::REQUEST_TIMEOUT,
                "the value came too slowly, and others wait for the memory that it takes: send it again\n",
            ),
            Self::NoLength => (
                StatusCode::LENGTH_REQUIRED,
                "a PUT takes Content-Length or Transfer-Encoding: chunked; Content-Length: 0 puts an empty value\n",
            ),
            Self::BadEncoding => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "a Content-Encoding comes once, as a list of codings of at most 64 bytes\n",
            ),
            Self::NoDates => (
                StatusCode::PRECONDITION_FAILED,
                "entities have no dates: make the write depend on an ETag, by If-Match\n",
            ),
            _ => return self.outcome_sentence(),
        })
    }

    /// The same, of what was done or failed; the others are about the request.
    const fn outcome_sentence(self) -> Option<(StatusCode, &'static str)> {
        Some(match self {
            Self::PreconditionFailed => (
                StatusCode::PRECONDITION_FAILED,
                "another version is there: read it, then try again with its ETag\n",
            ),
            Self::WritesRefused => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the store failed to make a write durable: writes are refused until a restart\n",
            ),
            Self::CheckpointMade => (StatusCode::CREATED, "complete\n"),
            Self::UpkeepDone => (StatusCode::OK, "complete\n"),
            Self::NoCheckpoints => (
                StatusCode::FORBIDDEN,
                "checkpoints are off: start the server with --checkpoints DIR\n",
            ),
            Self::BadName => (
                StatusCode::BAD_REQUEST,
                "bad name: use name=NAME of 1 to 64 letters, digits, - _ and .\n",
            ),
            Self::NotNew => (
                StatusCode::CONFLICT,
                "there is a checkpoint of that name: use another one, or remove it\n",
            ),
            Self::CheckpointFailed => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "it failed: the server's log says why\n",
            ),
            Self::TooFewReplicas => (
                StatusCode::GATEWAY_TIMEOUT,
                "fewer copies answered than were asked for: try again, or ask for fewer with \
                 replicas=ACK/FROM\n",
            ),
            Self::Unknown => (
                StatusCode::GATEWAY_TIMEOUT,
                "fewer copies answered than were asked for: it may have been done or not; read it, \
                 or send it again\n",
            ),
            Self::Rejected => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "the cluster refused the write: the server's log says why\n",
            ),
            Self::NoConditions => (
                StatusCode::NOT_IMPLEMENTED,
                "writes with If-Match or If-None-Match are off: they take a keyspace that was made \
                 with conditions=on\n",
            ),
            Self::Unreachable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "no node of the cluster answers\n",
            ),
            Self::ReadFailed => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the store failed to read the entity\n",
            ),
            _ => return None,
        })
    }

    /// Sends it.
    ///
    /// # Errors
    /// When there is no memory for the response; nothing was sent then.
    pub fn send(self, response: &mut Response<'_>) -> Result<(), SendError> {
        match self {
            Self::NotFound => response.send_with(StatusCode::NOT_FOUND, &[UNCACHED], b""),
            Self::Created(version) => response.send_with(
                StatusCode::CREATED,
                &[(FieldName::ETAG, tag_value(&condition::tag(version)))],
                b"",
            ),
            Self::Accepted => response.send(StatusCode::ACCEPTED, None, b""),
            Self::BadId(error) => bad_request(response, &error),
            Self::BadCondition(error) => bad_request(response, &error),
            Self::BadExpiry(error) => bad_request(response, &error),
            Self::BadReplicas(error) => bad_request(response, &error),
            Self::LongContentType => bad_request(
                response,
                &format_args!("a Content-Type has {CONTENT_TYPE_BYTES_MAX} bytes at most"),
            ),
            Self::OtherMethod { method, allow } => {
                answer_other_method(method, response, allow, b"not with this method: see Allow\n");
                Ok(())
            }
            Self::NotAllowed(refusal) => not_allowed(response, refusal),
            Self::Overloaded => response.send_with(
                StatusCode::SERVICE_UNAVAILABLE,
                &[CONTENT_IS_TEXT, UNCACHED, (FieldName::RETRY_AFTER, ONE_SECOND)],
                b"too many requests wait for the store: try again later\n",
            ),
            Self::UpkeepBusy => response.send_with(
                StatusCode::SERVICE_UNAVAILABLE,
                &[CONTENT_IS_TEXT, UNCACHED, (FieldName::RETRY_AFTER, TEN_SECONDS)],
                b"a checkpoint, a flush or a compaction is under way: wait for it\n",
            ),
            Self::Paused => response.send_with(
                StatusCode::SERVICE_UNAVAILABLE,
                &[CONTENT_IS_TEXT, UNCACHED, (FieldName::RETRY_AFTER, ONE_SECOND)],
                b"the store is short of descriptors, memory or room, and goes on by itself: try again later\n",
            ),
            Self::NoRoom => response.send_with(
                StatusCode::INSUFFICIENT_STORAGE,
                &[CONTENT_IS_TEXT, UNCACHED, (FieldName::RETRY_AFTER, TEN_SECONDS)],
                b"the disk has no room for it: make some, and writes go on by themselves\n",
            ),
            _ => match self.sentence() {
                Some((status, sentence)) => text(response, status, sentence),
                // Nothing is sent, and the server responds with 503.
                None => Ok(()),
            },
        }
    }
}

/// `tests/openapi.rs` produces every response described there, and no other.
const OPENAPI: &[u8] = include_bytes!("openapi.json");

/// Sends the description.
///
/// # Errors
/// When there is no memory for the response; nothing was sent then.
pub fn send_openapi(response: &mut Response<'_>) -> Result<(), SendError> {
    response.send(StatusCode::OK, Some(FieldValue::JSON), OPENAPI)
}

/// Sends the head of a range's response, for HEAD.
///
/// # Errors
/// When there is no memory for the response; nothing was sent then.
pub fn send_range_head(response: &mut Response<'_>, format: RangeFormat) -> Result<(), SendError> {
    response.start(StatusCode::OK, &format.fields(), BodyLength::Unknown)
}

/// Result of a read that found a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// The response is written.
    Whole,
    /// It is not: this is for the caller to send.
    Reply(Reply),
    /// It is not: the value is in parts, and has to be read (`downloads`).
    Parted,
}

/// Responds to a read with the record found. HEAD, and a version the client already has, need no value.
///
/// # Errors
/// When there is no memory for the response; nothing was sent then.
pub fn send_record(
    response: &mut Response<'_>,
    record: &[u8],
    condition: &Condition,
) -> Result<Sent, SendError> {
    let Ok((head, value)) = Head::split(record) else {
        return Ok(Sent::Reply(Reply::ReadFailed));
    };
    if head.is_expired() {
        return Ok(Sent::Reply(Reply::NotFound));
    }
    match (condition.of_read(head.version), value) {
        (ReadVerdict::Value, Value::Whole(value)) => with_fields(&head, Shown::All, |fields| {
            response.send_with(StatusCode::OK, fields, value)
        })?,
        (ReadVerdict::Value, Value::Parted(_)) if response.sends_body() => {
            return Ok(Sent::Parted);
        }
        (ReadVerdict::Value, Value::Parted(extent)) => {
            let length = BodyLength::Known(extent.value_bytes);
            with_fields(&head, Shown::All, |fields| {
                response.start(StatusCode::OK, fields, length)
            })?;
        }
        (ReadVerdict::NotModified, _) => with_fields(&head, Shown::Validators, |fields| {
            response.send_with(StatusCode::NOT_MODIFIED, fields, b"")
        })?,
        (ReadVerdict::Failed, _) => return Ok(Sent::Reply(Reply::PreconditionFailed)),
    }
    Ok(Sent::Whole)
}

/// Begins the response with a value in parts, which the caller writes behind it.
///
/// # Errors
/// When there is no memory for the response; nothing was sent then.
pub fn start_parted(response: &mut Response<'_>, record: &[u8]) -> Result<(), SendError> {
    match Head::split(record) {
        Ok((head, Value::Parted(extent))) => {
            let length = BodyLength::Known(extent.value_bytes);
            with_fields(&head, Shown::All, |fields| {
                response.start(StatusCode::OK, fields, length)
            })
        }
        // Nothing is sent, and the server responds with 503.
        Ok((_, Value::Whole(_))) | Err(_) => Ok(()),
    }
}

/// How a response with a record began.
pub enum Started {
    /// With a head; the value is to be written behind it.
    Value,
    /// It is complete.
    Whole,
    /// It did not: this is for the caller to send.
    Reply(Reply),
}

/// Like [`send_record`], but for the value, which the caller writes part by part.
///
/// # Errors
/// When there is no memory for the response; nothing was sent then.
pub fn start_record(
    response: &mut Response<'_>,
    record: &[u8],
    condition: &Condition,
) -> Result<Started, SendError> {
    // One in parts is short.
    let Ok((head, Value::Whole(value))) = Head::split(record) else {
        return Ok(Started::Reply(Reply::ReadFailed));
    };
    let is_sent = matches!(condition.of_read(head.version), ReadVerdict::Value);
    if head.is_expired() || !is_sent {
        return Ok(match send_record(response, record, condition)? {
            Sent::Reply(reply) => Started::Reply(reply),
            Sent::Whole | Sent::Parted => Started::Whole,
        });
    }
    let length = BodyLength::Known(value.len() as u64);
    with_fields(&head, Shown::All, |fields| {
        response.start(StatusCode::OK, fields, length)
    })?;
    Ok(Started::Value)
}

/// The bytes of a record after its head.
#[must_use]
pub fn value_of(record: &[u8]) -> &[u8] {
    match Head::split(record) {
        Ok((_, Value::Whole(value))) => value,
        Ok((_, Value::Parted(_))) | Err(_) => &[],
    }
}

/// Which fields of a value a response has.
#[derive(Clone, Copy)]
enum Shown {
    /// Type, encoding and tag, and its end if it has one.
    All,
    /// The same without what is about the value, which the client has.
    Validators,
}

/// Hands over the fields of a value's response.
fn with_fields<R>(head: &Head<'_>, shown: Shown, see: impl FnOnce(&[Field<'_>]) -> R) -> R {
    let tag = condition::tag(head.version);
    let mut date = [0; DATE_BYTES];
    let content_type = match head.content_type {
        [] => FieldValue::OCTET_STREAM,
        // The disk may have changed what a request has stored.
        given => FieldValue::new(given).unwrap_or(FieldValue::OCTET_STREAM),
    };
    let encoding = FieldValue::new(head.content_encoding).unwrap_or(FieldValue::EMPTY);
    let fields = [
        (CONTENT_ENCODING, encoding),
        (FieldName::CONTENT_TYPE, content_type),
        // The type is the one stored with the value: browsers must not guess another one.
        (CONTENT_TYPE_OPTIONS, NO_SNIFF),
        (FieldName::ETAG, tag_value(&tag)),
        UNCACHED,
        (ENTITY_EXPIRES, date_value(head.expires_ms, &mut date)),
    ];
    let start = match shown {
        Shown::Validators => 3,
        Shown::All if head.content_encoding.is_empty() => 1,
        Shown::All => 0,
    };
    match head.expires_ms {
        0 => see(&fields[start..5]),
        _ => see(&fields[start..]),
    }
}

/// An HTTP date.
const DATE_BYTES: usize = 29;

fn date_value(expires_ms: u64, room: &mut [u8; DATE_BYTES]) -> FieldValue<'_> {
    if expires_ms == 0 {
        return FieldValue::EMPTY;
    }
    // All dates are as long as the room.
    let _ = write!(&mut room[..], "{}", condition::date_of(expires_ms));
    FieldValue::new(room).unwrap_or(FieldValue::EMPTY)
}

/// Digits in quotes, which every field can have.
fn tag_value(tag: &[u8; TAG_BYTES]) -> FieldValue<'_> {
    FieldValue::new(tag).unwrap_or(FieldValue::EMPTY)
}

fn not_allowed(response: &mut Response<'_>, refusal: AccessRefusal) -> Result<(), SendError> {
    let (status, sentence) = match refusal {
        AccessRefusal::NoToken => (
            StatusCode::UNAUTHORIZED,
            "this takes a token: send Authorization: Bearer TOKEN\n",
        ),
        AccessRefusal::UnknownToken => (
            StatusCode::UNAUTHORIZED,
            "this token is not among the server's\n",
        ),
        AccessRefusal::OnlyReads => (
            StatusCode::FORBIDDEN,
            "this token is for reading: use one for writing\n",
        ),
    };
    let fields = [
        CONTENT_IS_TEXT,
        UNCACHED,
        (FieldName::WWW_AUTHENTICATE, refusal.challenge()),
    ];
    response.send_with(status, &fields, sentence.as_bytes())
}

fn text(response: &mut Response<'_>, status: StatusCode, text: &str) -> Result<(), SendError> {
    response.send_with(status, &[CONTENT_IS_TEXT, UNCACHED], text.as_bytes())
}

/// The error's sentence, formatted on the stack: a client that errs must not cost heap calls.
fn bad_request(
    response: &mut Response<'_>,
    error: &dyn std::fmt::Display,
) -> Result<(), SendError> {
    let mut sentence = [0; 160];
    let mut left = &mut sentence[..];
    // The longest sentence fits with any offset; a cut one would still be a response.
    let _ = writeln!(left, "{error}");
    let len = 160 - left.len();
    response.send(StatusCode::BAD_REQUEST, Some(TEXT), &sentence[..len])
}
