//! The smallest entity server: `cargo run --release --example serve -- DATA_DIRECTORY|memory [ADDRESS]`.
//!
//! For embedding and for measuring the server alone; `millpond serve entity` has the flags. With `memory`
//! instead of a directory everything is gone when it is killed, which is how it ends then.

use std::process::ExitCode;
use std::sync::Arc;

use millpond_entity::store::memory::MemoryStore;
use millpond_entity::{EntityConfig, EntityError, serve, serve_with};
use millpond_http::{ServeConfig, ServeReport};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(data) = arguments.next() else {
        eprintln!("usage: serve DATA_DIRECTORY|memory [ADDRESS]");
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
    let http = ServeConfig::new("entity", listen);
    let result = match config.data.to_str() {
        Some("memory") => serve_memory(&config, &http),
        _ => serve(&config, &http, |address, engine| {
            println!(
                "listening on {address}, {} {} ({})",
                engine.name, engine.version, engine.linkage
            );
        }),
    };
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

fn serve_memory(config: &EntityConfig, http: &ServeConfig) -> Result<ServeReport, EntityError> {
    serve_with(&Arc::new(MemoryStore::new()), config, http, |running| {
        println!("listening on {}, in memory", running.local_address());
        loop {
            std::thread::park();
        }
    })
}
