//! A reader of a 60 MB value at 20 KB/s and 64 range reads at 18 KB/s, beside reads of large values and ranges.
//!
//! Memory for responses and the number of open ranges were theirs for as long as they liked.

use super::client::Client;
use super::scene::Read;
use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stage, Stop, beside};
use crate::hostile::subject::sum;
use serde_json::json;
use std::io::{ErrorKind, Read as _, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const HUGE_BYTES: usize = 60_000_000;
const LARGE_BYTES: usize = 200_000;
/// Entities of a range, together more than socket buffers hide.
const RANGE_ENTITIES: usize = 200;
const RANGE_VALUE_BYTES: usize = 20_000;
const RANGES: usize = 64;
/// The rate of each slow reader: 20 KB/s for the value, 18 KB/s for a range.
const VALUE_PART_BYTES: usize = 1000;
const RANGE_PART_BYTES: usize = 900;
const PART_PERIOD: Duration = Duration::from_millis(50);

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&["--sync", "off"])?;
    let address = stage.address();
    store(address)?;
    let range_bytes = (0..RANGE_ENTITIES)
        .map(|n| id(n).len() + 1 + RANGE_VALUE_BYTES)
        .sum();
    let targets = [
        ("/v0/entity?id=large", LARGE_BYTES),
        ("/v0/entity?id=huge", HUGE_BYTES),
        ("/v0/entities?start=r&end=s", range_bytes),
    ];
    // Until the slow ones have been behind for longer than --contended-grace.
    let time = scene.time() * 2;
    let read = |stop: &Stop| Read::until(stop, address, &targets, false);
    let (readers, read) = beside(time, |stop| read_slowly(address, stop), read)?;
    // A range may be refused until one of the slow ones has been behind for --contended-grace (2 s).
    read.check_refusals(GAP_MAX)?;
    let seen = json!({ "slow_readers": readers, "reader": read.summary() });
    // The kernel may hand a send that waits for its reader to a worker thread of the ring, and ends that after some idle
    // seconds. The driver lets it have eight of each kind for one shard.
    let kernel_threads = match scene.driver.as_str() {
        "uring" => 16,
        _ => 0,
    };
    let extra = Extra {
        resident_bytes: 16 * HUGE_BYTES as u64,
        kernel_threads,
        ..Extra::default()
    };
    let judged = stage.judge(extra, &seen)?;
    check_logged(&stage)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// Readers that were cut are in the log.
fn check_logged(stage: &Stage) -> Result<(), String> {
    let metrics = stage.server.metrics()?;
    let cut = sum(&metrics, "millpond_entity_slow_readers_disconnected_total");
    let said = stage.server.said();
    match cut > 0.0 && !said.contains("readers of large values and ranges cut") {
        true => Err(format!(
            "{cut} readers were cut, and the log does not say so: {said}"
        )),
        false => Ok(()),
    }
}

fn id(number: usize) -> String {
    format!("r{number:04}")
}

fn store(address: SocketAddr) -> Result<(), String> {
    let mut client = Client::new(address);
    let mut put = |id: &str, length: usize| {
        let answer = client.request("PUT", &format!("/v0/entity?id={id}"), &vec![b'v'; length])?;
        match answer.status {
            201 => Ok(()),
            status => Err(format!("PUT of {id} is answered {status}")),
        }
    };
    put("large", LARGE_BYTES)?;
    put("huge", HUGE_BYTES)?;
    (0..RANGE_ENTITIES).try_for_each(|number| put(&id(number), RANGE_VALUE_BYTES))
}

/// One slow reader: it asks again when it is cut.
struct SlowReader {
    stream: Option<TcpStream>,
    target: &'static str,
    part_bytes: usize,
}

impl SlowReader {
    /// One part; whether a request was made.
    fn read(&mut self, address: SocketAddr) -> bool {
        let Some(stream) = &mut self.stream else {
            self.stream = connect(address, self.target).ok();
            return self.stream.is_some();
        };
        match stream.read(&mut [0; VALUE_PART_BYTES][..self.part_bytes]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(1..) => {}
            Ok(0) | Err(_) => self.stream = None,
        }
        false
    }
}

/// A connection with a small receive buffer, so that the server meets the reader's pace at once.
fn connect(address: SocketAddr, target: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 4096)?;
    stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: hostile\r\n\r\n").as_bytes())?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// How many requests were made.
fn read_slowly(address: SocketAddr, stop: &Stop) -> u64 {
    let value = SlowReader {
        stream: None,
        target: "/v0/entity?id=huge",
        part_bytes: VALUE_PART_BYTES,
    };
    let range = |_| SlowReader {
        stream: None,
        target: "/v0/entities?start=r",
        part_bytes: RANGE_PART_BYTES,
    };
    let mut readers: Vec<SlowReader> = (0..RANGES).map(range).chain([value]).collect();
    let mut requests = 0;
    while !stop.is_over() {
        let made = readers
            .iter_mut()
            .map(|reader| u64::from(reader.read(address)));
        requests += made.sum::<u64>();
        std::thread::sleep(PART_PERIOD);
    }
    requests
}
