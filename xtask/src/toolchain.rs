//! Which compiler can do what stable Rust does not promise, and what is missing where none can.
//!
//! Absent on purpose: installing anything. A verb that lacks something says so in one line.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A toolchain of rustup, or the only one there is.
pub(crate) struct Toolchain {
    /// As rustup knows it; none without rustup.
    name: Option<String>,
    /// Whether it is a nightly one, which needs no permission for unstable flags.
    is_nightly: bool,
}

impl Toolchain {
    /// A nightly toolchain if one is installed, else the one in use.
    pub(crate) fn most_able() -> Self {
        let nightly = Self {
            name: Some("nightly".to_owned()),
            is_nightly: true,
        };
        if nightly.answers("rustc", &["--version"]).is_some() {
            return nightly;
        }
        let mut in_use = Self {
            name: None,
            is_nightly: false,
        };
        in_use.is_nightly = in_use
            .answers("rustc", &["--version"])
            .is_some_and(|version| version.contains("-nightly"));
        in_use
    }

    /// A program of this toolchain.
    pub(crate) fn program(&self, program: &str) -> Command {
        match &self.name {
            Some(name) => {
                let mut command = Command::new("rustup");
                command.args(["run", name, program]);
                command.env("RUSTUP_AUTO_INSTALL", "0");
                command
            }
            None if program == "cargo" => crate::step::cargo(),
            None => Command::new(program),
        }
    }

    /// Its cargo, with permission for unstable flags.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = self.program("cargo");
        if !self.is_nightly {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// What a program prints, if it is there and succeeds.
    fn answers(&self, program: &str, words: &[&str]) -> Option<String> {
        let output = self
            .program(program)
            .args(words)
            .stderr(Stdio::null())
            .output()
            .ok()?;
        output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    /// Whether it can interpret programs.
    pub(crate) fn has_miri(&self) -> bool {
        self.answers("cargo", &["miri", "--version"]).is_some()
    }

    /// Whether it can compile the standard library, and so instrument it.
    pub(crate) fn has_source(&self) -> bool {
        let library = "lib/rustlib/src/rust/library/Cargo.lock";
        self.answers("rustc", &["--print", "sysroot"])
            .is_some_and(|sysroot| PathBuf::from(sysroot).join(library).is_file())
    }

    /// The platform it compiles for by itself. Naming it keeps flags away from build scripts.
    pub(crate) fn host(&self) -> Result<String, String> {
        self.answers("rustc", &["--version", "--verbose"])
            .and_then(|text| {
                let host = text.lines().find_map(|line| line.strip_prefix("host: "));
                host.map(str::to_owned)
            })
            .ok_or_else(|| "rustc --version --verbose names no host".to_owned())
    }
}

/// Adds flags for the compiler to those the user has set.
pub(crate) fn with_rustflags(command: &mut Command, flags: &str) {
    let own = std::env::var("RUSTFLAGS").unwrap_or_default();
    let all = format!("{own} {flags}");
    println!("RUSTFLAGS='{}'", all.trim());
    command.env("RUSTFLAGS", all.trim());
}
