//! Compiles the heap call counter (`preload/trace`) into a shared object that the library embeds, so
//! that `millpond` stays one file. A bare rustc is enough: the counter has no dependencies.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let manifest_dir = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let source_dir = manifest_dir.join("../../preload/trace/src");
    let object = PathBuf::from(env::var("OUT_DIR")?).join("libmillpond_trace.so");
    println!("cargo::rerun-if-changed={}", source_dir.display());
    println!("cargo::rerun-if-env-changed=RUSTC");

    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc
        .args([
            "--crate-name",
            "millpond_trace",
            "--crate-type",
            "cdylib",
            "--edition",
            "2024",
        ])
        .args(["--target", &env::var("TARGET")?])
        .args([
            "-C",
            "opt-level=2",
            "-C",
            "panic=abort",
            "-C",
            "strip=symbols",
        ])
        // An unresolved symbol must fail here, not inside a user's server.
        .args(["-C", "link-arg=-Wl,-z,defs"])
        .arg("-o")
        .arg(&object)
        .arg(source_dir.join("lib.rs"));
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={linker}"));
    }
    let status = rustc.status()?;
    if !status.success() {
        return Err(format!("compiling the heap call counter failed: {status}").into());
    }
    println!(
        "cargo::rustc-env=MILLPOND_TRACE_OBJECT={}",
        object.display()
    );
    Ok(())
}
