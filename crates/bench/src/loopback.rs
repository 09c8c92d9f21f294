//! Client and server in one process, against each other over loopback: the workload of an earlier
//! benchmark, under every allocator, with memory pools and without.
//!
//! Read in this order:
//!
//! ```text
//! run               every combination of allocator and pools, in shuffled repetitions
//!   child           one combination, in a process of its own
//!     pair          http's server shards and load's threads, pinned side by side
//!       service     what the server answers
//!       wire        the response byte for byte, before anything is timed
//!   heap            heap calls per transaction, in a pass of its own
//! record, report    what was found
//! ```
//!
//! It lies in this crate because it needs both sides of a connection and the lab's allocators; `load`
//! and `http` know nothing of each other's threads, and `lab` starts servers as processes.
//!
//! Both sides are what `millpond load` and `millpond serve` run; and both are under the allocator,
//! as they were in the earlier benchmark, so that a figure here is of a pair, never of a server.

pub mod run;
mod pair;
pub mod record;
pub mod report;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use millpond_http::{
    BodyLength, FieldName, FieldValue, Flow, Request, Response, Service, ServiceContext,
    StatusCode, WriteError,
};

pub use pair::{PairSample, PairSpec, Spread};
pub use record::LoopbackRecord;
pub use run::{LoopbackConfig, LoopbackEvent, LoopbackOutcome, run};

// The server's response, byte for byte, before anything is timed.
//
// Asked by a plain socket and compared as text: client and server are both ours, and could agree on
// the same mistake.

/// Far beyond what a response takes.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two requests in a row get the response agreed on, in one chunk; a body that is too short gets 400.
fn check(address: SocketAddr, request_bytes: usize, answer: &[u8]) -> Result<(), String> {
    for _ in 0..2 {
        let said = ask(address, request_bytes)?;
        let head_end = find(&said, b"\r\n\r\n").ok_or("its response has no head")?;
        let (head, body) = said.split_at(head_end + 4);
        let head = String::from_utf8_lossy(head);
        let is_chunked = head
            .lines()
            .any(|line| line.eq_ignore_ascii_case("transfer-encoding: chunked"));
        if !head.starts_with("HTTP/1.1 200 ") || !is_chunked {
            return Err(format!("its response is not 200 in chunks: {head}"));
        }
        if body != one_chunk(answer) {
            let body_bytes = body.len();
            return Err(format!(
                "its response is not the one agreed on: {body_bytes} bytes"
            ));
        }
    }
    let said = ask(address, request_bytes + 1)?;
    match said.starts_with(b"HTTP/1.1 400 ") {
        true => Ok(()),
        false => Err("it takes a body of another length for the one agreed on".to_owned()),
    }
}

/// The whole response to a request whose connection ends with it.
fn ask(address: SocketAddr, body_bytes: usize) -> Result<Vec<u8>, String> {
    let mut request = b"GET / HTTP/1.1\r\nHost: loopback\r\nConnection: close\r\n\
        Transfer-Encoding: chunked\r\n\r\n"
        .to_vec();
    request.extend(one_chunk(&vec![b'*'; body_bytes]));
    let talk = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&request)?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).map(|_| said)
    };
    talk().map_err(|error: std::io::Error| format!("it does not answer: {error}"))
}

/// A body of one chunk and its end; of none without bytes.
fn one_chunk(body: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    if !body.is_empty() {
        text.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
        text.extend_from_slice(body);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"0\r\n\r\n");
    text
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

// The server's side of the workload: it reads a body of known length as a whole and responds in one chunk.

/// Responds to bodies of `request_bytes` with `answer`, and to others with 400.
#[derive(Clone, Debug)]
struct Answering {
    request_bytes: usize,
    answer: Box<[u8]>,
}

impl Service for Answering {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        _context: &mut ServiceContext<'_>,
    ) -> Flow {
        // What could not be written is cut or gets 503 from the server, and is counted by the client.
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

#[cfg(test)]
#[path = "tests/wire.rs"]
mod wire_tests;
