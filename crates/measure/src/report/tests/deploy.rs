use super::*;
use crate::record::{Choice, Library};

fn record(allocator: &str, library: Option<&str>) -> ComparisonRecord {
    let mut record = ComparisonRecord::new("1");
    record.candidates = vec![
        CandidateRounds {
            name: "glibc".to_owned(),
            role: Role::Baseline,
            ..CandidateRounds::default()
        },
        CandidateRounds {
            name: format!("{allocator}:a=1"),
            allocator: allocator.to_owned(),
            library: library.map(|path| Library {
                path: path.to_owned(),
                ..Library::default()
            }),
            environment: vec!["CONF=a:1,b:2".to_owned()],
            ..CandidateRounds::default()
        },
    ];
    let choice = |candidate: &str| Choice {
        question: "memory".to_owned(),
        candidate: candidate.to_owned(),
    };
    let name = record.candidates[1].name.clone();
    record.analysis.recommendation.choices = vec![choice("glibc"), choice(&name), choice(&name)];
    record
}

/// Goal: the recommendation is shown once, with the library and its settings in each form; the baseline is not.
#[test]
fn a_winner_can_be_deployed() {
    let found = recommended(&record("jemalloc", Some("/usr/lib/libjemalloc.so.2")));
    let [one] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(
        one.shell(),
        "LD_PRELOAD=/usr/lib/libjemalloc.so.2 CONF=a:1,b:2"
    );
    let text = one.text();
    for part in [
        "Environment=\"CONF=a:1,b:2\"",
        "ENV LD_PRELOAD=\"/usr/lib/libjemalloc.so.2\" CONF=\"a:1,b:2\"",
        "  - name: LD_PRELOAD\n    value: \"/usr/lib/libjemalloc.so.2\"",
        "cargo add tikv-jemallocator",
        "# package: libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora), jemalloc (Alpine",
        "RUN apt-get update && apt-get install -y --no-install-recommends libjemalloc2\nENV LD_PRELOAD=",
        "grep -c libjemalloc.so.2 /proc/PID/maps",
        "\nsudo millpond doctor --pid PID\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Goal: the package is the one that was compared, where that is known; what was built here, or is a version of its own,
/// is in no package.
#[test]
fn packages_are_those_of_the_library() {
    let text = |allocator: &str, path: &str, version: &str| {
        let mut record = record(allocator, Some(path));
        record.candidates[1].allocator_version = Some(version.to_owned());
        recommended(&record)[0].text()
    };
    let newer = text(
        "mimalloc",
        "/usr/lib/libmimalloc.so.3",
        "3.0.1-1 (libmimalloc3)",
    );
    assert!(
        newer.contains("--no-install-recommends libmimalloc3\n"),
        "{newer}"
    );
    let plain = text(
        "tcmalloc",
        "/usr/lib64/libtcmalloc_minimal.so.4",
        "gperftools 2.10",
    );
    assert!(
        plain.contains("--no-install-recommends libtcmalloc-minimal4\n"),
        "{plain}"
    );
    for (allocator, path) in [
        ("jemalloc", "/home/me/libjemalloc.so.2"),
        ("jemalloc531", "/usr/lib/libjemalloc531.so"),
    ] {
        let own = text(allocator, path, "5.3.1");
        assert!(
            !own.contains("apt-get") && !own.contains("# package"),
            "{own}"
        );
    }
}

/// Goal: an object that is a part of this program is extracted first, not searched for where a comparison had it.
#[test]
fn own_objects_are_extracted() {
    let found = recommended(&record("glibc+trim=30s", None));
    let text = found[0].text();
    assert!(
        text.contains("millpond allocators --extract /usr/local/lib"),
        "{text}"
    );
    assert!(
        text.contains("LD_PRELOAD=/usr/local/lib/libmillpond-trim.so"),
        "{text}"
    );
}
