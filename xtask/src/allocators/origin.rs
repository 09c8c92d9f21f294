//! Where an object came from, as the small file beside it says.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::compiler::Compiler;
use super::recipe::{Recipe, VersionSource};

/// The crate that an allocator's sources are in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    /// Its directory.
    pub(crate) directory: &'a Path,
    /// Its version.
    pub(crate) version: &'a str,
}

/// What `libmillpond-NAME.json` holds; the lab reads `version`.
pub(crate) fn describe(
    recipe: &Recipe,
    source: Source<'_>,
    compiler: &Compiler,
) -> Result<Value, String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a number in a header becomes the version people know.
    #[test]
    fn numbers_become_versions() {
        let header = "#ifndef X\n#define MI_MALLOC_VERSION 30302   // major + 2 digits minor\n";
        assert_eq!(
            definition(header, "MI_MALLOC_VERSION").as_deref(),
            Some("3.3.2")
        );
        assert_eq!(definition(header, "MI_VERSION"), None);
        let metadata = build_metadata("0.7.1+5.3.1-0-g81034ce1f1");
        assert_eq!(metadata.as_deref(), Some("5.3.1"));
        assert_eq!(build_metadata("0.7.1"), None);
    }

    /// Goal: a file that says something else is an error, not a version.
    #[test]
    fn a_first_line_that_is_no_version_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let source = Source {
            directory: directory.path(),
            version: "9",
        };
        let from = VersionSource::FirstLine { file: "CHANGELOG" };
        fs::write(directory.path().join("CHANGELOG"), "1.4.3\n\nFixed\n").unwrap();
        assert_eq!(version(from, source).unwrap(), "1.4.3");
        fs::write(directory.path().join("CHANGELOG"), "Changes\n").unwrap();
        assert!(version(from, source).is_err());
        assert_eq!(version(VersionSource::Crate, source).unwrap(), "9");
    }
}
