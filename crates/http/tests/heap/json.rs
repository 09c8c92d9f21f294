//! The example of a JSON service, which promises that it calls no malloc.

use crate::{ROUNDS_OFF, TestServer, heap_calls, server_with, steady_heap_calls};
use millpond_mempool::PoolMode;

#[allow(dead_code, reason = "its main is the example's")]
#[path = "../../examples/json.rs"]
mod example;

/// With pools on, routes, parameters, escapes and bodies cost no heap call; with pools off they do.
pub(crate) fn json_makes_no_heap_call(rounds: usize) {
    let body = "a \"b\" \\ \n é ".repeat(500);
    let post = |body: &str| {
        let length = body.len();
        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    let get = "GET /hello/you HTTP/1.1\r\nHost: a\r\n\r\n";
    for exchange in [
        ("JSON", vec![get.as_bytes().to_vec()], 1),
        ("JSON in a pipeline", vec![get.repeat(16).into_bytes()], 16),
        ("JSON of a short body", vec![post("{}").into_bytes()], 1),
        ("JSON of a long body", vec![post(&body).into_bytes()], 1),
    ] {
        let server = |mode| -> TestServer { server_with(mode, |_| example::Json::new().unwrap()) };
        let on = server(PoolMode::On);
        let calls = steady_heap_calls(&mut on.connect(), &exchange, rounds);
        assert_eq!(calls, 0, "{}", exchange.0);
        let off = server(PoolMode::Off);
        let calls = heap_calls(&mut off.connect(), &exchange, ROUNDS_OFF);
        assert!(calls >= ROUNDS_OFF as u64, "{}: {calls}", exchange.0);
    }
}
