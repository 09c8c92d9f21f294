//! Goal: more connections than the process may open files is one clear error before any is opened. Alone in its process, whose limit it lowers.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_load::LoadError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpListener;

#[test]
fn too_many_connections_are_one_clear_error() {
    // Nothing accepts: the kernel completes the connections in the queue.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let limit = Rlimit {
        current: Some(300),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut config = support::get(address);
    config.threads = 2;
    config.connections = 400;
    let error = support::try_run(&config).unwrap_err();
    assert!(
        matches!(
            error,
            LoadError::FewDescriptors {
                connections: 400,
                room: 200..300,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("ulimit"), "{error}");
    // No connection came: the queue is empty.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());

    // The caller's remedy, where the hard limit has room for as many.
    millpond_load::raise_descriptor_limit();
    let limit = getrlimit(Resource::Nofile);
    assert_eq!(limit.current, limit.maximum);
}
