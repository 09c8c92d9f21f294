use super::*;

#[test]
fn reads_this_machine() {
    let environment = Environment::capture();
    assert!(environment.kernel.contains('.'), "{environment:?}");
    assert!(environment.cpus >= 1);
    assert!(
        environment
            .memory_bytes
            .is_some_and(|bytes| bytes > 16 << 20)
    );
    assert!(environment.lines().len() >= 7);
    assert!(environment.page_bytes.is_some_and(|bytes| bytes >= 4096));
}

/// Goal: the report shows which variables of the shell there were and whether candidates had them.
#[test]
fn inherited_variables_are_told() {
    let mut found = InheritedVariables::default();
    assert_eq!(found.describe(), None);
    found.allocator = vec!["MALLOC_ARENA_MAX=1".to_owned()];
    let told = |found: &InheritedVariables| found.describe().unwrap_or_default();
    assert_eq!(told(&found), "MALLOC_ARENA_MAX=1 (dropped)");
    found.kept = true;
    found.runtime = vec!["PYTHONMALLOC=malloc".to_owned()];
    assert_eq!(
        told(&found),
        "MALLOC_ARENA_MAX=1 (part of every candidate); PYTHONMALLOC=malloc (part of every candidate)"
    );
    let environment = Environment {
        inherited_variables: Some(found),
        ..Environment::default()
    };
    let lines = environment.lines();
    assert!(
        lines
            .iter()
            .any(|(name, _)| *name == "allocator variables of the shell")
    );
}

#[test]
fn picks_values_out_of_kernel_text() {
    assert_eq!(bracketed("always [madvise] never"), Some("madvise"));
    assert_eq!(bracketed("nothing"), None);
    assert_eq!(
        memory_total("MemFree: 1 kB\nMemTotal:     1024 kB\n"),
        Some(1 << 20)
    );
    assert_eq!(memory_total("MemTotal: many"), None);
    let info = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n";
    assert_eq!(
        value_of(info, "model name", ':').as_deref(),
        Some("Some CPU @ 2 GHz")
    );
    assert!(virtualisation(info).is_some_and(|text| text.contains("virtual machine")));
}
