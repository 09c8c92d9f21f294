//! `cargo xtask allocators`: the allocators that the distribution does not have, as objects that
//! `millpond compare` finds and preloads.
//!
//! Each comes from a crate that carries the allocator's own sources, wrapped by a small package in
//! `preload/allocators`, which is a workspace of its own: other builds compile no C or C++ for
//! them. An object is installed only after it has proved, preloaded into a program, that it serves
//! every function of malloc's family.
//!
//! They land in `allocators` in the target directory, `libmillpond-NAME.so` with its origin in
//! `libmillpond-NAME.json` beside it, where a `millpond` built into the same target directory
//! searches. Cargo rebuilds what has changed and nothing else, so running this twice costs a
//! second.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use xtask::{TestTally, cargo, metadata, run_command};

/// Builds the allocator of that name, or all of them. One that fails does not keep the others from
/// being made; the sentence names all that failed.
pub(crate) fn run(only: Option<&str>) -> Result<(), String> {
    let chosen = chosen(only)?;
    let workshop = RunContext::open()?;
    let mut made: Vec<(&Recipe, PathBuf)> = Vec::new();
    let mut failures: Vec<String> = Vec::new();
    for recipe in chosen {
        println!("\n=== {}", recipe.name);
        match find(recipe.language)
            .map_err(|why| format!("{}: {why}", recipe.name))
            .and_then(|compiler| workshop.make(recipe, &compiler))
        {
            Ok(object) => made.push((recipe, object)),
            Err(sentence) => {
                println!("{sentence}");
                failures.push(sentence);
            }
        }
    }
    println!();
    for (recipe, object) in &made {
        println!("{:<10} {}", recipe.name, object.display());
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(failures.join("\n       "))
    }
}

fn chosen(only: Option<&str>) -> Result<Vec<&'static Recipe>, String> {
    let Some(name) = only else {
        return Ok(ALL.iter().collect());
    };
    let names: Vec<&str> = ALL.iter().map(|recipe| recipe.name).collect();
    ALL.iter()
        .find(|recipe| recipe.name == name)
        .map(|recipe| vec![recipe])
        .ok_or_else(|| {
            format!(
                "no allocator called {name} is built here: use {}",
                names.join(", ")
            )
        })
}

// The compiler that an allocator's sources need; checked before cargo is started: a build script
// that does not find one gives a page of panic instead of a sentence.

/// A compiler that runs.
#[derive(Clone, Debug)]
struct Compiler {
    /// Its self-description, e.g. `c++ (Debian 12.2.0) 12.2.0`.
    pub(crate) title: String,
    /// The variable that its build scripts read flags from.
    pub(crate) flags_variable: &'static str,
}

/// Finds the compiler that the build scripts will use: the user's choice, or the system's own.
fn find(language: Language) -> Result<Compiler, String> {
    let (variable, default, flags_variable, title, package) = match language {
        Language::C => ("CC", "cc", "CFLAGS", "C", "gcc"),
        Language::Cpp => ("CXX", "c++", "CXXFLAGS", "C++", "g++"),
    };
    let chosen = std::env::var_os(variable).filter(|words| !words.is_empty());
    let program = chosen.unwrap_or_else(|| OsString::from(default));
    ask(&program)
        .map(|title| Compiler {
            title,
            flags_variable,
        })
        .map_err(|why| {
            format!(
                "it is written in {title} and needs a compiler, but {} {why}: apt-get install \
                 {package}, or name another one in {variable}",
                program.display()
            )
        })
}

/// The first line of what a compiler says of its version.
fn ask(program: &OsString) -> Result<String, String> {
    // The variable may hold a launcher and the compiler behind it.
    let text = program.to_string_lossy();
    let mut words = text.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or_default());
    let output = command
        .args(words)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("cannot be run ({error})"))?;
    if !output.status.success() {
        return Err(format!("does not work ({})", output.status));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

// Where an object came from, as the small file beside it says.

/// The crate that an allocator's sources are in.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    /// Its directory.
    pub(crate) directory: &'a Path,
    /// Its version.
    pub(crate) version: &'a str,
}

/// The contents of `libmillpond-NAME.json`; the lab reads `version`.
fn describe(recipe: &Recipe, source: Source<'_>, compiler: &Compiler) -> Result<Value, String> {
    Ok(json!({
        "name": recipe.name,
        "version": version(recipe.version, source)?,
        "crate": recipe.source,
        "crate_version": source.version,
        "compiler": compiler.title,
        "flags": recipe.flags,
    }))
}

/// The allocator's own version.
fn version(from: VersionSource, source: Source<'_>) -> Result<String, String> {
    let (file, name) = match from {
        VersionSource::Crate => return Ok(source.version.to_owned()),
        VersionSource::BuildMetadata => {
            return build_metadata(source.version).ok_or_else(|| {
                format!(
                    "{} does not name the version of its sources",
                    source.version
                )
            });
        }
        VersionSource::Definition { file, name } => (file, Some(name)),
        VersionSource::FirstLine { file } => (file, None),
    };
    let path = source.directory.join(file);
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let found = match name {
        Some(name) => definition(&text, name),
        None => text.lines().next().map(|line| line.trim().to_owned()),
    };
    found
        .filter(|version| version.starts_with(|letter: char| letter.is_ascii_digit()))
        .ok_or_else(|| {
            format!(
                "{} does not say the version where it used to",
                path.display()
            )
        })
}

/// `5.3.1` of `0.7.1+5.3.1-0-g81034ce`.
fn build_metadata(version: &str) -> Option<String> {
    let (_, metadata) = version.split_once('+')?;
    let found = metadata.split('-').next()?;
    found.contains('.').then(|| found.to_owned())
}

/// `#define NAME 30302` as `3.3.2`.
fn definition(text: &str, name: &str) -> Option<String> {
    let number: u32 = text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let ours = words.next() == Some("#define") && words.next() == Some(name);
        ours.then(|| words.next()?.parse().ok()).flatten()
    })?;
    Some(format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    ))
}

// The data of each built allocator: its package, its crate, its compiler, its flags.
//
// The next one is an entry here and a package in `preload/allocators`.

/// The language of an allocator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Language {
    C,
    Cpp,
}

/// Where an allocator's own version stands; a crate's version often says nothing about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum VersionSource {
    /// The crate is released together with the allocator.
    Crate,
    /// A definition in a file of the crate, as a number: major, two digits minor, two digits patch.
    Definition {
        file: &'static str,
        name: &'static str,
    },
    /// The first line of a file of the crate.
    FirstLine { file: &'static str },
    /// The text between `+` and `-` in the crate's version.
    BuildMetadata,
}

/// How one allocator is made.
#[derive(Clone, Copy, Debug)]
struct Recipe {
    /// Its name in `--allocators` and in reports. Its package is `millpond-allocator-NAME`.
    pub(crate) name: &'static str,
    /// The crate with its sources.
    pub(crate) source: &'static str,
    pub(crate) language: Language,
    pub(crate) version: VersionSource,
    /// For the compiler, beside what the crate's build script gives it.
    pub(crate) flags: &'static [&'static str],
}

/// Every allocator that is built here.
const ALL: &[Recipe] = &[
    Recipe {
        name: "jemalloc531",
        source: "tikv-jemalloc-sys",
        language: Language::C,
        // Behind the crate's own number, as in 0.7.1+5.3.1-0-g81034ce.
        version: VersionSource::BuildMetadata,
        flags: &[],
    },
    Recipe {
        name: "mimalloc2",
        source: "libmimalloc-sys",
        language: Language::C,
        version: VersionSource::Definition {
            file: "c_src/mimalloc/v2/include/mimalloc.h",
            name: "MI_MALLOC_VERSION",
        },
        flags: &[],
    },
    Recipe {
        name: "mimalloc3",
        source: "libmimalloc-sys",
        language: Language::C,
        version: VersionSource::Definition {
            file: "c_src/mimalloc/v3/include/mimalloc.h",
            name: "MI_MALLOC_VERSION",
        },
        flags: &[],
    },
    Recipe {
        name: "snmalloc",
        source: "snmalloc-sys",
        language: Language::Cpp,
        version: VersionSource::Crate,
        // Settings of its own build that the crate's build without cmake forgets: no assertions on
        // every path, prefetches for writing, and the end of a thread learnt from the C library.
        flags: &[
            "-DNDEBUG",
            #[cfg(target_arch = "x86_64")]
            "-mprfchw",
            "-DSNMALLOC_USE_CXX11_THREAD_ATEXIT_DIRECT",
        ],
    },
    Recipe {
        name: "rpmalloc",
        source: "rpmalloc-sys",
        language: Language::C,
        version: VersionSource::FirstLine {
            file: "rpmalloc/CHANGELOG",
        },
        // Optimised as in its own release build; and see `preload/allocators/rpmalloc/src/lib.rs`
        // about the renamed function.
        flags: &[
            "-O3",
            "-funroll-loops",
            "-Dpthread_create=millpond_rpmalloc_pthread_create",
        ],
    },
    Recipe {
        name: "hardened",
        source: "hardened-malloc-sys",
        language: Language::C,
        // Releases of the allocator are dates, and the crate's third number is one.
        version: VersionSource::Crate,
        // Optimised as in its own makefile; its functions under names of their own (see
        // `preload/allocators/hardened/src/lib.rs`); and a header that compilers before C23 need.
        flags: &["-O3", "-DH_MALLOC_PREFIX", "-include", "stdalign.h"],
    },
    Recipe {
        name: "tcmalloc_percpu",
        source: "libtcmalloc-sys",
        language: Language::Cpp,
        // TCMalloc has no releases; the crate's number is all that distinguishes its states.
        version: VersionSource::Crate,
        // As in its own release build: no assertions, no exceptions.
        flags: &["-DNDEBUG", "-fno-exceptions"],
    },
];

// One object: compiled, proved, installed.

/// Where the objects' workspace is, relative to the repository.
const WORKSPACE: &str = "preload/allocators";
/// The program that proves an object.
const PROOF: &str = "proof";

/// The directories of a build, and what the objects' workspace consists of.
struct RunContext {
    workspace: PathBuf,
    /// Where objects go.
    out: PathBuf,
    /// Cargo's own directory for them, apart from that of everything else.
    target: PathBuf,
    metadata: Value,
}

impl RunContext {
    /// Finds the directories; fetches the crates that are missing.
    pub(crate) fn open() -> Result<Self, String> {
        let ours = metadata()?;
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
        let origin = describe(recipe, source, compiler)?;
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
        // An undefined symbol must fail here, not inside a user's server.
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
        .map_err(|error| format!("cargo metadata gave no readable output: {error}"))
}

/// Copies a file unless it is there already. The new one appears whole: a running target may have
/// the old one mapped, and the lab may be reading the directory.
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
#[path = "tests/allocators.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/compiler.rs"]
mod compiler_tests;

#[cfg(test)]
#[path = "tests/origin.rs"]
mod origin_tests;

#[cfg(test)]
#[path = "tests/recipe.rs"]
mod recipe_tests;

#[cfg(test)]
#[path = "tests/build.rs"]
mod build_tests;
