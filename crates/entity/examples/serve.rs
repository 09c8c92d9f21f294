//! The smallest entity server: `cargo run --release --example serve -- DATA_DIRECTORY [ADDRESS]`.
//!
//! For embedding and for measuring the server alone; `millpond serve entity` has the flags.

use std::process::ExitCode;

use millpond_entity::{EntityConfig, serve};
use millpond_http::ServeConfig;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(data) = arguments.next() else {
        eprintln!("usage: serve DATA_DIRECTORY [ADDRESS]");
        return ExitCode::from(2);
    };
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listen = match address.parse() {
        Ok(listen) => listen,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let config = EntityConfig::new(data.into());
    let result = serve(
        &config,
        &ServeConfig::new("entity", listen),
        |address, engine| {
            println!(
                "listening on {address}, {} {} ({})",
                engine.name, engine.version, engine.linkage
            );
        },
    );
    match result {
        Ok(report) => {
            println!("{} requests answered", report.requests);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
