//! `millpond allocators`: what can be compared here, and how to get the rest.

use crate::output::{self, Exit, Failure};
use clap::Args;
use millpond_lab::allocator::{self, CatalogueEntry, NOT_TO_BE_HAD};
use millpond_measure::report::lines::wrapped;
use std::fmt::Write as _;
use std::path::PathBuf;

/// List the memory allocators that `millpond compare` can compare here
///
/// For each its version and the file, or how to get it; then the settings it takes, each of which makes
/// another candidate.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  millpond allocators
  millpond allocators --extract /usr/local/lib
  millpond compare --allocators glibc,jemalloc,mine=/path/to/library.so
  millpond compare --allocators glibc,glibc:arena_max=2,jemalloc:narenas=2")]
pub(crate) struct AllocatorsFlags {
    /// Write the objects that are part of this program into DIR, to be preloaded anywhere: libmillpond-mempool.so, our
    /// pools as malloc, and libmillpond-trim.so, the thread of glibc+trim; a file that is there is not replaced
    #[arg(long, value_name = "DIR")]
    extract: Option<PathBuf>,
}

impl AllocatorsFlags {
    pub(super) fn run(self) -> Result<Exit, Failure> {
        if let Some(directory) = &self.extract {
            for path in allocator::extract(directory).map_err(Failure::failed)? {
                output::print(format_args!("{}\n", path.display()))?;
            }
            return Ok(Exit::Success);
        }
        output::print(list(&allocator::catalogue()))?;
        Ok(Exit::Success)
    }
}

/// The widest name, and a blank.
const NAME_WIDTH: usize = 10;

fn list(entries: &[CatalogueEntry]) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        // A String takes any text.
        let _ = writeln!(text, "{words}");
    };
    for entry in entries {
        let name = entry.name;
        match (&entry.place, &entry.remedy) {
            (Some(place), _) => {
                let version = entry.version.as_deref().unwrap_or("version unknown");
                line(format_args!("{name:<NAME_WIDTH$} {version}"));
                line(format_args!("{:<NAME_WIDTH$} {place}", ""));
            }
            (None, remedy) => {
                let remedy = remedy.as_deref().unwrap_or_default();
                line(format_args!("{name:<NAME_WIDTH$} not here: {remedy}"));
            }
        }
    }
    line(format_args!(
        "\nAny other: --allocators NAME=/path/to/library.so\n{}",
        wrapped(&format!("{NOT_TO_BE_HAD}."), WIDTH, "")
    ));
    line(format_args!(
        "Settings, as in --allocators jemalloc:narenas=2,dirty_decay_ms=0; often used:"
    ));
    for entry in entries.iter().filter(|entry| !entry.settings.is_empty()) {
        line(format_args!(
            "{:<NAME_WIDTH$} {}",
            entry.name, entry.settings
        ));
        line(format_args!("{:<NAME_WIDTH$} by {}", "", entry.variable));
    }
    let rule = "Each allocator is asked before a comparison whether it takes a setting; what it would \
                pass over is refused.";
    text + &wrapped(rule, WIDTH, "")
}

/// The list is for a terminal of any width, and read in logs too.
const WIDTH: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what is here shows its version and file, what is not how to get it.
    #[test]
    fn both_kinds_of_lines() {
        let here = CatalogueEntry {
            name: "jemalloc",
            version: Some("5.3.0-1 (libjemalloc2)".to_owned()),
            place: Some("/lib/libjemalloc.so.2".to_owned()),
            remedy: None,
            settings: "narenas",
            variable: "MALLOC_CONF",
        };
        let missing = CatalogueEntry {
            name: "snmalloc",
            version: None,
            place: None,
            remedy: Some("cargo xtask allocators --only snmalloc".to_owned()),
            settings: "",
            variable: "",
        };
        let text = list(&[here, missing]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            [
                "jemalloc   5.3.0-1 (libjemalloc2)",
                "           /lib/libjemalloc.so.2",
                "snmalloc   not here: cargo xtask allocators --only snmalloc"
            ]
        );
        assert!(text.replace('\n', " ").contains("in no package registry"));
        assert!(
            lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("by MALLOC_CONF") && !text.contains("by \n"));
    }
}
