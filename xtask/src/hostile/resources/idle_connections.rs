//! More idle connections than there are descriptors, beside writes of 100 KB that each take a new connection.
//!
//! With `ulimit -n 1024` the store could open no file any more, and writes were refused until a restart.

use super::scene::{Extra, Outcome, STOP_MAX, Scene, beside};
use super::writer::{Writer, Writing};
use crate::hostile::subject::{PATIENCE, sum};
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const IDLE: usize = 1500;
const VALUE_BYTES: usize = 100_000;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&[])?;
    let address = stage.address();
    // 16 MB, so that memtables are written to tables meanwhile.
    let writes = scene.count(30, 160);
    let writing = Writing {
        prefix: "beside",
        value_bytes: VALUE_BYTES,
        keys: writes as u64,
        reconnects: true,
    };
    let idle = open(address);
    let mut writer = Writer::new(address, writing);
    let write = |_: &_| (0..writes).try_for_each(|_| writer.write_through(PATIENCE, || false));
    let ((), written) = beside(Duration::ZERO, |_| (), write)?;
    written?;
    let has_room = stage.connections_max > IDLE as u64 + 1;
    // Where idle connections hold every place, a new one is refused until one of them may be closed.
    writer.check_statuses(if has_room { &[201] } else { &[201, 503] })?;
    let held = idle.len();
    drop(idle);
    writer.disconnect();
    stage.wait_until("idle connections close", |metrics| {
        sum(metrics, "millpond_http_connections") <= 1.0
    })?;
    let mut later = Writer::new(
        address,
        Writing {
            prefix: "later",
            ..writing
        },
    );
    for _ in 0..20 {
        later.write();
    }
    later.check_statuses(&[201])?;
    writer.check_stored(address)?;
    later.check_stored(address)?;
    let seen = json!({ "idle": held, "writer": writer.summary(), "later": later.summary() });
    drop((writer, later));
    let judged = stage.judge(Extra::default(), &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// Those that the server's queue of new connections takes; it refuses some of them as it sees fit.
fn open(address: SocketAddr) -> Vec<TcpStream> {
    let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok();
    (0..IDLE).filter_map(connect).collect()
}
