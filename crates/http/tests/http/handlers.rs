//! Services that are one function, as a client sees them.

use crate::support::{RawClient, TestServer};
use millpond_http::{
    Handler, HandlerError, Limits, Method, Request, Response, StatusCode, WriteError,
};
use millpond_mempool::PoolError;
use std::io;

fn memory() -> PoolError {
    PoolError::OutOfMemory { requested_bytes: 1 }
}

fn answer(request: &Request<'_>, response: &mut Response<'_>) -> Result<(), HandlerError> {
    match (request.method, request.path()) {
        (Method::Get, b"/ok") => Ok(response.send(StatusCode::OK, None, b"fine")?),
        (Method::Get, b"/written") => response.send_written(StatusCode::OK, &[], |out| {
            (0..1000).try_for_each(|number| io::Write::write_fmt(out, format_args!("{number},")))
        }),
        (Method::Get, b"/refused") => {
            Err(HandlerError::response(StatusCode::CONFLICT, "not now\n"))
        }
        (Method::Get, b"/number") => {
            let text = std::str::from_utf8(request.query().unwrap_or_default())?;
            let number: u64 = text.parse()?;
            response.send_written(StatusCode::OK, &[], |out| {
                io::Write::write_fmt(out, format_args!("{}", number + 1))
            })
        }
        (Method::Get, b"/half") => {
            let length = millpond_http::BodyLength::Known(100);
            response.start(StatusCode::OK, &[], length)?;
            response.write(b"half")?;
            Err("the rest is missing".into())
        }
        (Method::Get, b"/memory") => Err(memory().into()),
        (Method::Get, b"/memory-of-write") => Err(WriteError::Memory(memory()).into()),
        (Method::Get, b"/memory-of-io") => {
            Err(io::Error::new(io::ErrorKind::OutOfMemory, memory()).into())
        }
        _ => Err(HandlerError::response(StatusCode::NOT_FOUND, "no\n")),
    }
}

fn ask(client: &mut RawClient, target: &str) -> (u16, String) {
    let response = client.ask(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    (response.status, response.text())
}

/// Goal: a function's error becomes the matching response: its own, 503 if memory ran out anywhere in the chain of
/// causes, 500 for all others, without the cause; the connection goes on.
#[test]
fn errors_become_responses() {
    let server = TestServer::with_limits(Limits::default(), |_| {
        Handler::new(|request, response| answer(request, response))
    });
    let mut client = server.connect();
    assert_eq!(ask(&mut client, "/ok"), (200, "fine".to_owned()));
    let numbers: String = (0..1000).map(|number| format!("{number},")).collect();
    assert_eq!(ask(&mut client, "/written"), (200, numbers));
    assert_eq!(ask(&mut client, "/refused"), (409, "not now\n".to_owned()));
    assert_eq!(ask(&mut client, "/number?41"), (200, "42".to_owned()));
    let failed = (500, "internal server error\n".to_owned());
    assert_eq!(ask(&mut client, "/number?x"), failed);
    assert_eq!(ask(&mut client, "/number?%FF"), failed);
    assert_eq!(ask(&mut client, "/elsewhere").0, 404);
    for target in ["/memory", "/memory-of-write", "/memory-of-io"] {
        let mut client = server.connect();
        assert_eq!(ask(&mut client, target).0, 503, "{target}");
    }
}

/// Goal: a response that was begun and cannot be completed is cut, so that the client sees it.
#[test]
fn a_begun_response_is_cut() {
    let server = TestServer::with_limits(Limits::default(), |_| {
        Handler::new(|request, response| answer(request, response))
    });
    let mut client = server.connect();
    client.send("GET /half HTTP/1.1\r\nHost: a\r\n\r\n");
    let received = client.rest();
    assert!(received.ends_with(b"half"), "{}", received.escape_ascii());
}
