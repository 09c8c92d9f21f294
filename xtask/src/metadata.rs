//! What cargo says of this workspace.

use crate::step::cargo;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Stdio;

/// Cargo's description of the workspace and all it depends on.
pub(crate) fn metadata() -> Result<Value, String> {
    let words = [
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
    ];
    let target = ["--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = cargo()
        .args(words)
        .args(target)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo metadata cannot be run: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata printed no readable JSON: {error}"))
}

/// Where cargo puts what it builds here. Flags for all crates need a directory below of their own,
/// or the daily build starts anew after each use.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    metadata()?["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo names no target directory".to_owned())
}
