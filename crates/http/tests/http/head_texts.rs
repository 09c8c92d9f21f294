//! Texts that a program puts into a head: each public way takes checked ones alone, what is refused is
//! named, and what is accepted arrives as it was given.

use super::support::{TestServer, config, pool_mode};
use millpond_http::asynchronous::{UpstreamCall, UpstreamConversation, UpstreamError, UpstreamId};
use millpond_http::client::{ClientConfig, ExchangeWriteError, OutgoingRequest};
use millpond_http::proxy::{ProbePolicy, ProxyConfig, ProxyConfigError, ProxyControl};
use millpond_http::{
    AsyncRequest, AsyncShard, Authority, BodyLength, Client, ExchangeId, Field, FieldName,
    FieldValue, Files, FilesConfig, FilesError, Flow, Framing, HeadFields, HeadPart, HeadTextError,
    Limits, Method, Parsed, Reply, Request, RequestTarget, Response, SendError, Service,
    ServiceContext, Site, StatusCode, WriteError, encode_request, parse_request_head,
};
use millpond_io::Address;
use millpond_io::connection_pool::Target;
use millpond_mempool::{BlockPool, Buffer, PoolError, PoolMode};
use proptest::prelude::*;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

/// The bytes that end a line, or a text, for some reader.
const ENDS: [u8; 3] = [b'\r', b'\n', 0];

/// Result of each constructor for these bytes, without the value made.
fn checked(part: HeadPart, bytes: &[u8]) -> Result<(), HeadTextError> {
    match part {
        HeadPart::FieldName => FieldName::new(bytes).map(drop_text),
        HeadPart::FieldValue => FieldValue::new(bytes).map(drop_text),
        HeadPart::Target => RequestTarget::new(bytes).map(drop_text),
        HeadPart::Authority => Authority::new(bytes).map(drop_text),
        _ => panic!("a part without a constructor"),
    }
}

fn drop_text<T>(_text: T) {}

const PARTS: [(HeadPart, &str); 4] = [
    (HeadPart::FieldName, "X-Name"),
    (HeadPart::FieldValue, "some value"),
    (HeadPart::Target, "/path?query"),
    (HeadPart::Authority, "host.test:80"),
];

/// Which bytes the grammars allow, spelled out once more.
fn may_stand(part: HeadPart, byte: u8) -> bool {
    match part {
        HeadPart::FieldName => byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte),
        HeadPart::FieldValue => byte == b'\t' || (byte >= b' ' && byte != 0x7f),
        _ => byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=%[]".contains(&byte),
    }
}

/// Goal: CR, LF, NUL and every other byte outside a text's grammar are refused wherever they stand, with
/// the part, the byte and its place.
#[test]
fn no_text_has_a_byte_outside_its_grammar() {
    for (part, good) in PARTS {
        assert_eq!(checked(part, good.as_bytes()), Ok(()), "{part}");
        for byte in (0..=255).filter(|&byte| !may_stand(part, byte)) {
            for position in 0..=good.len() {
                let mut bytes = good.as_bytes().to_vec();
                bytes.insert(position, byte);
                let expected = HeadTextError::Byte {
                    part,
                    found: byte,
                    position,
                };
                assert_eq!(checked(part, &bytes), Err(expected), "{part}");
            }
        }
        for byte in ENDS {
            let sentence = checked(part, &[byte]).unwrap_err().to_string();
            let expected = format!("byte {byte:#04x} at position 0 cannot stand in a {part}");
            assert!(sentence.starts_with(&expected), "{sentence}");
        }
    }
}

/// Goal: texts of the right bytes and the wrong form are refused too.
#[test]
fn forms_are_checked() {
    use HeadPart as P;
    for (part, text, is_good) in [
        (P::FieldName, "", false),
        (P::FieldName, "content-LENGTH", false),
        (P::FieldName, "Transfer-Encoding", false),
        (P::FieldName, "host", false),
        (P::FieldName, "Content-Lengths", true),
        (P::FieldValue, "", true),
        (P::FieldValue, "\u{e4}\t ", true),
        (P::Target, "", false),
        (P::Target, "*", true),
        (P::Target, "**", false),
        (P::Target, "path", false),
        (P::Target, "host:80", false),
        (P::Target, "http://a/b?c", true),
        (P::Target, "HTTPS://a:1", true),
        (P::Target, "http://", false),
        (P::Target, "http:///b", false),
        (P::Target, "http://user@a/", false),
        (P::Target, "ftp://a/", false),
        (P::Authority, "", true),
        (P::Authority, "[::1]:80", true),
        (P::Authority, "[::1", false),
        (P::Authority, "a:b", false),
        (P::Authority, "a/b", false),
        (P::Authority, "user@a", false),
    ] {
        let found = checked(part, text.as_bytes());
        assert_eq!(found.is_ok(), is_good, "{part} {text:?}: {found:?}");
    }
    let reserved = FieldName::new("HOST").unwrap_err();
    assert_eq!(reserved, HeadTextError::Reserved { name: "Host" });
}

type Fields<'a> = &'a [Field<'a>];

fn ways_of_responses<'r>(_: PhantomData<&'r ()>) {
    type Sent = Result<(), SendError>;
    let _: fn(&mut Response<'r>, StatusCode, Option<FieldValue<'static>>, &[u8]) -> Sent =
        Response::send;
    let _: fn(&mut Response<'r>, StatusCode, Fields<'_>, &[u8]) -> Sent = Response::send_with;
    let _: fn(&mut Response<'r>, StatusCode, Fields<'_>, BodyLength) -> Sent = Response::start;
    let _: fn(&mut Response<'r>, Fields<'_>) -> Result<(), WriteError> = Response::finish_with;
}

/// Goal: each public way to put a text into a head takes it by its checked type. One that took bytes again
/// would not compile here.
#[test]
#[expect(clippy::type_complexity, reason = "the types are what is tested")]
fn each_way_takes_checked_texts() {
    ways_of_responses(PhantomData);
    let _: fn(StatusCode, FieldValue<'static>, Buffer) -> Reply = Reply::bytes;
    let _: fn(
        &mut Buffer,
        &BlockPool,
        Method,
        RequestTarget<'_>,
        Authority<'_>,
        Fields<'_>,
        &[u8],
    ) -> Result<(), PoolError> = encode_request;
    let _: fn(
        &BlockPool,
        Method,
        RequestTarget<'_>,
        Authority<'_>,
        Fields<'_>,
    ) -> Result<OutgoingRequest, PoolError> = OutgoingRequest::new;
    let _: fn(&Client, ExchangeId, Fields<'_>, &BlockPool) -> Result<(), ExchangeWriteError> =
        Client::finish;
    let _: fn(&AsyncShard, Address, Authority<'_>) -> UpstreamId = AsyncShard::add_upstream;
    let _: fn(&AsyncShard, Target, Authority<'_>) -> Result<UpstreamId, PoolError> =
        AsyncShard::add_target;
    let _: fn(
        &AsyncRequest,
        UpstreamId,
        Method,
        RequestTarget<'_>,
        Fields<'_>,
        &[u8],
    ) -> UpstreamCall = AsyncRequest::call;
    let _: fn(
        &AsyncRequest,
        UpstreamId,
        Method,
        RequestTarget<'_>,
        Fields<'_>,
        Framing,
    ) -> Result<UpstreamConversation, UpstreamError> = AsyncRequest::converse;
    let _ = (ClientConfig::default(), Files::new);
}

/// Goal: texts of a configuration are checked when it is taken.
#[test]
fn configured_texts_are_checked() {
    let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
    for byte in ENDS.map(char::from) {
        let mut upstream = super::proxy::upstream(address);
        upstream.host = format!("a{byte}b");
        let refused = ProxyControl::new(ProxyConfig::new(vec![upstream]), false, None);
        assert!(
            matches!(refused, Err(ProxyConfigError::Host { .. })),
            "{byte:?}"
        );
        let mut proxied = ProxyConfig::new(vec![super::proxy::upstream(address)]);
        proxied.probe = Some(ProbePolicy::new(format!("/a{byte}b")));
        let control = ProxyControl::new(ProxyConfig::new(proxied.upstreams.clone()), false, None);
        let refused = control.unwrap().replace(proxied.clone());
        assert!(
            matches!(refused, Err(ProxyConfigError::ProbePath(_))),
            "{byte:?}"
        );
        let refused = ProxyControl::new(proxied, false, None);
        let expected = format!(
            "the path of the probes: byte {:#04x} at position 2 cannot stand in a request target: \
             leave it out or encode it",
            u32::from(byte)
        );
        assert_eq!(refused.unwrap_err().to_string(), expected);
        let mut files = FilesConfig::new(std::env::temp_dir());
        files.cache_control = Some(format!("a{byte}b"));
        let refused = Site::open(&files, 1);
        assert!(
            matches!(refused, Err(FilesError::CacheControl { .. })),
            "{byte:?}"
        );
    }
}

fn token() -> impl Strategy<Value = String> {
    "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}"
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("a field value", |&byte| {
        may_stand(HeadPart::FieldValue, byte)
    });
    proptest::collection::vec(byte, 0..40)
}

/// The same as a receiver has it: without the white space around it.
fn trimmed(value: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !is_space(byte));
    let end = value.iter().rposition(|byte| !is_space(byte));
    match (start, end) {
        (Some(start), Some(end)) => &value[start..=end],
        _ => &[],
    }
}

type SharedFields = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Responds with the given fields, and returns the result.
struct Given {
    fields: SharedFields,
}

impl Service for Given {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        let given = self.fields.lock().unwrap();
        let checked: Result<Vec<Field<'_>>, HeadTextError> = given
            .iter()
            .map(|(name, value)| Ok((FieldName::new(name)?, FieldValue::new(value)?)))
            .collect();
        let Ok(fields) = checked else {
            response.send(StatusCode::BAD_REQUEST, None, b"").unwrap();
            return Flow::Done;
        };
        match request.path() {
            b"/whole" => {
                let sent = response.send_with(StatusCode::OK, &fields, b"body");
                sent.unwrap_or_else(|error| refuse(response, error));
            }
            b"/parts" => match response.start(StatusCode::OK, &fields, BodyLength::Unknown) {
                Ok(()) => {
                    response.write(b"body").unwrap();
                    response.finish_with(&fields).unwrap();
                }
                Err(error) => refuse(response, error),
            },
            // The received bytes are sent back unchanged and unchecked.
            b"/back" => {
                let fields: Vec<Field<'_>> = request.fields().into_iter().collect();
                response
                    .send_with(StatusCode::OK, &fields, b"body")
                    .unwrap();
            }
            b"/continue" => {
                let status = StatusCode::CONTINUE;
                let refused = response.send(status, None, b"");
                assert_eq!(refused, Err(SendError::Informational { status }));
            }
            _ => {
                response.send(StatusCode::OK, None, b"body").unwrap();
                let sent = StatusCode::OK;
                let refused = response.send(StatusCode::NOT_FOUND, None, b"again");
                assert_eq!(refused, Err(SendError::Answered { sent }));
            }
        }
        Flow::Done
    }
}

/// Nothing was sent: the service responds with the fault of its fields.
fn refuse(response: &mut Response<'_>, error: SendError) {
    assert!(matches!(
        error,
        SendError::Reserved { .. } | SendError::Repeated { .. }
    ));
    let sentence = error.to_string();
    response
        .send(StatusCode::BAD_REQUEST, None, sentence.as_bytes())
        .unwrap();
}

fn given_server() -> (TestServer, SharedFields) {
    let fields = SharedFields::default();
    let shared = Arc::clone(&fields);
    let server = TestServer::start(config(Limits::default(), pool_mode()), move |_| Given {
        fields: Arc::clone(&shared),
    });
    (server, fields)
}

/// Lines of a head or a trailer section, as name and value.
fn lines_of(head: &[u8]) -> Vec<(String, Vec<u8>)> {
    let text: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    text.iter()
        .filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            let name = String::from_utf8(line[..colon].to_vec()).unwrap();
            Some((name, trimmed(&line[colon + 1..]).to_vec()))
        })
        .collect()
}

fn names_all(fields: &[(String, Vec<u8>)], given: &[(String, Vec<u8>)]) -> bool {
    let received = |(name, value): &(String, Vec<u8>)| (name.clone(), trimmed(value).to_vec());
    let expected: Vec<(String, Vec<u8>)> = given.iter().map(received).collect();
    expected.is_empty()
        || fields
            .windows(expected.len())
            .any(|window| window == expected)
}

/// Texts that the server accepts as a [`FieldName`].
const SERVER_NAMES: [&str; 3] = ["Date", "Server", "Connection"];

/// One of these, or one of the same length, in any case.
fn server_name() -> impl Strategy<Value = String> {
    let names = SERVER_NAMES
        .into_iter()
        .chain(["ETag", "Accept", "X-Own-Name"]);
    let name = proptest::sample::select(names.collect::<Vec<_>>());
    (name, any::<bool>()).prop_map(|(name, is_lower)| match is_lower {
        true => name.to_ascii_lowercase(),
        false => name.to_owned(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Goal: fields of any checked texts arrive, and nothing else does: one response, with those lines in
    /// that order, in the head and behind the body, by the server's word and by a relay's.
    #[test]
    fn fields_arrive_as_they_were_given(
        // The test's own client reads heads as text.
        given in proptest::collection::vec((token(), "[ -~\t]{0,40}"), 0..6),
    ) {
        let given = given.into_iter().map(|(name, value)| (name, value.into_bytes()));
        let is_plain = |(name, _): &(String, Vec<u8>)| FieldName::new(name).is_ok()
            && !["connection", "expect", "date", "server"].contains(&&*name.to_ascii_lowercase());
        let given: Vec<(String, Vec<u8>)> = given.filter(is_plain).collect();
        let (server, shared) = given_server();
        shared.lock().unwrap().clone_from(&given);
        let mut client = server.connect();
        for path in ["/whole", "/parts", "/back"] {
            let mut request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n").into_bytes();
            for (name, value) in given.iter().filter(|_| path == "/back") {
                request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
            }
            request.extend(b"\r\n");
            client.send(&request);
            let response = client.response();
            prop_assert_eq!(response.status, 200);
            let fields = lines_of(response.head.as_bytes());
            prop_assert!(names_all(&fields, &given), "{:?} {:?}", fields, given);
            let (body, trailer) = response.body.split_at(4);
            prop_assert_eq!(body, b"body");
            let trailer = String::from_utf8_lossy(trailer).replace('\n', "\r\n");
            let trailer = lines_of(trailer.as_bytes());
            prop_assert_eq!(trailer.len(), if path == "/parts" { given.len() } else { 0 });
            prop_assert!(path != "/parts" || names_all(&trailer, &given), "{:?}", trailer);
            prop_assert!(fields.len() <= given.len() + 4, "{:?}", fields);
        }
    }

    /// A service's own `Date` or `Connection` stood beside the server's.
    ///
    /// Goal: whatever fields a service gives, no response has two of those that the server writes: its own `Date`
    /// and `Server` take the place of the server's, once, and the others are refused by their name.
    #[test]
    fn no_line_of_the_server_stands_twice(
        given in proptest::collection::vec((server_name(), "[a-z]{1,5}"), 0..4),
        is_old in any::<bool>(),
        closes in any::<bool>(),
    ) {
        let given: Vec<(String, Vec<u8>)> =
            given.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
        let (server, shared) = given_server();
        shared.lock().unwrap().clone_from(&given);
        let values = |fields: &[(String, Vec<u8>)], name: &str| -> Vec<Vec<u8>> {
            let found = fields.iter().filter(|field| field.0.eq_ignore_ascii_case(name));
            found.map(|field| field.1.clone()).collect()
        };
        let is_refused = !values(&given, "Connection").is_empty()
            || ["Date", "Server"].iter().any(|name| values(&given, name).len() > 1);
        for path in ["/whole", "/parts"] {
            let version = if is_old { "1.0" } else { "1.1" };
            let connection = if closes { "close" } else { "keep-alive" };
            let mut client = server.connect();
            client.send(format!(
                "GET {path} HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n"
            ));
            let response = client.response();
            prop_assert_eq!(response.status, if is_refused { 400 } else { 200 }, "{:?}", given);
            let fields = lines_of(response.head.as_bytes());
            for name in SERVER_NAMES.into_iter().chain(["Content-Length", "Transfer-Encoding"]) {
                let found = values(&fields, name);
                prop_assert!(found.len() <= 1, "{} in {}", name, response.head);
                if name == "Date" || name == "Server" {
                    prop_assert_eq!(found.len(), 1);
                    let own = values(&given, name);
                    prop_assert!(is_refused || own.is_empty() || own == found, "{}", response.head);
                }
            }
        }
    }

    /// Goal: a request of any checked texts is read as just these.
    #[test]
    fn requests_arrive_as_they_were_given(
        path in "/[A-Za-z0-9._~:/?@!$&'()*+,;=%-]{0,40}",
        host in "[a-z0-9.-]{1,20}(:[0-9]{1,5})?",
        given in proptest::collection::vec((token(), value()), 0..6),
    ) {
        let pool = BlockPool::new("test", PoolMode::Off);
        let is_plain = |(name, _): &(String, Vec<u8>)| FieldName::new(name).is_ok()
            && !["connection", "expect"].contains(&&*name.to_ascii_lowercase());
        let given: Vec<(String, Vec<u8>)> = given.into_iter().filter(is_plain).collect();
        let fields: Vec<Field<'_>> = given
            .iter()
            .map(|(name, value)| (FieldName::new(name).unwrap(), FieldValue::new(value).unwrap()))
            .collect();
        let (target, authority) = (RequestTarget::new(&path).unwrap(), Authority::new(&host).unwrap());
        let mut output = Buffer::new();
        encode_request(&mut output, &pool, Method::Post, target, authority, &fields, b"").unwrap();
        let mut found = HeadFields::new();
        let parsed = parse_request_head(&output, &Limits::default(), &mut found);
        let Ok(Parsed::Complete(head)) = parsed else {
            return Err(TestCaseError::fail(format!("{parsed:?}")));
        };
        prop_assert_eq!(head.head_bytes, output.len());
        prop_assert_eq!(head.target.of(&output), path.as_bytes());
        prop_assert_eq!(head.authority.of(&output), host.as_bytes());
        prop_assert_eq!(head.framing, Framing::Length(0));
        prop_assert_eq!(found.len(), given.len() + 2);
        prop_assert!(names_all(&lines_of(&output), &given));
    }

    /// Goal: a value is what its grammar says, byte by byte, whatever is read at once: the bytes beside
    /// the edges of the grammar, in texts shorter and longer than a word.
    #[test]
    fn values_are_judged_by_their_bytes(
        bytes in proptest::collection::vec(
            proptest::sample::select(b"a\t \x1f!\x7e\x7f\x80\x9f\xa0\xff\x00\x08\x0a\x0b\x0d".to_vec()),
            0..30,
        ),
        good in "[ -~]{0,30}",
        at in 0..30_usize,
    ) {
        let is_sound = |bytes: &[u8]| bytes.iter().all(|&byte| may_stand(HeadPart::FieldValue, byte));
        prop_assert_eq!(FieldValue::new(&bytes).is_ok(), is_sound(&bytes));
        let mut one = good.into_bytes();
        one.splice(at.min(one.len())..at.min(one.len()), bytes.first().copied());
        prop_assert_eq!(FieldValue::new(&one).is_ok(), is_sound(&one));
    }

    /// Goal: of any bytes at all, what is accepted has none that ends a line.
    #[test]
    fn whatever_is_accepted_stays_on_its_line(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        for (part, _) in PARTS {
            if checked(part, &bytes).is_ok() {
                prop_assert!(bytes.iter().all(|&byte| may_stand(part, byte)), "{}", part);
            }
        }
    }
}

/// A field value with CR LF in it went out as it was, and made two fields, or two responses, of one. Goal:
/// it is an error value, the service decides what to say, and the connection serves on.
#[test]
fn a_value_with_a_line_end_makes_no_second_answer() {
    let (server, shared) = given_server();
    let mut client = server.connect();
    for end in ["\r\n", "\r", "\n", "\0"] {
        let split = format!("a{end}Content-Length: 0{end}{end}HTTP/1.1 200 OK");
        let name = format!("X{end}Y");
        for (name, value) in [("X", split.as_str()), (&name, "a"), ("Content-Length", "3")] {
            *shared.lock().unwrap() = vec![(name.to_owned(), value.as_bytes().to_vec())];
            for path in ["/whole", "/parts"] {
                client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
                assert_eq!(client.response().status, 400, "{name:?}: {value:?}");
            }
        }
    }
    shared.lock().unwrap().clear();
    client.send(b"GET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 200);
}

/// Goal: the error names the field and the remedy.
#[test]
fn a_refused_field_is_named() {
    let (server, shared) = given_server();
    for (names, begin) in [
        (&["CONNECTION"][..], "Connection is written by the server"),
        (&["date", "Date"][..], "Date is given twice"),
        (&["Server", "Server"][..], "Server is given twice"),
    ] {
        let field = |name: &&str| ((*name).to_owned(), b"a".to_vec());
        *shared.lock().unwrap() = names.iter().map(field).collect();
        let response = server
            .connect()
            .ask("GET /whole HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(response.status, 400);
        assert!(response.text().starts_with(begin), "{}", response.text());
    }
}

/// Goal: a second response and an informational one as the response are error values: neither reaches the
/// client, and neither takes the thread down.
#[test]
fn answers_that_cannot_be_sent_are_errors() {
    let (server, _) = given_server();
    let mut client = server.connect();
    for (path, status) in [("/continue", 503), ("/twice", 200)] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        assert_eq!(client.response().status, status, "{path}");
    }
    client.send(
        b"GET /twice HTTP/1.1\r\nHost: a\r\n\r\n"
            .repeat(2)
            .as_slice(),
    );
    assert_eq!(client.response().status, 200);
    assert_eq!(client.response().status, 200);
}
