//! Where results, progress and errors go, and what the exit status says.
//!
//! Results go to stdout, everything else to stderr, so that a pipe gets results only. A closed pipe
//! (`| head`) is not an error. On a terminal, progress is one line that is written over; elsewhere
//! it is plain lines, few enough for a log. `NO_COLOR` and `TERM=dumb` are obeyed.

use clap::error::ErrorKind as Mistake;
use millpond_http::log::{self, LogLevel};
use millpond_lab::LabError;
use millpond_measure::report::terminal::wrapped;
use std::fmt::{self, Display};
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The exit statuses of every command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// Something failed; one sentence on stderr says what.
    Failed,
    /// The command line is wrong; nothing was done.
    Usage,
    /// The measurement was made and printed, and an objective was missed.
    SloMissed,
    /// The measurement was made and printed, but its own checks say not to rely on it.
    NotTrusted,
    /// Ended early because a condition of the user's came true; what was measured is printed.
    Aborted,
    /// Ended early by the user; what was measured until then is printed.
    Interrupted,
    /// As another program ends, whose output is printed.
    Number(u8),
}

impl Exit {
    fn status(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::SloMissed => 3,
            Self::NotTrusted => 4,
            Self::Aborted => 5,
            Self::Interrupted => 130,
            Self::Number(number) => number,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// Ends the program from any thread, whatever the others do.
pub(crate) fn leave(exit: Exit) -> ! {
    std::process::exit(exit.status().into())
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The flags contradict each other or name what does not exist: status 2.
    Usage(String),
    /// The work failed: status 1.
    Failed(String),
}

impl Failure {
    pub(crate) fn usage(sentence: impl Display) -> Self {
        Self::Usage(sentence.to_string())
    }

    pub(crate) fn failed(sentence: impl Display) -> Self {
        Self::Failed(sentence.to_string())
    }

    pub(crate) fn sentence(&self) -> &str {
        match self {
            Self::Usage(sentence) | Self::Failed(sentence) => sentence,
        }
    }
}

/// Of a comparison or a profile. An output directory with foreign files is a wrong command line.
impl From<LabError> for Failure {
    fn from(error: LabError) -> Self {
        match error {
            LabError::ForeignOutput { .. } => Self::usage(error),
            _ => Self::failed(error),
        }
    }
}

/// Says in one sentence what went wrong.
pub(crate) fn report(failure: &Failure) -> Exit {
    let (sentence, exit) = match failure {
        Failure::Usage(sentence) => (sentence, Exit::Usage),
        Failure::Failed(sentence) => (sentence, Exit::Failed),
    };
    log::write_last(for_people(sentence));
    exit
}

/// Help and version are results; the rest of what clap stops for is a wrong command line.
pub(crate) fn report_usage(error: &clap::Error) -> Exit {
    if !error.use_stderr() {
        return match print(error.render()) {
            Ok(()) => Exit::Success,
            Err(failure) => report(&failure),
        };
    }
    let text = error.render().to_string();
    // Help instead of a subcommand that is missing is no sentence.
    let is_help = error.kind() == Mistake::DisplayHelpOnMissingArgumentOrSubcommand;
    let sign = if is_help { "" } else { "millpond: " };
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    // If stderr cannot be written to, there is nowhere to report.
    let _ = write!(io::stderr(), "{sign}{text}");
    Exit::Usage
}

/// A line on stderr, signed.
pub(crate) fn note(sentence: impl Display) {
    log::write(LogLevel::Info, for_people(&sentence.to_string()));
}

/// The same, for what needs action.
pub(crate) fn warn(sentence: impl Display) {
    log::write(LogLevel::Warn, for_people(&sentence.to_string()));
}

/// The prefix of every line about events.
const SIGN: &str = "millpond: ";

/// Set once `--log-format json` was read: lines are for a program then.
static IS_JSON: AtomicBool = AtomicBool::new(false);

pub(crate) fn log_is_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// A sentence as a terminal shows it well: broken between words, where the terminal would break within
/// them. Elsewhere a sentence stays one line.
fn for_people(sentence: &str) -> String {
    let sentence = without_numbers(sentence);
    match io::stderr().is_terminal() && !IS_JSON.load(Ordering::Relaxed) {
        true => hanging(&sentence, width().min(LINE_MAX)),
        false => sentence,
    }
}

/// A longer line is hard to read.
const LINE_MAX: usize = 100;

/// Lines of `columns` at most, as far as words allow, each under the first letter behind the sign. Indented lines, such
/// as a program's last output, stay as they are.
fn hanging(sentence: &str, columns: usize) -> String {
    let columns = columns.saturating_sub(SIGN.len()).max(20);
    let lines: Vec<String> = sentence
        .lines()
        .flat_map(|line| match line.starts_with(' ') {
            true => vec![line.to_owned()],
            false => wrapped(line, columns, "")
                .lines()
                .map(str::to_owned)
                .collect(),
        })
        .collect();
    lines.join(&format!("\n{:width$}", "", width = SIGN.len()))
}

/// The kernel's error text is enough: the number that Rust puts behind it tells the reader nothing more.
fn without_numbers(sentence: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = sentence.split(BEFORE);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
        match rest.strip_prefix(')') {
            Some(rest) if rest.len() + 1 < part.len() => text.push_str(rest),
            _ => {
                text.push_str(BEFORE);
                text.push_str(part);
            }
        }
    }
    text
}

/// Writes a result to stdout.
pub(crate) fn print(text: impl Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match write!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "stdout cannot be written: {error}"
        ))),
        _ => Ok(()),
    }
}

/// A file named on the command line for the record of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct JsonFile(PathBuf);

impl JsonFile {
    /// Flag parser. The directory is checked now: a record that cannot be written after minutes of
    /// work would be lost.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = Path::new(text);
        let directory = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        if path.file_name().is_none() || path.is_dir() {
            return Err("it has to name a file".to_owned());
        }
        if !directory.is_dir() {
            return Err(format!(
                "the directory {} does not exist",
                directory.display()
            ));
        }
        Ok(Self(path.to_owned()))
    }

    /// `-`.
    pub(crate) fn is_stdout(&self) -> bool {
        self.0 == Path::new("-")
    }

    /// Begins it, for what is written while it comes to be.
    pub(crate) fn create(&self) -> Result<File, Failure> {
        let created = match self.is_stdout() {
            true => io::stdout().as_fd().try_clone_to_owned().map(File::from),
            false => File::create(&self.0),
        };
        created.map_err(|error| Failure::failed(format!("{self} cannot be written: {error}")))
    }

    /// Writes the record, whole or not at all.
    pub(crate) fn write(&self, text: &str) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::failed(format!("{} cannot be written: {error}", self.0.display()))
        };
        if self.is_stdout() {
            return print(text);
        }
        // A pipe or a device has no name to rename over.
        if self.0.exists() && !self.0.is_file() {
            return std::fs::write(&self.0, text).map_err(failed);
        }
        let (partial, mut file) = self.create_partial().map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| std::fs::rename(&partial, &self.0))
            .map_err(|error| {
                // Ours, and of no use any more; what could not be written is what is reported.
                let _ = std::fs::remove_file(&partial);
                failed(error)
            })
    }

    /// A new file beside it, under a name that nothing had.
    fn create_partial(&self) -> io::Result<(PathBuf, File)> {
        let mut attempt = 0_u32;
        loop {
            let mut path = self.0.clone().into_os_string();
            path.push(format!(".{}-{attempt}.partial", std::process::id()));
            match File::create_new(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                outcome => return outcome.map(|file| (PathBuf::from(path), file)),
            }
        }
    }
}

impl Display for JsonFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(formatter)
    }
}

/// A time to wait, as a person counts it: `8 s`, `4 min 5 s`.
pub(crate) fn whole_seconds(duration_ns: u64) -> String {
    let seconds = duration_ns.div_ceil(1_000_000_000);
    match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

/// Whether a result may be coloured: stdout is a terminal, and colours are not switched off.
pub(crate) fn colour() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !refused && !is_dumb()
}

/// Columns of the terminal; a result that goes elsewhere gets what reports are made for.
pub(crate) fn width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0))
}

fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|terminal| terminal == "dumb")
}

/// Seldom enough that the log of a run of minutes stays readable.
const PLAIN_LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows how far long work is.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    shown: bool,
    last_plain: Option<Instant>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            terminal: io::stderr().is_terminal() && !is_dumb(),
            shown: false,
            last_plain: None,
        }
    }

    /// Where things stand now: replaces the line on a terminal, and is a line now and then elsewhere.
    pub(crate) fn update(&mut self, state: impl Display) {
        if self.terminal {
            self.shown = true;
            // The line is cut at the right edge, not wrapped, so that one \r is enough to return.
            let _ = write!(io::stderr(), "\r\x1b[?7l\x1b[K{state}\x1b[?7h");
        } else if self
            .last_plain
            .is_none_or(|at| at.elapsed() >= PLAIN_LINE_INTERVAL)
        {
            self.last_plain = Some(Instant::now());
            let _ = writeln!(io::stderr(), "{state}");
        }
    }

    /// A line that stays, above the one that changes.
    pub(crate) fn line(&mut self, text: impl Display) {
        self.clear();
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// Removes the changing line before results are printed.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            self.shown = false;
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
#[path = "tests/output.rs"]
mod tests;
