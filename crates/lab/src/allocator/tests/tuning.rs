use super::*;
use crate::allocator::discover;

fn settings(text: &str) -> Vec<Setting> {
    parse(text).unwrap()
}

/// Goal: every dialect gets what its allocator reads, letter for letter.
#[test]
fn settings_become_variables() {
    let variables = |dialect, text: &str| {
        let list: Vec<String> = environment(dialect, &settings(text))
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        list.join(" ")
    };
    assert_eq!(
        variables(
            Dialect::Jemalloc("MALLOC_CONF"),
            "narenas=2,dirty_decay_ms=0"
        ),
        "MALLOC_CONF=narenas:2,dirty_decay_ms:0"
    );
    assert_eq!(
        variables(Dialect::Glibc, "arena_max=2,pthread.rseq=0"),
        "GLIBC_TUNABLES=glibc.malloc.arena_max=2:glibc.pthread.rseq=0"
    );
    assert_eq!(
        variables(Dialect::Variables("TCMALLOC_"), "release_rate=10"),
        "TCMALLOC_RELEASE_RATE=10"
    );
    assert_eq!(
        variables(Dialect::Mimalloc, "purge_delay=0,verbose=0"),
        "MIMALLOC_PURGE_DELAY=0 MIMALLOC_VERBOSE=0"
    );
    assert_eq!(
        variables(Dialect::Scudo, "a=1,b=2"),
        "SCUDO_OPTIONS=a=1:b=2"
    );
    assert_eq!(parse("a=1,b"), Err("b".to_owned()));
    assert_eq!(parse("=1"), Err("=1".to_owned()));
}

/// Goal: the C library itself decides which of its tunables exist and which values they take.
#[test]
fn glibc_answers_for_its_tunables() {
    let glibc = crate::allocator::known::find("glibc").unwrap();
    let ask = |text: &str| ask(glibc, None, &settings(text));
    assert_eq!(ask("arena_max=2,tcache_count=0x10"), Ok(()));
    let unknown = ask("arenas_max=2").unwrap_err();
    assert!(
        unknown.starts_with("has no tunable glibc.malloc.arenas_max"),
        "{unknown}"
    );
    assert!(unknown.contains("often used: arena_max"), "{unknown}");
    let refused = ask("arena_max=two").unwrap_err();
    assert!(
        refused.starts_with("does not take arena_max=two"),
        "{refused}"
    );
    // Beyond its range a tunable keeps its default, silently to the program.
    let refused = ask("perturb=70000").unwrap_err();
    assert!(
        refused.starts_with("does not take perturb=70000"),
        "{refused}"
    );
}

/// Goal: each allocator that is here takes a good setting and is caught passing over a wrong one.
#[test]
fn allocators_answer_for_their_settings() {
    let good = |name: &str| match name {
        "jemalloc" | "jemalloc531" => "narenas=2,dirty_decay_ms=0",
        "tcmalloc" => "release_rate=10",
        "mempool" => "checks=1",
        "scudo" => "release_to_os_interval_ms=0",
        "tbb" => "use_huge_pages=1",
        _ => "show_errors=1",
    };
    let mut asked = 0;
    for allocator in discover() {
        let Some(library) = &allocator.library else {
            continue;
        };
        let known = crate::allocator::known::find(&allocator.name).unwrap();
        let ask = |text: &str| ask(known, Some(library), &settings(text));
        if known.dialect == Dialect::None {
            assert!(ask("x=1").unwrap_err().contains("reads no settings"));
            continue;
        }
        assert_eq!(ask(good(&allocator.name)), Ok(()), "{}", allocator.name);
        let sentence = ask("no_such_setting=1").unwrap_err();
        assert!(
            sentence.to_lowercase().contains("no_such_setting"),
            "{sentence}"
        );
        asked += 1;
    }
    // Our own is part of this program.
    assert!(asked >= 1);
}

/// Goal: a value that an allocator would quietly replace by its default is refused.
#[test]
fn wrong_values_are_refused() {
    let wrong = [
        ("jemalloc", "narenas=many"),
        ("tcmalloc", "release_rate=fast"),
        ("mimalloc", "show_errors=perhaps"),
        ("mimalloc3", "show_errors=perhaps"),
        ("mempool", "checks=perhaps"),
        ("scudo", "release_to_os_interval_ms=soon"),
    ];
    for (name, text) in wrong {
        let Some(allocator) = discover().into_iter().find(|one| one.name == name) else {
            continue;
        };
        let known = crate::allocator::known::find(name).unwrap();
        let answer = ask(known, allocator.library.as_deref(), &settings(text));
        assert!(answer.is_err(), "{name}:{text}");
    }
}

/// Goal: a program that does not end is ended.
#[test]
fn silence_is_bounded() {
    let mut command = Command::new(SHELL);
    command.args(["-c", "exec sleep 600"]);
    let bound = Duration::from_millis(50);
    let sentence = answer_within(bound, &mut command, &[], |_| None).unwrap_err();
    assert!(sentence.contains("hangs"), "{sentence}");
}
