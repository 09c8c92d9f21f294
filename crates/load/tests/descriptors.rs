//! Goal: more connections than the process may open is one clear error before the run, however
//! many came up before the limit. Alone in its process, whose limit it lowers.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
mod support;

use millpond_io::{IoError, ListenOptions, Listener};
use millpond_load::LoadError;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn too_many_connections_are_one_clear_error() {
    // Nobody accepts: the kernel completes the connections in the queue.
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), ListenOptions::default());
    let listener = listener.unwrap();
    let address = listener.local_address().inet().unwrap();
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
        matches!(error, LoadError::Io(IoError::DescriptorsExhausted { .. })),
        "{error:?}"
    );
    assert!(error.to_string().contains("ulimit"), "{error}");
}
