use super::super::FindingState;
use super::super::machine::tests::planted;
use super::*;

fn facts(lines: &[&str]) -> Facts {
    Facts::parse(&lines.join("\n")).unwrap()
}

fn found(lines: &[&str], name: &str) -> Finding {
    let all = findings(&facts(lines), None);
    all.into_iter().find(|one| one.name == name).unwrap()
}

/// Goal: facts of a machine are written and read again unchanged, and so are those written by a shell; a text without
/// any is refused.
#[test]
fn facts_are_written_and_read() {
    let limits = "Max address space         1073741824           unlimited            bytes\n";
    let (_root, machine) = planted(&[
        (
            "proc/self/smaps",
            "00-01 r--p\nSize:  4 kB\nKernelPageSize:       16 kB\n",
        ),
        ("proc/sys/kernel/osrelease", "6.1.0-49-amd64\n"),
        ("proc/self/limits", limits),
        ("proc/sys/vm/max_map_count", "65530\n"),
        ("proc/sys/vm/overcommit_memory", "2\n"),
        (
            "sys/kernel/mm/transparent_hugepage/enabled",
            "[always] madvise never\n",
        ),
    ]);
    let facts = Facts::of(&machine);
    let text = facts.to_text();
    for line in [
        "page_bytes=16384",
        "address_space_kib=1048576",
        "overcommit=2",
    ] {
        assert!(text.lines().any(|one| one == line), "{text}");
    }
    assert_eq!(Facts::parse(&text), Ok(facts));
    let shell = "page_bytes=4096\nlibc=ldd (Debian GLIBC 2.31-13+deb11u11) 2.31\nmoon=full\n";
    let shell = Facts::parse(shell).unwrap();
    assert_eq!((shell.glibc(), shell.values.len()), (Some((2, 31)), 2));
    assert!(
        Facts::parse("<html>\na=b\n")
            .unwrap_err()
            .contains("page_bytes=4096")
    );
    let own = Facts::of(&Machine::this());
    assert!(own.glibc().is_some_and(|glibc| glibc > (2, 0)), "{own:?}");
}

/// Goal: each fact that changes what an allocator does is reported with its meaning, and a usual machine passes.
#[test]
fn each_fact_has_its_meaning() {
    for (line, name, meaning) in [
        ("page_bytes=65536", "page size", "64 KiB: a jemalloc"),
        (
            "kernel=3.10.0-1160.el7",
            "rseq",
            "has no restartable sequences",
        ),
        ("kernel=6.19.2-arch1", "rseq", "crash from 6.19 on"),
        (
            "libc=musl libc (x86_64)",
            "C library",
            "cannot be preloaded",
        ),
        (
            "huge_pages=[always] madvise never",
            "THP",
            "hold more memory",
        ),
        ("max_map_count=1000", "mappings", "malloc fails"),
        (
            "address_space_kib=4194304",
            "address space",
            "fail there while memory is free",
        ),
        ("overcommit=2", "overcommit", "fail early"),
    ] {
        let finding = found(&[line], name);
        assert_eq!(finding.state, FindingState::Weak, "{finding:?}");
        assert!(finding.found.contains(meaning), "{finding:?}");
        assert!(finding.remedy.is_some(), "{finding:?}");
    }
    let usual = [
        "page_bytes=4096",
        "kernel=6.1.0-49-amd64",
        "libc=2.36 (Debian GLIBC 2.36-9)",
        "huge_pages=always [madvise] never",
        "max_map_count=65530",
        "overcommit=0",
        "address_space_kib=unlimited",
    ];
    let usual = facts(&usual);
    let all = findings(&usual, Some(&usual));
    assert_eq!(all.len(), 7);
    assert!(
        all.iter().all(|one| one.state == FindingState::Ok),
        "{all:?}"
    );
    let rseq = all.iter().find(|one| one.name == "rseq").unwrap();
    assert!(rseq.found.contains("glibc.pthread.rseq=0"), "{rseq:?}");
}

/// Goal: a program that cannot use a preloaded allocator is recognised by its file, one of musl too.
#[test]
fn programs_are_told_by_their_files() {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("main.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let of = |name: &str, flags: &[&str]| {
        let program = directory.path().join(name);
        let mut compiler = std::process::Command::new("cc");
        let compiler = compiler.args(flags).arg("-o").arg(&program).arg(&source);
        assert!(compiler.status().unwrap().success());
        examine_program(&program).unwrap()
    };
    let plain = of("plain", &[]);
    assert_eq!(plain.state, FindingState::Ok, "{plain:?}");
    let fixed = of("static", &["-static"]);
    assert!(fixed.found.contains("statically linked"), "{fixed:?}");
    let musl = of("musl", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
    assert!(musl.found.contains("linked with musl"), "{musl:?}");
    assert!(examine_program(&source).unwrap().found.contains("script"));
    assert!(examine_program(Path::new("/nowhere")).is_err());
}

/// Goal: what differs from the machine of the comparison is reported beside it, and an older C library is a finding.
#[test]
fn differences_are_told() {
    let here = facts(&[
        "libc=2.36 (x)",
        "huge_pages=always madvise [never]",
        "overcommit=0",
    ]);
    let there = facts(&[
        "libc=2.31 (y)",
        "huge_pages=always [madvise] never",
        "overcommit=0",
    ]);
    let all = findings(&there, Some(&here));
    let of = |name: &str| all.iter().find(|one| one.name == name).unwrap();
    assert_eq!(of("C library").state, FindingState::Weak);
    assert!(of("C library").found.contains("older than the 2.36 here"));
    assert!(
        of("THP")
            .found
            .ends_with("(this machine: huge_pages never)")
    );
    assert!(!of("overcommit").found.contains("this machine"));
}
