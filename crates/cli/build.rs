//! Passes the commit and the compiler to the program, for its records.

use std::path::Path;
use std::process::Command;

fn main() {
    println!(
        "cargo::rustc-env=MILLPOND_TARGET={}",
        std::env::var("TARGET").unwrap_or_default()
    );
    println!("cargo::rustc-env=MILLPOND_COMPILER={}", compiler());
    // Grows with every commit and every change of branch. A source archive has none, and no commit.
    let log = "../../.git/logs/HEAD";
    println!("cargo::rerun-if-changed=build.rs");
    if !Path::new(log).exists() {
        return;
    }
    println!("cargo::rerun-if-changed={log}");
    let answer = Command::new("git")
        .args(["rev-parse", "--short=12", "HEAD"])
        .output();
    if let Some(output) = answer.ok().filter(|output| output.status.success()) {
        let commit = String::from_utf8_lossy(&output.stdout);
        println!("cargo::rustc-env=MILLPOND_COMMIT={}", commit.trim());
    }
}

/// `rustc 1.95.0 (...)`; cargo says which one it calls.
fn compiler() -> String {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let answer = Command::new(program).arg("--version").output();
    match answer {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "an unknown compiler".to_owned(),
    }
}
