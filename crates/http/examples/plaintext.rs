//! The smallest server: `cargo run --release --example plaintext 127.0.0.1:8080`. Further arguments: `off` (no pools),
//! `epoll` or `uring` (that driver and no other).

use millpond_http::{Plaintext, ServeConfig, serve};
use millpond_io::Address;
use millpond_mempool::PoolMode;
use std::convert::Infallible;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let listen: Address = arguments
        .next()
        .as_deref()
        .unwrap_or("127.0.0.1:8080")
        .parse()?;
    let mut config = ServeConfig::new("plaintext", listen);
    for word in arguments {
        match word.as_str() {
            "off" => config.pool_mode = PoolMode::Off,
            driver => config.driver = driver.parse()?,
        }
    }
    let report = serve(
        &config,
        |_start| Ok::<_, Infallible>(Plaintext),
        |address| println!("listening on {address}"),
    )?;
    println!("{} requests", report.requests);
    Ok(())
}
