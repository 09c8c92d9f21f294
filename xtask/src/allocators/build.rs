//! One object: compiled, proved, put in its place.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::compiler::Compiler;
use super::origin::{self, Source};
use super::recipe::Recipe;
use crate::metadata;
use crate::step::{cargo, run_command};
use crate::tally::TestTally;

/// Where the objects' workspace is, relative to the repository.
const WORKSPACE: &str = "preload/allocators";
/// The program that proves an object.
const PROOF: &str = "proof";

/// The directories of a build, and what the objects' workspace consists of.
pub(crate) struct Workshop {
    workspace: PathBuf,
    /// Where objects go.
    out: PathBuf,
    /// Cargo's own directory for them, apart from that of everything else.
    target: PathBuf,
    metadata: Value,
}

impl Workshop {
    /// Finds the directories; fetches the crates that are missing.
    pub(crate) fn open() -> Result<Self, String> {
        let ours = metadata::metadata()?;
        let path = |key: &str| ours[key].as_str().map(PathBuf::from);
        let root = path("workspace_root").ok_or("cargo names no workspace")?;
        let out = path("target_directory")
            .ok_or("cargo names no target directory")?
            .join("allocators");
        let workspace = root.join(WORKSPACE);
        let metadata = metadata_of(&workspace)?;
        Ok(Self {
            target: out.join("build"),
            workspace,
            out,
            metadata,
        })
    }

    /// Makes one object and returns its place.
    pub(crate) fn make(&self, recipe: &Recipe, compiler: &Compiler) -> Result<PathBuf, String> {
        let name = recipe.name;
        let source = self.source(recipe.source)?;
        let source = Source {
            directory: &source.0,
            version: &source.1,
        };
        let origin = origin::describe(recipe, source, compiler)?;
        self.compile(recipe, compiler)?;
        let compiled = self.target.join(format!("release/libmillpond_{name}.so"));
        self.prove(&compiled)?;
        let object = self.out.join(format!("libmillpond-{name}.so"));
        put(&compiled, &object)?;
        let described = object.with_extension("json");
        fs::write(&described, format!("{origin:#}\n"))
            .map_err(|error| format!("{} cannot be written: {error}", described.display()))?;
        println!("{name} {}", origin["version"].as_str().unwrap_or_default());
        Ok(object)
    }

    fn cargo(&self, words: &[&str]) -> Command {
        let mut command = cargo();
        command
            .args(words)
            .args(["--release", "--locked", "--manifest-path"])
            .arg(self.workspace.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&self.target)
            // With it, cargo would put objects for this very machine somewhere else.
            .env_remove("CARGO_BUILD_TARGET");
        command
    }

    /// One cargo invocation per object: the two lines of mimalloc are one crate with and without a
    /// feature, which a common build would unite.
    fn compile(&self, recipe: &Recipe, compiler: &Compiler) -> Result<(), String> {
        let package = format!("millpond-allocator-{}", recipe.name);
        let mut command = self.cargo(&["rustc", "--package", &package]);
        if !recipe.flags.is_empty() {
            command.env(compiler.flags_variable, flags(compiler, recipe));
        }
        // A symbol that nobody defines must fail here, not inside a user's server.
        command.args(["--", "-Clink-arg=-Wl,-z,defs"]);
        if run_command(&mut command, &mut TestTally::default())? {
            return Ok(());
        }
        Err(format!(
            "{} does not build: cargo says why above",
            recipe.name
        ))
    }

    /// Preloads the object into the program that uses every function, with all symbols bound at
    /// once.
    fn prove(&self, object: &Path) -> Result<(), String> {
        let mut build = self.cargo(&["build", "--package", "millpond-allocator-proof"]);
        if !run_command(build.arg("--quiet"), &mut TestTally::default())? {
            return Err("the program that proves an object does not build".to_owned());
        }
        let program = self.target.join("release").join(PROOF);
        let mut proof = Command::new(&program);
        proof
            .arg(object)
            .env("LD_PRELOAD", object)
            .env("LD_BIND_NOW", "1");
        if run_command(&mut proof, &mut TestTally::default())? {
            return Ok(());
        }
        Err(format!(
            "{} was built, but does not stand in for malloc: see above",
            object.display()
        ))
    }

    /// Directory and version of a crate of the objects' workspace.
    fn source(&self, name: &str) -> Result<(PathBuf, String), String> {
        let packages = self.metadata["packages"].as_array();
        let package = packages
            .into_iter()
            .flatten()
            .find(|package| package["name"] == name)
            .ok_or_else(|| format!("{WORKSPACE} does not use the crate {name}"))?;
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let directory = Path::new(text("manifest_path")).parent();
        Ok((
            directory.unwrap_or(Path::new("")).to_owned(),
            text("version").to_owned(),
        ))
    }
}

/// The user's own flags first: what a recipe demands must hold.
fn flags(compiler: &Compiler, recipe: &Recipe) -> OsString {
    let mut all = std::env::var_os(compiler.flags_variable).unwrap_or_default();
    for flag in recipe.flags {
        if !all.is_empty() {
            all.push(" ");
        }
        all.push(flag);
    }
    all
}

fn metadata_of(workspace: &Path) -> Result<Value, String> {
    let output = cargo()
        .args([
            "metadata",
            "--format-version",
            "1",
            "--locked",
            "--manifest-path",
        ])
        .arg(workspace.join("Cargo.toml"))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo metadata cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "the crates of {} cannot be had: cargo says why above",
            workspace.display()
        ));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata gave no readable answer: {error}"))
}

/// Copies a file unless it is there already. The new one appears whole: a running target may have
/// the old one mapped, and the lab may be looking just now.
fn put(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{} cannot be written: {error}", to.display());
    let bytes =
        fs::read(from).map_err(|error| format!("{} cannot be read: {error}", from.display()))?;
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let unfinished = to.with_extension(format!("so.{}", std::process::id()));
    fs::write(&unfinished, bytes)
        .and_then(|()| fs::rename(&unfinished, to))
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is the same is left alone, what differs is replaced and not written into: the old
    /// file's contents stay for whoever has it mapped.
    #[test]
    fn an_object_is_replaced_never_overwritten() {
        use std::io::Read;
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (
            directory.path().join("a"),
            directory.path().join("sub/b.so"),
        );
        fs::write(&from, "first").unwrap();
        put(&from, &to).unwrap();
        let mut held = fs::File::open(&to).unwrap();
        let made = fs::metadata(&to).unwrap().modified().unwrap();
        put(&from, &to).unwrap();
        assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), made);
        fs::write(&from, "second").unwrap();
        put(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "second");
        let mut text = String::new();
        held.read_to_string(&mut text).unwrap();
        assert_eq!(text, "first");
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
        assert!(
            put(&directory.path().join("none"), &to)
                .unwrap_err()
                .contains("none")
        );
    }
}
