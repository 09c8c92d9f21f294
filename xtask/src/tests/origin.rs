use super::*;

/// Goal: a number in a header becomes the public version.
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
