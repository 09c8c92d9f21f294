//! A body taken as it comes: `cargo run --release --example upload 127.0.0.1:8080`, then
//! `curl -T large.file 127.0.0.1:8080/`. Memory stays flat however large the file is.

use millpond_http::{
    FieldValue, Flow, Interest, LimitValues, Request, Response, ServeConfig, Service,
    ServiceContext, StatusCode, StreamEvent, serve,
};
use millpond_io::Address;
use millpond_mempool::{Handle, PoolMode, Slab};
use std::convert::Infallible;
use std::error::Error;

/// FNV-1a, which any language has in five lines.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;
const HASH_PRIME: u64 = 0x0100_0000_01b3;

/// An upload on its way.
struct Upload {
    received_bytes: u64,
    hash: u64,
}

/// The service of one shard: responds to an upload with its length and hash.
pub(crate) struct Uploads {
    uploads: Slab<Upload>,
}

impl Uploads {
    /// Without uploads.
    pub(crate) fn new(mode: PoolMode) -> Self {
        Self {
            uploads: Slab::new("uploads", mode),
        }
    }
}

impl Service for Uploads {
    fn takes_body_in_parts(&mut self, _request: &Request<'_>) -> bool {
        true
    }

    fn call(
        &mut self,
        _request: &mut Request<'_>,
        _response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let upload = Upload {
            received_bytes: 0,
            hash: HASH_START,
        };
        match self.uploads.insert(upload) {
            Ok(handle) => {
                // Comes back with every event of this upload.
                context.state = handle.to_bits();
                Flow::Stream(Interest::BODY)
            }
            // Unanswered: 503.
            Err(_) => Flow::Done,
        }
    }

    fn stream(
        &mut self,
        event: StreamEvent<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let handle = Handle::from_bits(context.state);
        if let StreamEvent::Body(bytes) = event {
            if let Some(upload) = self.uploads.get_mut(handle) {
                upload.received_bytes += bytes.len() as u64;
                upload.hash = bytes.iter().fold(upload.hash, |hash, &byte| {
                    (hash ^ u64::from(byte)).wrapping_mul(HASH_PRIME)
                });
            }
            return Flow::Stream(Interest::BODY);
        }
        if let Some(upload) = self.uploads.remove(handle) {
            let text = format!("{} bytes, {:016x}\n", upload.received_bytes, upload.hash);
            // Without memory nothing is sent, and the server responds with 503.
            let _ = response.send(
                StatusCode::CREATED,
                Some(FieldValue::TEXT_PLAIN),
                text.as_bytes(),
            );
        }
        Flow::Done
    }

    fn abandoned(&mut self, _token: millpond_http::RequestToken, state: u64) {
        self.uploads.remove(Handle::from_bits(state));
    }
}

#[allow(dead_code, reason = "a test uses the service alone")]
fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1);
    let listen: Address = listen.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let limits = LimitValues {
        body_bytes_max: 1 << 40,
        ..LimitValues::default()
    }
    .checked()?;
    let config = ServeConfig {
        limits,
        ..ServeConfig::new("upload", listen)
    };
    serve(
        &config,
        |start| Ok::<_, Infallible>(Uploads::new(start.pool_mode)),
        |address| println!("listening on {address}"),
    )?;
    Ok(())
}
