//! The same with an access log: its copies in a shard do not come from malloc either.

use crate::support::{TestServer, config};
use crate::{Exchange, IS_COUNTED, InParts, Store, exchanges, exchanges_in_parts};
use crate::{go_round_service, steady_heap_calls};
use millpond_http::{
    AccessLogConfig, AccessLogFormat, AccessLogTarget, Limits, Plaintext, ServeConfig, Service,
    ShardStart,
};
use millpond_mempool::PoolMode;

fn assert_no_heap_call<S: Service>(
    exchange: &Exchange,
    rounds: usize,
    make: impl Fn(&ShardStart) -> S + Send + Sync + 'static,
) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("access.log");
    let access_log = AccessLogConfig {
        format: AccessLogFormat::Json,
        ..AccessLogConfig::new(AccessLogTarget::File(path.clone()))
    };
    let config = ServeConfig {
        access_log: Some(access_log),
        ..config(Limits::default(), PoolMode::On)
    };
    let server = TestServer::start(config, move |start| {
        // Called on the shard's thread.
        IS_COUNTED.set(true);
        make(&start)
    });
    let (name, ..) = exchange;
    let calls = steady_heap_calls(&mut server.connect(), exchange, rounds);
    assert_eq!(calls, 0, "{name}, logged");
    server.stop();
    let lines = std::fs::read_to_string(path).unwrap().lines().count();
    // Not every line: where the writer gets no processor, its queue is full and entries are dropped.
    assert!(lines > rounds, "{name}: {lines} lines");
}

/// No heap call for an entry, however the request was responded to.
pub(crate) fn log_makes_no_heap_call(rounds: usize) {
    assert_no_heap_call(&exchanges()[0], rounds, |_| Plaintext);
    for exchange in &exchanges() {
        assert_no_heap_call(exchange, rounds, |_| Store);
    }
    for exchange in &exchanges_in_parts() {
        assert_no_heap_call(exchange, rounds / 10, |_| InParts);
    }
    let upstream = TestServer::with_limits(Limits::default(), |_| Plaintext);
    let address = upstream.address;
    let sleeping = b"GET /sleep HTTP/1.1\r\nHost: a\r\nReferer: b\r\n\r\n".to_vec();
    let exchange = ("a future that sleeps", vec![sleeping], 1);
    assert_no_heap_call(&exchange, rounds / 10, move |start| {
        go_round_service(start, address)
    });
}
