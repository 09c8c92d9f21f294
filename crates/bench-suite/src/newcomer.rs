//! The first hour of a new user of this repository: does everything work that the pages say?
//!
//! A fresh clone in a directory of its own, with an empty target directory: the two commands of
//! README.md, its recipes, word by word as they stand there, and every example. The first thing
//! that fails ends the hour, as it would end theirs. Crates that were fetched before are used unless
//! `--crates` asks for none; packages of the system are not taken away.

use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use xtask::{print_tail, run_in_group};

/// No step takes longer, `make test` on two busy CPUs included; one that does hangs.
const STEP_MAX: Duration = Duration::from_secs(3 * 3600);
/// `make compare`, short: its report says itself what more time would show.
const LOOK: &str = "80s";
/// Ports that README.md and the examples use.
const PORTS: [u16; 12] = [
    8080, 8081, 18082, 18083, 18084, 18085, 18086, 18087, 18088, 18089, 18090, 18091,
];
/// Lines of a failed step that are printed.
const TAIL_LINES: usize = 40;
/// Measured, but on too busy a machine to be trusted (see docs/reference/exit-statuses.md): the command works.
const NOT_TRUSTED: i32 = 4;

/// Parts that run only on request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Options {
    /// `make test`, which takes most of an hour by itself.
    test: bool,
    /// Fetch every crate anew.
    crates: bool,
    /// Fetch pandas and matplotlib, and draw with them.
    plots: bool,
    /// `make compare` with the time it takes by itself.
    whole: bool,
}

impl Options {
    pub(crate) fn of(words: &[&str]) -> Result<Self, String> {
        let mut wishes = Self::default();
        for word in words {
            *match *word {
                "--test" => &mut wishes.test,
                "--crates" => &mut wishes.crates,
                "--plots" => &mut wishes.plots,
                "--whole" => &mut wishes.whole,
                _ => {
                    return Err(format!(
                        "newcomer takes no {word}: see cargo bench-suite help"
                    ));
                }
            } = true;
        }
        Ok(wishes)
    }
}

/// A step that was taken.
struct Step {
    name: String,
    took: Duration,
}

/// The hour, as far as it has come.
struct Hour {
    /// Everything is in here.
    directory: PathBuf,
    wishes: Options,
    steps: Vec<Step>,
}

pub(crate) fn run(wishes: Options) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for port in PORTS {
        TcpListener::bind(("127.0.0.1", port))
            .map_err(|error| format!("port {port}, which the recipes use, is taken: {error}"))?;
    }
    let directory = std::env::temp_dir().join(format!("millpond-newcomer-{}", std::process::id()));
    fs::create_dir_all(directory.join("logs"))
        .map_err(|error| format!("{} cannot be made: {error}", directory.display()))?;
    println!("the hour is spent in {}", directory.display());
    let begun = Instant::now();
    let mut hour = Hour {
        directory,
        wishes,
        steps: Vec::new(),
    };
    hour.spend(&root)?;
    hour.summarise(begun.elapsed());
    fs::remove_dir_all(&hour.directory)
        .map_err(|error| format!("{} cannot be removed: {error}", hour.directory.display()))
}

impl Hour {
    fn spend(&mut self, root: &Path) -> Result<(), String> {
        let clone = format!("git clone --quiet '{}' millpond", root.display());
        self.step_in(&self.directory.clone(), "git clone", &clone)?;
        if self.wishes.crates {
            self.keep_cargos_settings()?;
        }
        self.step("make build", "make build")?;
        let budget = match self.wishes.whole {
            true => String::new(),
            false => format!(" ARGS='--time-budget {LOOK}'"),
        };
        self.step("make compare", &format!("make compare{budget}"))?;
        if self.wishes.test {
            self.step("make test", "make test")?;
        }
        let text = fs::read_to_string(self.clone().join("README.md"));
        let text = text.map_err(|error| format!("README.md cannot be read: {error}"))?;
        for (heading, script) in recipes(&text) {
            self.step(&format!("recipe: {heading}"), &script)?;
        }
        for example in examples(&self.clone())? {
            self.step(&example, &example)?;
        }
        let results = "millpond-nginx/results.json";
        self.step(
            "examples/results.py",
            &format!("examples/results.py {results}"),
        )?;
        if self.wishes.plots {
            let plot = "python3 -m venv plots && plots/bin/pip install pandas matplotlib &&\n\
                        plots/bin/python examples/results.py millpond-nginx/results.json nginx.png &&\n\
                        test -s nginx.png";
            self.step("a plot by pandas and matplotlib", plot)?;
        }
        Ok(())
    }

    fn clone(&self) -> PathBuf {
        self.directory.join("millpond")
    }

    fn target(&self) -> PathBuf {
        self.directory.join("target")
    }

    fn cargo_home(&self) -> PathBuf {
        self.directory.join("cargo-home")
    }

    /// With an empty directory for crates, cargo still needs to know where they come from, if the user's has a setting.
    fn keep_cargos_settings(&self) -> Result<(), String> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let made = fs::create_dir_all(self.cargo_home());
        made.map_err(|error| format!("{} cannot be made: {error}", self.cargo_home().display()))?;
        let settings = home.map(|home| home.join("config.toml"));
        if let Some(settings) = settings.filter(|settings| settings.is_file()) {
            let copied = fs::copy(&settings, self.cargo_home().join("config.toml"));
            copied.map_err(|error| format!("{} cannot be copied: {error}", settings.display()))?;
        }
        Ok(())
    }

    fn step(&mut self, name: &str, script: &str) -> Result<(), String> {
        self.step_in(&self.clone(), name, script)
    }

    /// Runs a script of the shell with its output going to a log; what it left running ends with it.
    fn step_in(&mut self, place: &Path, name: &str, script: &str) -> Result<(), String> {
        print!("{name:<44} ");
        // A line that is not whole yet; if it cannot be shown, that is no reason to stop.
        let _ = std::io::stdout().flush();
        let number = self.steps.len() + 1;
        let log = self.directory.join(format!("logs/{number:02}.log"));
        let begun = Instant::now();
        let status = self.run_script(place, script, &log);
        let status = status.map_err(|error| format!("{name} cannot be run: {error}"))?;
        let took = begun.elapsed();
        let is_not_trusted = status.is_some_and(|status| status.code() == Some(NOT_TRUSTED));
        let verdict = match status {
            Some(status) if status.success() => "ok",
            Some(_) if is_not_trusted => "ok, but the machine was too busy to trust it",
            _ => "FAILED",
        };
        println!("{:>8.1} s  {verdict}", took.as_secs_f64());
        if verdict == "FAILED" {
            print_tail(&log, TAIL_LINES);
            let how = status.map_or("it did not end".to_owned(), |status| status.to_string());
            return Err(format!(
                "{name}: {how}; its whole log is {}, and what it ran is\n{script}",
                log.display()
            ));
        }
        self.steps.push(Step {
            name: name.to_owned(),
            took,
        });
        Ok(())
    }

    fn run_script(
        &self,
        place: &Path,
        script: &str,
        log: &Path,
    ) -> std::io::Result<Option<ExitStatus>> {
        let out = File::create(log)?;
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-c", script]);
        command.current_dir(place);
        command.stderr(out.try_clone()?).stdout(out);
        self.set_environment(&mut command);
        run_in_group(&mut command, Instant::now() + STEP_MAX)
    }

    /// The environment right after login: nothing of ours, nothing of the cargo that started us.
    fn set_environment(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            let is_foreign = name.to_str().is_none_or(|name| {
                let starts = [
                    "CARGO_PKG_",
                    "CARGO_MANIFEST_",
                    "CARGO_BIN_",
                    "MILLPOND",
                    "MAKE",
                ];
                starts.iter().any(|start| name.starts_with(start))
                    || ["CARGO", "ENGINE", "ROCKSDB_LIB_DIR", "LD_LIBRARY_PATH"].contains(&name)
            });
            if is_foreign {
                command.env_remove(name);
            }
        }
        let release = self.target().join("release");
        let mut path = OsString::from(&release);
        if let Some(others) = std::env::var_os("PATH") {
            path.push(":");
            path.push(others);
        }
        command.env("PATH", path);
        command.env("MILLPOND", release.join("millpond"));
        command.env("CARGO_TARGET_DIR", self.target());
        if self.wishes.crates {
            command.env("CARGO_HOME", self.cargo_home());
        }
    }

    fn summarise(&self, took: Duration) {
        let until = |name: &str| {
            let end = self.steps.iter().position(|step| step.name == name);
            let steps = &self.steps[..end.map_or(0, |end| end + 1)];
            steps.iter().map(|step| step.took).sum::<Duration>()
        };
        println!(
            "\n{} steps in {:.1} minutes; a binary after {:.1}, the first report after {:.1}",
            self.steps.len(),
            took.as_secs_f64() / 60.0,
            until("make build").as_secs_f64() / 60.0,
            until("make compare").as_secs_f64() / 60.0,
        );
    }
}

/// The scripts among the examples, in the order of their names.
fn examples(root: &Path) -> Result<Vec<String>, String> {
    let directory = root.join("examples");
    let cannot = |error| format!("{} cannot be read: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sh") {
            names.push(format!("examples/{name}"));
        }
    }
    names.sort();
    Ok(names)
}

// The recipes of README.md: blocks that say `sh`, below a heading of the third level.

/// Headings and the scripts below them. A block without a language is a table or what is printed.
fn recipes(text: &str) -> Vec<(String, String)> {
    let (mut recipes, mut heading, mut script) = (Vec::new(), None, None::<String>);
    for line in text.lines() {
        match &mut script {
            Some(lines) if line != "```" => {
                lines.push_str(line);
                lines.push('\n');
            }
            Some(_) => recipes.extend(heading.clone().zip(script.take())),
            None if line == "```sh" => script = heading.as_ref().map(|_: &String| String::new()),
            None => {
                if let Some(title) = line.strip_prefix("### ") {
                    heading = Some(title.to_owned());
                } else if line.starts_with("## ") {
                    heading = None;
                }
            }
        }
    }
    recipes
}

#[cfg(test)]
#[path = "tests/newcomer.rs"]
mod tests;

#[cfg(test)]
#[path = "tests/readme.rs"]
mod readme_tests;
