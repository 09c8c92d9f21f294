//! Bodies far larger than any memory a server should take for them: the resident size of the
//! process, which holds server and client, stays where it is. One test, since there is one size.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[allow(dead_code, reason = "the other test program uses the rest")]
#[path = "http/support.rs"]
mod support;

use millpond_http::{
    BodyLength, Flow, Interest, LimitValues, Request, Response, Service, ServiceContext,
    StatusCode, StreamEvent,
};
use std::io::{Read, Write};
use support::{TestServer, pass_body};

/// Beyond the limit on bodies that are kept in memory, by default 64 MiB.
const BODY_BYTES: u64 = 384 << 20;
/// Additional memory allowed while such a body passes.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// Swallows uploads, makes up downloads.
struct Large;

impl Service for Large {
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        if request.path() == b"/upload" {
            return Flow::Stream(Interest::BODY);
        }
        let length = BodyLength::Known(BODY_BYTES);
        response.start(StatusCode::OK, &[], length).unwrap();
        Flow::Stream(Interest::ROOM)
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        if let StreamEvent::Body(bytes) = &event {
            assert!(bytes.iter().all(|&byte| byte == b'u'));
        }
        pass_body(&event, response, context, BODY_BYTES)
    }
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Calls `step` until the body has passed; the size is checked now and then.
fn pass(mut step: impl FnMut(u64) -> u64) {
    let (mut passed_bytes, mut next_look) = (0, BODY_BYTES / 16);
    let mut before = None;
    while passed_bytes < BODY_BYTES {
        passed_bytes += step(passed_bytes);
        if passed_bytes >= next_look {
            next_look += BODY_BYTES / 16;
            let now = resident_bytes();
            let before = *before.get_or_insert(now);
            assert!(
                now < before + GROWTH_BYTES_MAX,
                "{before} bytes resident at the start, {now} after {passed_bytes}"
            );
        }
    }
}

/// Goal: several times the memory limit goes in and comes out with a flat resident size.
#[test]
fn bodies_beyond_memory_pass_through() {
    let limits = LimitValues {
        body_bytes_max: BODY_BYTES,
        ..LimitValues::default()
    }
    .checked()
    .unwrap();
    let server = TestServer::with_limits(limits, |_| Large);
    let mut client = server.connect();
    client.send(format!(
        "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    ));
    let part = vec![b'u'; 1 << 16];
    pass(|_| {
        client.stream.write_all(&part).unwrap();
        part.len() as u64
    });
    assert_eq!(client.response().text(), BODY_BYTES.to_string());

    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut room = vec![0; 1 << 16];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        client.stream.read_exact(&mut room[..1]).unwrap();
        head.push(room[0]);
    }
    pass(|passed_bytes| {
        let left = (BODY_BYTES - passed_bytes).min(1 << 16) as usize;
        let count = client.stream.read(&mut room[..left]).unwrap();
        assert!(count > 0, "cut after {passed_bytes}");
        assert!(room[..count].iter().all(|&byte| byte == b'd'));
        count as u64
    });
    assert_eq!(
        client
            .ask("POST /upload HTTP/1.1\r\nHost: a\r\n\r\n")
            .text(),
        "0"
    );
}
