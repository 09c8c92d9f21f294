use super::*;

/// Goal: an installed allocator shows its version and file, another one how to get it.
#[test]
fn both_kinds_of_lines() {
    let here = CatalogueEntry {
        name: "jemalloc",
        version: Some("5.3.0-1 (libjemalloc2)".to_owned()),
        place: Some("/lib/libjemalloc.so.2".to_owned()),
        remedy: None,
        settings: "narenas",
        variable: "MALLOC_CONF".to_owned(),
    };
    let missing = CatalogueEntry {
        name: "snmalloc",
        version: None,
        place: None,
        remedy: Some("cargo xtask allocators --only snmalloc".to_owned()),
        settings: "",
        variable: String::new(),
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
        lines
            .iter()
            .all(|line| line.chars().count() <= ALLOCATORS_WIDTH),
        "{text}"
    );
    assert!(text.contains("by MALLOC_CONF") && !text.contains("by \n"));
}
