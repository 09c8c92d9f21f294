//! The tarball and the Debian package.

use super::{Build, Release, at, output_of, succeed, tree};
use crate::step::{cargo_tool, has_cargo_tool, run_command};
use crate::tally::TestTally;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packs the stage with `program` in it, in a directory of its name.
pub(super) fn tarball(
    program: &Path,
    stage: &Path,
    release: &Release,
    output: &Path,
) -> Result<PathBuf, String> {
    let title = release.title();
    let directory = output.join(&title);
    succeed(Command::new("cp").arg("-r").arg(stage).arg(&directory))?;
    tree::copy(program, &directory.join("bin/millpond"))?;
    let install = directory.join("INSTALL");
    let text = install_text(&libraries_of(program)?);
    fs::write(&install, text).map_err(|error| at(&install, error))?;
    let archive = output.join(format!("{title}.tar.gz"));
    let mut tar = Command::new("tar");
    // The same bytes whoever packs them, and whenever.
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
    ]);
    tar.arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(output)
        .arg(&title);
    succeed(&mut tar)?;
    Ok(archive)
}

/// What the program asks the dynamic linker for.
fn libraries_of(program: &Path) -> Result<Vec<String>, String> {
    let table = output_of(Command::new("readelf").arg("-d").arg(program))?;
    let libraries = table.lines().filter(|line| line.contains("(NEEDED)"));
    let names = libraries.filter_map(|line| line.split(['[', ']']).nth(1));
    Ok(names.map(str::to_owned).collect())
}

fn install_text(libraries: &[String]) -> String {
    let libraries = libraries.join(" ");
    format!(
        "Millpond runs from any directory:

  bin/millpond doctor      what this machine allows
  bin/millpond --help

It needs {libraries}
and nothing else.

For all users, as root:

  cp -r bin lib share /usr/local/ && cp -r etc/millpond /etc/
  sed -i 's|/usr/bin/millpond|/usr/local/bin/millpond|' \\
      /usr/local/lib/systemd/system/millpond.service
  systemctl daemon-reload && systemctl enable --now millpond.socket

share/ has manual pages (man millpond) and completions for bash, zsh and fish.
"
    )
}

/// Packs the stage with the program that was built.
pub(super) fn debian(build: Build, stage: &Path, output: &Path) -> Result<PathBuf, String> {
    if !has_cargo_tool("deb") {
        return Err("cargo-deb is missing: scripts/setup verify installs it".to_owned());
    }
    // As the assets in crates/cli/Cargo.toml name it.
    let program = output.join("millpond");
    tree::copy(&program, &stage.join("bin/millpond"))?;
    let mut command = cargo_tool("deb");
    command.args([
        "--package",
        "millpond",
        "--no-build",
        "--no-strip",
        "--locked",
    ]);
    if build == Build::Smoke {
        command.args(["--profile", "dev"]);
    }
    command.arg("--output").arg(output);
    if !run_command(&mut command, &mut TestTally::default())? {
        return Err("cargo-deb failed; why is printed above".to_owned());
    }
    fs::remove_dir_all(stage.join("bin")).map_err(|error| at(stage, error))?;
    let entries = fs::read_dir(output).map_err(|error| at(output, error))?;
    let mut files = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    files
        .find(|file| file.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| format!("cargo-deb left no package in {}", output.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a program's libraries are found, this one's among them.
    #[test]
    fn libraries_are_those_of_the_linker() {
        let own = std::env::current_exe().unwrap();
        let libraries = libraries_of(&own).unwrap();
        assert!(libraries.contains(&"libc.so.6".to_owned()), "{libraries:?}");
        assert!(install_text(&libraries).contains("libc.so.6"));
    }
}
