//! Compiles the shared objects that the lab preloads and that are ours, so that the library can
//! embed them and `millpond` stays one file: the heap call counter (`preload/trace`), the sampler of heap
//! calls (`preload/sample`), what ages a heap (`preload/churn`), the thread that trims (`preload/trim`) and our pools as
//! malloc (`preload/mempool`).
//!
//! They are packages of this workspace, built by a cargo of their own: what is preloaded into a third-party program
//! must not unwind and has its own profile, which a dependency of this crate could not have. Its target directory is
//! this script's, so the two cargos never wait for each other, and an object is compiled again only when its own
//! sources change.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One object.
struct Shim {
    /// Its package.
    package: &'static str,
    /// Its file, as cargo names it.
    file: &'static str,
    /// What the library's `include_bytes!` reads.
    variable: &'static str,
    /// Everything it is made from, relative to the repository.
    sources: &'static [&'static str],
}

const SHIMS: &[Shim] = &[
    Shim {
        package: "millpond-preload-trace",
        file: "libmillpond_trace.so",
        variable: "MILLPOND_TRACE_OBJECT",
        sources: &["preload/trace", "preload/shared"],
    },
    Shim {
        package: "millpond-preload-sample",
        file: "libmillpond_sample.so",
        variable: "MILLPOND_SAMPLE_OBJECT",
        // It has some of the counter's files.
        sources: &["preload/sample", "preload/shared", "preload/trace/src"],
    },
    Shim {
        package: "millpond-preload-churn",
        file: "libmillpond_churn.so",
        variable: "MILLPOND_CHURN_OBJECT",
        // It has files of two others.
        sources: &[
            "preload/churn",
            "preload/shared",
            "preload/sample/src",
            "preload/trace/src",
        ],
    },
    Shim {
        package: "millpond-preload-trim",
        file: "libmillpond_trim.so",
        variable: "MILLPOND_TRIM_OBJECT",
        // It has files of two others.
        sources: &["preload/trim", "preload/trace/src", "preload/plant/src"],
    },
    Shim {
        package: "millpond-preload-mempool",
        file: "libmillpond_mempool_malloc.so",
        variable: "MILLPOND_MEMPOOL_OBJECT",
        sources: &[
            "preload/mempool/Cargo.toml",
            "preload/mempool/src",
            "crates/mempool/Cargo.toml",
            "crates/mempool/src",
        ],
    },
];

/// The profile in the workspace's Cargo.toml.
const PROFILE: &str = "preload";

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../..");
    let target_dir = PathBuf::from(env::var("OUT_DIR")?).join("preload");
    println!("cargo::rerun-if-env-changed=RUSTC");
    // The objects' dependencies, and their profile.
    for file in ["Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
    for shim in SHIMS {
        for source in shim.sources {
            println!("cargo::rerun-if-changed={}", root.join(source).display());
        }
        let object = compile(shim, &root, &target_dir)?;
        println!("cargo::rustc-env={}={}", shim.variable, object.display());
    }
    Ok(())
}

fn compile(shim: &Shim, root: &Path, target_dir: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = env::var("TARGET")?;
    let mut cargo = Command::new(env::var("CARGO")?);
    cargo
        .args(["rustc", "--quiet", "--locked", "--lib"])
        .args(["--package", shim.package, "--profile", PROFILE])
        .args(["--target", &target, "--target-dir"])
        .arg(target_dir)
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        // Whatever else a library is to be built as, here it is an object to preload. An unresolved
        // symbol must fail now, not inside a user's server.
        .args(["--crate-type", "cdylib", "--", "-Clink-arg=-Wl,-z,defs"])
        // The sampler's own frames are walked through.
        .arg("-Cforce-unwind-tables=yes");
    // Flags of the outer cargo for its own code (a sanitizer, clippy instead of the compiler) do not apply to an object
    // that is loaded into other programs.
    for variable in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(variable);
    }
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("{} does not compile: {status}", shim.package).into());
    }
    Ok(target_dir.join(target).join(PROFILE).join(shim.file))
}
