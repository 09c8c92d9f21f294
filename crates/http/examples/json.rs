//! JSON over routes: `cargo run --release --example json 127.0.0.1:8080`, then
//! `curl 127.0.0.1:8080/hello/you`.

use millpond_http::{
    FieldValue, Flow, Method, Request, Response, Routed, Router, ServeConfig, Service,
    ServiceContext, StatusCode, serve,
};
use millpond_io::Address;
use millpond_mempool::{BlockPool, Buffer, PoolError};
use std::error::Error;

/// Names that can be requested.
#[derive(Clone, Copy)]
enum Page {
    Hello,
    Echo,
}

/// The service of one shard.
pub(crate) struct Json {
    router: Router<Page>,
}

impl Json {
    /// With its routes.
    pub(crate) fn new() -> Result<Self, Box<dyn Error + Send + Sync>> {
        let mut router = Router::new();
        router.add(Method::GET, "/hello/{name}", Page::Hello)?;
        router.add(Method::POST, "/echo", Page::Echo)?;
        Ok(Self { router })
    }
}

/// Appends `text` as a JSON string. Bytes that are not UTF-8 are replaced, which keeps it valid JSON.
fn push_string(out: &mut Buffer, blocks: &BlockPool, text: &[u8]) -> Result<(), PoolError> {
    out.push(blocks, b'"')?;
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => out.extend_from_slice(blocks, &[b'\\', character as u8])?,
                ' '.. => {
                    let mut bytes = [0; 4];
                    out.extend_from_slice(blocks, character.encode_utf8(&mut bytes).as_bytes())?;
                }
                control => {
                    let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                    let (high, low) = (control as u8 >> 4, control as u8 & 15);
                    out.extend_from_slice(blocks, b"\\u00")?;
                    out.extend_from_slice(blocks, &[digit(high), digit(low)])?;
                }
            }
        }
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(blocks, "\u{fffd}".as_bytes())?;
        }
    }
    out.push(blocks, b'"')
}

fn object(blocks: &BlockPool, name: &str, value: &[u8]) -> Result<Buffer, PoolError> {
    let mut out = Buffer::new();
    out.push(blocks, b'{')?;
    push_string(&mut out, blocks, name.as_bytes())?;
    out.push(blocks, b':')?;
    push_string(&mut out, blocks, value)?;
    out.extend_from_slice(blocks, b"}\n")?;
    Ok(out)
}

impl Service for Json {
    fn call(
        &mut self,
        request: &mut Request<'_>,
        response: &mut Response<'_>,
        context: &mut ServiceContext<'_>,
    ) -> Flow {
        let blocks = &context.pools.blocks;
        let (status, body) = match self.router.route(request.method, request.path()) {
            Routed::Found(Page::Hello, parameters) => {
                let name = parameters.get("name").unwrap_or_default();
                (StatusCode::OK, object(blocks, "hello", name))
            }
            Routed::Found(Page::Echo, _) => {
                (StatusCode::OK, object(blocks, "echo", request.body()))
            }
            Routed::WrongMethod => {
                let text = b"use another method";
                (
                    StatusCode::METHOD_NOT_ALLOWED,
                    object(blocks, "error", text),
                )
            }
            Routed::NotFound => {
                let text = b"use /hello/NAME or /echo";
                (StatusCode::NOT_FOUND, object(blocks, "error", text))
            }
        };
        // Without memory nothing is sent, and the server responds with 503.
        if let Ok(body) = body {
            let _ = response.send(status, Some(FieldValue::JSON), &body);
        }
        Flow::Done
    }
}

#[allow(dead_code, reason = "a test uses the service alone")]
fn main() -> Result<(), Box<dyn Error>> {
    let listen = std::env::args().nth(1);
    let listen: Address = listen.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    serve(
        &ServeConfig::new("json", listen),
        |_start| Json::new(),
        |address| println!("listening on {address}"),
    )?;
    Ok(())
}
