//! Deliberate mistakes, each of which the fast tier has to catch.
//!
//! Tests that pass say little unless some of them fail when the program is wrong. So each entry of
//! `table` is made in a copy of the working tree, and the tests of its package run: one has to fail,
//! or to hang. A mistake that survives fails the run. So does one that no longer applies or does not
//! compile, since it proves nothing. The mistakes are chosen by hand: most of those that a program makes up
//! change nothing that a user could notice.

mod table;

use std::collections::HashSet;
use std::fs;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use table::{MUTANTS, Mutant};

use xtask::{TestTally, cargo_tool, has_cargo_tool, metadata, run_by_lines, target_directory};

/// The exit status of nextest when a test failed, and of cargo when something did not compile.
const TEST_FAILED: i32 = 100;
const DOES_NOT_COMPILE: i32 = 101;
/// nextest's, when the filter names no test.
const NO_TESTS: i32 = 4;

/// The outcome of a mutant.
#[derive(Debug, Eq, PartialEq)]
enum Verdict {
    /// By this test.
    Caught(String),
    Survived,
    DoesNotCompile,
}

/// Makes each mistake, or those that are named, and runs the tests that have to notice.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    if !has_cargo_tool("nextest") {
        return Err("cargo-nextest is missing: scripts/setup test installs it".to_owned());
    }
    let mutants = chosen(names)?;
    let bench = Bench::prepare()?;
    for mutant in &mutants {
        mutant.applied_to(&bench.copy.read(mutant.file)?)?;
    }
    println!("without a mistake:");
    for (package, filter) in runs_of(&mutants) {
        bench.expect_success(package, filter)?;
    }
    println!("with one mistake each:");
    let started = Instant::now();
    let mut caught_count = 0;
    for mutant in &mutants {
        caught_count += usize::from(bench.try_out(mutant)?);
    }
    let seconds = started.elapsed().as_secs_f64();
    let total = mutants.len();
    println!("{caught_count} of {total} caught in {seconds:.0} s");
    match caught_count == total {
        true => Ok(()),
        false => Err(format!(
            "the fast tier does not catch every mistake: write a test for each that survived; what the \
             tests said is in {}",
            bench.logs.display()
        )),
    }
}

/// Those of these names; all if there are none.
fn chosen(names: &[&str]) -> Result<Vec<&'static Mutant>, String> {
    if names.is_empty() {
        return Ok(MUTANTS.iter().collect());
    }
    let named = |name: &&str| {
        let found = MUTANTS.iter().find(|mutant| mutant.name == *name);
        found.ok_or_else(|| {
            let known: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
            format!(
                "no mistake is called {name}: choose of {}",
                known.join(", ")
            )
        })
    };
    names.iter().map(named).collect()
}

/// The package and filter of each run of tests, once, in order.
fn runs_of(mutants: &[&'static Mutant]) -> Vec<(&'static str, &'static str)> {
    let mut runs = Vec::new();
    for mutant in mutants {
        let run = (mutant.package, mutant.filter);
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    runs
}

impl Mutant {
    /// The text with the mistake in it.
    fn applied_to(&self, text: &str) -> Result<String, String> {
        match text.matches(self.before).count() {
            1 => Ok(text.replacen(self.before, self.after, 1)),
            count => Err(format!(
                "{} no longer applies: what it replaces occurs {count} times in {}; write it anew in \
                 xtask/src/mutants/table.rs",
                self.name, self.file
            )),
        }
    }
}

/// Where mistakes are made and tried out.
struct Bench {
    copy: Copy,
    target: PathBuf,
    logs: PathBuf,
}

impl Bench {
    fn prepare() -> Result<Self, String> {
        let source = metadata()?["workspace_root"]
            .as_str()
            .map(PathBuf::from)
            .ok_or("cargo names no workspace")?;
        let home = target_directory()?.join("mutants");
        let logs = home.join("logs");
        fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
        Ok(Self {
            copy: Copy::refresh(&source, home.join("tree"))?,
            target: home.join("target"),
            logs,
        })
    }

    /// Where the mistake is missing, all tests have to pass.
    fn expect_success(&self, package: &str, filter: &str) -> Result<(), String> {
        let started = Instant::now();
        let name = format!("without {package} {filter}").replace([' ', ':'], "_");
        let ended = self.nextest(&name, package, filter, &[])?;
        let seconds = started.elapsed().as_secs_f64();
        println!("{:<10} {package} {filter} {seconds:.1} s", ended.word());
        match ended.code {
            Some(0) => Ok(()),
            Some(NO_TESTS) => Err(format!("`{filter}` names no test of {package}")),
            _ => Err(format!(
                "the tests have to pass before mistakes are made: {} ({})",
                ended.first_failure().unwrap_or("they do not compile"),
                ended.log.display()
            )),
        }
    }

    /// Makes one mistake, says what became of it, and takes it back. Whether it was caught.
    fn try_out(&self, mutant: &Mutant) -> Result<bool, String> {
        let started = Instant::now();
        let text = mutant.applied_to(&self.copy.read(mutant.file)?)?;
        let verdict = self.copy.with(mutant.file, &text, || self.judge(mutant))?;
        let seconds = started.elapsed().as_secs_f64();
        let name = mutant.name;
        let line = match &verdict {
            Verdict::Caught(test) => format!("caught     {name} {seconds:.1} s, by {test}"),
            Verdict::Survived => format!("SURVIVED   {name} {seconds:.1} s: {}", mutant.why),
            Verdict::DoesNotCompile => {
                format!("NO PROGRAM {name} {seconds:.1} s: it does not compile")
            }
        };
        println!("{line}");
        Ok(matches!(verdict, Verdict::Caught(_)))
    }

    fn judge(&self, mutant: &Mutant) -> Result<Verdict, String> {
        let Mutant {
            name,
            package,
            filter,
            ..
        } = mutant;
        let built = self.nextest(name, package, filter, &["--no-run"])?;
        match built.code {
            Some(0) => {}
            Some(DOES_NOT_COMPILE) => return Ok(Verdict::DoesNotCompile),
            _ => return Err(built.complaint()),
        }
        let ended = self.nextest(name, package, filter, &[])?;
        match (ended.code, ended.first_failure()) {
            (Some(0), _) => Ok(Verdict::Survived),
            (Some(TEST_FAILED), Some(test)) => Ok(Verdict::Caught(test.to_owned())),
            _ => Err(ended.complaint()),
        }
    }

    /// Builds test programs of the copy and, without `--no-run` among the words, runs their tests.
    fn nextest(
        &self,
        log: &str,
        package: &str,
        filter: &str,
        words: &[&str],
    ) -> Result<Ended, String> {
        let mut command = cargo_tool("nextest");
        command.args(["run", "--locked", "--profile", "mutants"]);
        command.args(["--package", package]).args(words);
        command.args(filter.split_whitespace());
        command.current_dir(self.copy.root());
        command.env("CARGO_TARGET_DIR", &self.target);
        command.env("RUST_BACKTRACE", "0");
        Ended::of(command, self.logs.join(format!("{log}.txt")))
    }
}

/// A run of nextest.
struct Ended {
    code: Option<i32>,
    /// The tally's text: a line for each test that failed, and what it said.
    summary: String,
    log: PathBuf,
}

impl Ended {
    /// Runs it to its end; what it prints goes to `log`.
    fn of(mut command: Command, log: PathBuf) -> Result<Self, String> {
        let cannot_run = |error: std::io::Error| format!("{}: {error}", log.display());
        let mut file = File::create(&log).map_err(cannot_run)?;
        let mut tally = TestTally::default();
        let status = run_by_lines(command.stdin(Stdio::null()), |line| {
            tally.add_line(&String::from_utf8_lossy(line));
            file.write_all(line)?;
            file.write_all(b"\n")
        });
        Ok(Self {
            code: status.map_err(cannot_run)?.code(),
            summary: tally.to_string(),
            log,
        })
    }

    fn word(&self) -> &'static str {
        match self.code {
            Some(0) => "ok",
            _ => "FAILED",
        }
    }

    fn first_failure(&self) -> Option<&str> {
        let mut lines = self.summary.lines();
        lines.find_map(|line| line.strip_prefix("failed: "))
    }

    fn complaint(&self) -> String {
        let log = self.log.display();
        match self.code {
            Some(NO_TESTS) => format!("no test ran ({log})"),
            code => format!("cargo nextest ended with {code:?} and names no failed test ({log})"),
        }
    }
}

// The copy of the working tree that mistakes are made in: the user's own files are only read.
//
// It stays from run to run, and only files that changed are written, so that cargo compiles what
// changed. Cargo takes a file for changed that is newer than what was compiled from it, and a
// mistake that is taken back has to be compiled anew.

/// In a directory that we made, and may overwrite and delete in.
const MARK: &str = ".made-by-xtask-mutants";

/// A copy of the working tree.
struct Copy {
    root: PathBuf,
}

impl Copy {
    /// Makes the copy of `source` in `root`, or brings it up to date.
    fn refresh(source: &Path, root: PathBuf) -> Result<Self, String> {
        let mark = root.join(MARK);
        if root.exists() && !mark.exists() {
            return Err(format!(
                "{} was not made by this command: delete it, or move it away",
                root.display()
            ));
        }
        let at = |error| cannot("write", &mark, &error);
        fs::create_dir_all(&root).map_err(at)?;
        fs::write(&mark, "Overwritten by `cargo xtask mutants`.\n").map_err(at)?;
        let copy = Self { root };
        let mut kept = HashSet::from([PathBuf::from(MARK)]);
        for file in files_of(source)? {
            if copy.take(source, &file)? {
                kept.insert(file);
            }
        }
        copy.delete_others(&copy.root, &kept)?;
        Ok(copy)
    }

    fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file of the copy.
    fn read(&self, file: &str) -> Result<String, String> {
        let path = self.root.join(file);
        fs::read_to_string(&path).map_err(|error| cannot("read", &path, &error))
    }

    /// Runs `work` while `file` has another text, and gives it back what it had.
    fn with<R>(
        &self,
        file: &str,
        text: &str,
        work: impl FnOnce() -> Result<R, String>,
    ) -> Result<R, String> {
        let path = self.root.join(file);
        let original = fs::read(&path).map_err(|error| cannot("read", &path, &error))?;
        let write =
            |bytes: &[u8]| fs::write(&path, bytes).map_err(|error| cannot("write", &path, &error));
        write(text.as_bytes())?;
        let result = work();
        write(&original)?;
        result
    }

    /// Copies a file that differs; false if it is not there: deleted, and not yet out of the index.
    fn take(&self, source: &Path, file: &Path) -> Result<bool, String> {
        let (from, to) = (source.join(file), self.root.join(file));
        let bytes = match fs::read(&from) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(cannot("read", &from, &error)),
        };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            return Ok(true);
        }
        let at = |error| cannot("write", &to, &error);
        if let Some(directory) = to.parent() {
            fs::create_dir_all(directory).map_err(at)?;
        }
        fs::write(&to, bytes).map_err(at)?;
        let mode = fs::metadata(&from).map_err(at)?.permissions();
        fs::set_permissions(&to, mode).map_err(at)?;
        Ok(true)
    }

    /// Deletes files that are not `kept`: cargo would take what is left of a test for a test.
    fn delete_others(&self, directory: &Path, kept: &HashSet<PathBuf>) -> Result<(), String> {
        let at = |error| cannot("read", directory, &error);
        for entry in fs::read_dir(directory).map_err(at)? {
            let entry = entry.map_err(at)?;
            let path = entry.path();
            if entry.file_type().map_err(at)?.is_dir() {
                self.delete_others(&path, kept)?;
            } else if !path
                .strip_prefix(&self.root)
                .is_ok_and(|file| kept.contains(file))
            {
                fs::remove_file(&path).map_err(|error| cannot("delete", &path, &error))?;
            }
        }
        Ok(())
    }
}

/// All files of a working tree but those that git ignores, relative to it.
fn files_of(source: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(source)
        .output()
        .map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git ls-files failed: {}", words.trim()));
    }
    let names = output.stdout.split(|&byte| byte == 0);
    let names = names.filter(|name| !name.is_empty());
    Ok(names
        .map(|name| PathBuf::from(std::ffi::OsStr::from_bytes(name)))
        .collect())
}

fn cannot(verb: &str, path: &Path, error: &std::io::Error) -> String {
    format!("cannot {verb} {}: {error}", path.display())
}

#[cfg(test)]
#[path = "tests/mutants.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/copy.rs"]
mod copy_tests;
