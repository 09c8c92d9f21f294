//! Tells the program which commit it is built from, for its records.

use std::path::Path;
use std::process::Command;

fn main() {
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
