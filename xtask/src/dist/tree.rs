//! The files that belong to the command, in one directory laid out as below a prefix.

use super::{at, succeed};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Files of this repository and where they go.
const FILES: [(&str, &str); 10] = [
    (
        "packaging/systemd/millpond.service",
        "lib/systemd/system/millpond.service",
    ),
    (
        "packaging/systemd/millpond.socket",
        "lib/systemd/system/millpond.socket",
    ),
    ("packaging/millpond.toml", "etc/millpond/millpond.toml"),
    ("README.md", "share/doc/millpond/README.md"),
    ("CHANGELOG.md", "share/doc/millpond/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/millpond/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/millpond/LICENSE-MIT"),
    ("docs/operating.md", "share/doc/millpond/docs/operating.md"),
    ("docs/measuring.md", "share/doc/millpond/docs/measuring.md"),
    (
        "docs/architecture.md",
        "share/doc/millpond/docs/architecture.md",
    ),
];

/// All but the program, which makes its own pages.
pub(super) fn common(program: &Path, stage: &Path) -> Result<(), String> {
    succeed(Command::new(program).arg("pages").arg(stage.join("share")))?;
    for (file, place) in FILES {
        copy(Path::new(file), &stage.join(place))?;
    }
    Ok(())
}

/// With the directories above it.
pub(super) fn copy(file: &Path, place: &Path) -> Result<(), String> {
    let parent = place.parent().unwrap_or(place);
    fs::create_dir_all(parent).map_err(|error| at(parent, error))?;
    fs::copy(file, place)
        .map(drop)
        .map_err(|error| at(file, error))
}
