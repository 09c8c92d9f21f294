//! One upload of 260 bytes a second that announces 60 MB, beside writes of 200 KB.
//!
//! What it announced was reserved, so that every longer write of everybody was answered 503 meanwhile.

use super::scene::{Extra, GAP_MAX, Outcome, STOP_MAX, Scene, Stop, beside};
use super::writer::{Writer, Writing};
use serde_json::json;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const HEAD: &[u8] =
    b"PUT /v0/entity?id=slow HTTP/1.1\r\nHost: hostile\r\nContent-Length: 60000000\r\n\r\n";
const VALUE_BYTES: usize = 200_000;
/// Writes at the same time: alone none waits for memory.
const WRITERS: usize = 4;

pub(super) fn run(scene: &Scene) -> Result<Outcome, String> {
    let mut stage = scene.entity(&[])?;
    let address = stage.address();
    let prefixes: [&'static str; WRITERS] = ["a", "b", "c", "d"];
    let mut writers = prefixes.map(|prefix| {
        let writing = Writing {
            prefix,
            value_bytes: VALUE_BYTES,
            keys: 20,
            reconnects: false,
        };
        Writer::new(address, writing)
    });
    let write = |stop: &Stop| {
        std::thread::scope(|scope| {
            for writer in &mut writers {
                scope.spawn(|| {
                    while !stop.is_over() {
                        writer.write_or_pause();
                    }
                });
            }
        });
    };
    let (uploads, ()) = beside(scene.time() * 3 / 2, |stop| upload(address, stop), write)?;
    for writer in &writers {
        writer.check_statuses(&[201])?;
        writer.check_progress(GAP_MAX)?;
        writer.check_stored(address)?;
    }
    let summaries: Vec<_> = writers.iter().map(Writer::summary).collect();
    drop(writers);
    // What the engine takes for the longest values, beside the shares.
    let extra = Extra {
        resident_bytes: 16 * VALUE_BYTES as u64,
        ..Extra::default()
    };
    let seen = json!({ "uploads": uploads, "writers": summaries });
    let judged = stage.judge(extra, &seen)?;
    stage.stop(STOP_MAX)?;
    Ok(Outcome::Stood(judged))
}

/// One upload after the other, should the server cut them; how many.
fn upload(address: SocketAddr, stop: &Stop) -> u64 {
    let mut uploads = 0;
    while !stop.is_over() {
        let Ok(mut stream) = TcpStream::connect(address) else {
            continue;
        };
        uploads += u64::from(stream.write_all(HEAD).is_ok());
        while !stop.is_over() && stream.write_all(&[b'x'; 26]).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    uploads
}
