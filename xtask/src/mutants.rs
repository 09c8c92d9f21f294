//! Deliberate mistakes, each of which the fast tier has to catch.
//!
//! Tests that pass say little unless some of them fail when the program is wrong. So each entry of
//! `table` is made in a copy of the working tree, and the tests of its package run: one has to fail,
//! or to hang. A mistake that survives fails the run. So does one that no longer applies or does not
//! compile, since it proves nothing. The mistakes are chosen by hand: most of those that a program makes up
//! change nothing that a user could notice.

mod copy;
mod table;

use crate::metadata::{metadata, target_directory};
use crate::step::{cargo_tool, has_cargo_tool, run_by_lines};
use crate::tally::TestTally;
use copy::Copy;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;
use table::{MUTANTS, Mutant};

/// What nextest ends with when a test failed, and cargo when something did not compile.
const TEST_FAILED: i32 = 100;
const DOES_NOT_COMPILE: i32 = 101;
/// nextest's, when the filter names no test.
const NO_TESTS: i32 = 4;

/// What became of a mistake.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::path::Path;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    /// Goal: the list stays alive: each entry applies to the source as it is now, and changes it.
    #[test]
    fn every_mistake_applies() {
        let mut complaints = Vec::new();
        for mutant in MUTANTS {
            let text = fs::read_to_string(root().join(mutant.file)).unwrap_or_default();
            match mutant.applied_to(&text) {
                Ok(changed) => assert_ne!(changed, text, "{}", mutant.name),
                Err(sentence) => complaints.push(sentence),
            }
        }
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    /// Goal: names are unique, at least twenty mistakes are made, and each is for tests of a package that
    /// exists.
    #[test]
    fn every_package_exists() {
        let workspace = metadata().unwrap();
        let packages: HashSet<&str> = workspace["packages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|package| package["name"].as_str())
            .collect();
        let names: HashSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert!(MUTANTS.len() >= 20 && names.len() == MUTANTS.len());
        for mutant in MUTANTS {
            assert!(packages.contains(mutant.package), "{}", mutant.package);
            assert!(!mutant.why.is_empty() && !mutant.filter.is_empty());
        }
    }

    /// Goal: a mistake whose place is not unique is refused, with what to do.
    #[test]
    fn an_ambiguous_mistake_is_refused() {
        let mutant = &MUTANTS[0];
        let once = mutant.before;
        assert_eq!(mutant.applied_to(once).as_deref(), Ok(mutant.after));
        for text in [String::new(), format!("{once}{once}")] {
            let refusal = mutant.applied_to(&text);
            assert!(refusal.is_err_and(|sentence| sentence.contains("no longer applies")));
        }
    }

    /// Goal: names choose, and an unknown one is answered with those that there are.
    #[test]
    fn names_choose() {
        assert_eq!(chosen(&[]).unwrap().len(), MUTANTS.len());
        let both = chosen(&[MUTANTS[3].name, MUTANTS[1].name]).unwrap();
        assert_eq!(
            (both[0].name, both[1].name),
            (MUTANTS[3].name, MUTANTS[1].name)
        );
        assert!(chosen(&["mistake"]).is_err_and(|sentence| sentence.contains(MUTANTS[0].name)));
    }

    /// Goal: of a run that failed, its code and its first failed test are known, and its log is kept.
    #[test]
    fn a_failed_run_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "printf '%s\\n' '---- wheel::turns stdout ----' 'it stands'; exit 100",
        ]);
        let ended = Ended::of(command, log.clone()).unwrap();
        assert_eq!(ended.code, Some(TEST_FAILED));
        assert_eq!(ended.first_failure(), Some("wheel::turns"));
        assert!(fs::read_to_string(log).unwrap().contains("it stands"));
    }
}
