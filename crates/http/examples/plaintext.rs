//! The smallest server: `cargo run --release --example plaintext 127.0.0.1:8080 [off]`.

use millpond_http::{Plaintext, ServeConfig, ServeError, serve};
use millpond_io::Address;
use millpond_mempool::PoolMode;
use std::convert::Infallible;

fn main() -> Result<(), ServeError> {
    let mut arguments = std::env::args().skip(1);
    let listen: Address = arguments
        .next()
        .as_deref()
        .unwrap_or("127.0.0.1:8080")
        .parse()?;
    let mut config = ServeConfig::new("plaintext", listen);
    if arguments.next().as_deref() == Some("off") {
        config.pool_mode = PoolMode::Off;
    }
    let report = serve(
        &config,
        |_start| Ok::<_, Infallible>(Plaintext),
        |address| println!("listening on {address}"),
    )?;
    println!("{} requests", report.requests);
    Ok(())
}
