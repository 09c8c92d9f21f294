//! Calls of `async fn` handlers to other servers: bodies in parts both ways, redirects.

use crate::support::{RawClient, TestServer, pattern};
use millpond_http::asynchronous::{UpstreamError, UpstreamId};
use millpond_http::{
    AsyncRequest, AsyncService, AsyncShard, Authority, FieldName, FieldValue, Flow, Framing,
    LimitValues, Method, Reply, Request, RequestTarget, Response, Service, ServiceContext,
    ShardStart, StatusCode,
};
use millpond_mempool::Buffer;
use std::net::SocketAddr;

/// The upstream: sends bodies back, and redirects.
struct Asked;

impl Service for Asked {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        let to = |to: &'static str| [(FieldName::LOCATION, FieldValue::new(to).unwrap())];
        let sent = match request.path() {
            b"/moved" => response.send_with(StatusCode::MOVED_PERMANENTLY, &to("/there?a"), b""),
            b"/elsewhere" => {
                let away = to("http://other.test/");
                response.send_with(StatusCode::MOVED_PERMANENTLY, &away, b"")
            }
            b"/round" => response.send_with(StatusCode::MOVED_PERMANENTLY, &to("/round"), b""),
            b"/there" => response.send(StatusCode::OK, None, request.target().as_bytes()),
            _ => response.send(StatusCode::OK, None, request.body()),
        };
        sent.unwrap();
        Flow::Done
    }
}

const ECHO: RequestTarget<'_> = RequestTarget::from_static("/echo");
const ASKED: Authority<'_> = Authority::from_static("asked");

/// Passes the body on in parts, and the response's back.
async fn converse(
    mut request: AsyncRequest,
    upstream: UpstreamId,
) -> Result<Buffer, UpstreamError> {
    let mut conversation = request.converse(upstream, Method::POST, ECHO, &[], Framing::Chunked)?;
    while let Some(part) = request.next_part().await {
        conversation.write(&part).await?;
    }
    conversation.finish()?;
    assert_eq!(conversation.status().await?, StatusCode::OK);
    assert!(conversation.header("content-length").is_some());
    let mut body = Buffer::new();
    while let Some(part) = conversation.next_part().await? {
        body.extend_from_slice(request.blocks(), &part)?;
    }
    Ok(body)
}

async fn handle(request: AsyncRequest, upstream: UpstreamId) -> Reply {
    if request.path() == b"/converse" {
        return match converse(request, upstream).await {
            Ok(body) => Reply::bytes(StatusCode::OK, FieldValue::TEXT_PLAIN, body),
            Err(_) => Reply::text(StatusCode::BAD_GATEWAY, "failed"),
        };
    }
    let call = request.call(upstream, Method::GET, request.path_target(), &[], b"");
    match call.with_redirects(3).await {
        Ok(reply) => Reply::bytes(reply.status, FieldValue::TEXT_PLAIN, reply.body),
        Err(_) => Reply::text(StatusCode::BAD_GATEWAY, "failed"),
    }
}

fn service(start: &ShardStart, address: SocketAddr) -> impl Service + use<> {
    let shard = AsyncShard::new(start.pool_mode);
    let upstream = shard.add_upstream(address.into(), ASKED);
    AsyncService::new(start, shard, move |request| handle(request, upstream))
}

fn scene() -> (TestServer, TestServer, RawClient) {
    let limits = LimitValues {
        body_bytes_max: 64 << 20,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let asked = TestServer::to_be_gone(limits, |_| Asked);
    let address = asked.address;
    let server = TestServer::with_limits(limits, move |start| service(&start, address));
    let client = server.connect();
    (asked, server, client)
}

/// Goal: redirects on the same server are followed as often as was said; others are the handler's.
#[test]
fn redirects_are_followed_when_asked_for() {
    let (_asked, _server, mut client) = scene();
    let mut ask = |path: &str| {
        let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        (response.status, response.text())
    };
    assert_eq!(ask("/moved"), (200, "/there?a".to_owned()));
    assert_eq!(ask("/elsewhere").0, 301);
    assert_eq!(ask("/round").0, 301, "not for ever");
}

/// Goal: a body of any length is passed on in parts and comes back as it was.
#[test]
fn conversations_have_bodies_both_ways() {
    let (_asked, _server, mut client) = scene();
    for length in [0, 1, 40_000, 2_000_000] {
        let body = pattern(3, length);
        client.send(format!(
            "POST /converse HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.send(&body);
        let response = client.response();
        assert_eq!(response.status, 200, "{}", response.text());
        assert!(response.body == body, "{length} bytes came back changed");
    }
}

/// Goal: an upstream that is gone fails the call, and the handler reports it.
#[test]
fn a_call_to_nobody_fails() {
    let (asked, _server, mut client) = scene();
    let get = "GET /there HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.ask(get).text(), "/there");
    drop(asked);
    assert_eq!(client.ask(get).status, 502);
    client.send("POST /converse HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(client.response().status, 502);
}
