//! An `async fn` that asks another server: `cargo run --release --example upstream
//! 127.0.0.1:8080 127.0.0.1:9000`, where 9000 is any HTTP server.

use millpond_http::asynchronous::UpstreamId;
use millpond_http::{
    AsyncRequest, AsyncService, AsyncShard, Authority, FieldValue, Method, Reply, ServeConfig,
    Service, ShardStart, StatusCode, serve,
};
use millpond_io::Address;
use std::convert::Infallible;
use std::error::Error;

/// Name of the upstream in `Host`.
const HOST: Authority<'_> = Authority::from_static("upstream");
const MILLISECOND_NS: u64 = 1_000_000;

/// Passes on the upstream's response for the same path, after two tries at most.
async fn answer(request: AsyncRequest, upstream: UpstreamId) -> Reply {
    for pause_ns in [50 * MILLISECOND_NS, 0] {
        let call = request.call(upstream, Method::GET, request.path_target(), &[], b"");
        match call.await {
            Ok(reply) => {
                return Reply::bytes(reply.status, FieldValue::OCTET_STREAM, reply.body);
            }
            Err(_) => request.sleep(pause_ns).await,
        }
    }
    Reply::text(StatusCode::BAD_GATEWAY, "the upstream does not answer\n")
}

/// The service of one shard.
pub(crate) fn service(start: &ShardStart, upstream: &Address) -> impl Service + use<> {
    let shard = AsyncShard::new(start.pool_mode);
    let upstream = shard.add_upstream(upstream.clone(), HOST);
    AsyncService::new(start, shard, move |request| answer(request, upstream))
}

#[allow(dead_code, reason = "a test uses the service alone")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut address = |default: &str| -> Result<Address, _> {
        arguments.next().as_deref().unwrap_or(default).parse()
    };
    let (listen, upstream) = (address("127.0.0.1:8080")?, address("127.0.0.1:9000")?);
    serve(
        &ServeConfig::new("upstream", listen),
        |start| Ok::<_, Infallible>(service(&start, &upstream)),
        |address| println!("listening on {address}"),
    )?;
    Ok(())
}
