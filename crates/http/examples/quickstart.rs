//! A JSON service with shared state: `cargo run --release --example quickstart 127.0.0.1:8080`, then
//! `curl '127.0.0.1:8080/hello?name=you'` and `curl -d '[1, 2]' 127.0.0.1:8080/echo`.

use millpond_http::{
    FieldName, FieldValue, Handler, HandlerError, Method, Request, Response, ServeConfig,
    StatusCode, serve,
};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

/// One request; `served` is shared by all threads.
pub(crate) fn answer(
    request: &mut Request<'_>,
    response: &mut Response<'_>,
    served: &AtomicU64,
) -> Result<(), HandlerError> {
    let number = served.fetch_add(1, Ordering::Relaxed) + 1;
    let value = match (request.method, request.path()) {
        (Method::Get, b"/hello") => {
            let name = request.query_pairs().find(|(key, _)| key == "name");
            let name = name.map_or("world".into(), |(_, name)| name);
            serde_json::json!({ "hello": name, "request": number })
        }
        (Method::Post, b"/echo") => serde_json::from_slice(request.body())
            .map_err(|error| HandlerError::response(StatusCode::BAD_REQUEST, error))?,
        _ => {
            return Err(HandlerError::response(
                StatusCode::NOT_FOUND,
                "use /hello or /echo\n",
            ));
        }
    };
    let fields = [(FieldName::CONTENT_TYPE, FieldValue::JSON)];
    response.send_written(StatusCode::OK, &fields, |out| {
        serde_json::to_writer(out, &value)
    })
}

#[allow(dead_code, reason = "a test uses the function alone")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen = std::env::args()
        .nth(1)
        .unwrap_or("127.0.0.1:8080".to_owned());
    let served = AtomicU64::new(0);
    serve(
        &ServeConfig::new("quickstart", listen.parse()?),
        |_| {
            Ok::<_, Infallible>(Handler::new(|request, response| {
                answer(request, response, &served)
            }))
        },
        |address| println!("listening on {address}"),
    )?;
    Ok(())
}
