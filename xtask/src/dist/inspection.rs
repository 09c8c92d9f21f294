//! Looking at what was made as those see it who get it.

use super::{at, is_installed, output_of, recreate, succeed};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What both must hold, below their prefix.
const EXPECTED: [&str; 12] = [
    "bin/millpond",
    "share/man/man1/millpond.1",
    "share/man/man1/millpond-serve-entity.1",
    "share/man/man1/millpond-compare.1",
    "share/man/man1/millpond-doctor.1",
    "share/bash-completion/completions/millpond",
    "share/zsh/site-functions/_millpond",
    "share/fish/vendor_completions.d/millpond.fish",
    "share/doc/millpond/README.md",
    "share/doc/millpond/LICENSE-APACHE",
    "share/doc/millpond/LICENSE-MIT",
    "share/doc/millpond/docs/operating.md",
];

/// Shells and how each is asked only to read a file.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/millpond"),
    ("zsh", "share/zsh/site-functions/_millpond"),
    ("fish", "share/fish/vendor_completions.d/millpond.fish"),
];

/// Unpacks it elsewhere and looks at everything in it.
pub(super) fn tarball(archive: &Path, output: &Path) -> Result<(), String> {
    let place = output.join("unpacked-tarball");
    recreate(&place)?;
    succeed(
        Command::new("tar")
            .arg("-xzf")
            .arg(archive)
            .arg("-C")
            .arg(&place),
    )?;
    let mut entries = fs::read_dir(&place).map_err(|error| at(&place, error))?;
    let root = match (entries.next(), entries.next()) {
        (Some(Ok(root)), None) => root.path(),
        _ => {
            return Err(format!(
                "{} holds more than one directory",
                archive.display()
            ));
        }
    };
    prefix(&root)?;
    units(
        &root.join("lib/systemd/system"),
        &root.join("bin/millpond"),
        &place,
    )
}

/// The same for a package, whose files dpkg puts below `/`.
pub(super) fn debian(package: &Path, output: &Path) -> Result<(), String> {
    let listing = output_of(Command::new("dpkg-deb").arg("-c").arg(package))?;
    for file in [
        "./usr/bin/millpond",
        "./lib/systemd/system/millpond.socket",
        "./etc/millpond/millpond.toml",
        "./usr/share/doc/millpond/copyright",
    ] {
        if !listing
            .lines()
            .any(|line| line.ends_with(&format!(" {file}")))
        {
            return Err(format!("{} lacks {file}:\n{listing}", package.display()));
        }
    }
    let fields = output_of(Command::new("dpkg-deb").arg("-f").arg(package))?;
    print!("{fields}");
    let place = output.join("unpacked-package");
    recreate(&place)?;
    succeed(Command::new("dpkg-deb").arg("-x").arg(package).arg(&place))?;
    prefix(&place.join("usr"))?;
    let program = place.join("usr/bin/millpond");
    units(
        &place.join("lib/systemd/system"),
        &program,
        &output.join("units"),
    )
}

/// A prefix as it will be: the program runs, its pages render, its completions are read, and the
/// configuration beside it is taken.
fn prefix(root: &Path) -> Result<(), String> {
    for file in EXPECTED {
        let (plain, packed) = (root.join(file), root.join(format!("{file}.gz")));
        if !plain.is_file() && !packed.is_file() {
            return Err(format!("{} is missing", plain.display()));
        }
    }
    let program = root.join("bin/millpond");
    print!("{}", output_of(Command::new(&program).arg("--version"))?);
    pages(&root.join("share/man/man1"))?;
    for (shell, file) in SHELLS {
        if is_installed(shell) {
            succeed(Command::new(shell).arg("-n").arg(root.join(file)))?;
        } else {
            println!("{shell} is not installed: its completion was not read");
        }
    }
    let config =
        [root.join("etc"), root.join("../etc")].map(|etc| etc.join("millpond/millpond.toml"));
    let config = config.iter().find(|file| file.is_file());
    let config = config.ok_or_else(|| format!("no millpond.toml beside {}", root.display()))?;
    succeed(Command::new(&program).args(["config", "check"]).arg(config))
}

/// Every page, with what troff thinks of it.
fn pages(directory: &Path) -> Result<(), String> {
    if !is_installed("man") {
        println!("man is not installed: the manual pages were not rendered");
        return Ok(());
    }
    let entries = fs::read_dir(directory).map_err(|error| at(directory, error))?;
    let mut count = 0;
    for entry in entries {
        let page = entry.map_err(|error| at(directory, error))?.path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-Tutf8", "-l"])
            .arg(&page);
        let rendered = man.env("MANWIDTH", "80").output();
        let rendered = rendered.map_err(|error| format!("man cannot be run: {error}"))?;
        let said = String::from_utf8_lossy(&rendered.stderr);
        if !rendered.status.success() || !said.trim().is_empty() || rendered.stdout.is_empty() {
            return Err(format!("{} does not render: {said}", page.display()));
        }
        count += 1;
    }
    println!("{count} manual pages render");
    Ok(())
}

/// What systemd says to the units, with the program where it is now.
fn units(directory: &Path, program: &Path, place: &Path) -> Result<(), String> {
    if !is_installed("systemd-analyze") {
        println!("systemd-analyze is not installed: the units were not verified");
        return Ok(());
    }
    let place: PathBuf = place.join("verified-units");
    recreate(&place)?;
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["verify", "--recursive-errors=no", "--man=no"]);
    for name in ["millpond.socket", "millpond.service"] {
        let file = directory.join(name);
        let text = fs::read_to_string(&file).map_err(|error| at(&file, error))?;
        let copy = place.join(name);
        let text = text.replace("/usr/bin/millpond", &program.display().to_string());
        fs::write(&copy, text).map_err(|error| at(&copy, error))?;
        analyze.arg(copy);
    }
    let output = analyze
        .output()
        .map_err(|error| format!("systemd-analyze: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || said.contains("millpond") {
        return Err(format!("systemd-analyze verify: {said}"));
    }
    println!("systemd takes both units");
    Ok(())
}
