use super::*;

const MIB: u64 = 1 << 20;

fn reach(calls: f64, held: &[(Holder, u64)], live_bytes: Option<u64>) -> Reach {
    let held = held.iter().map(|(holder, mib)| Held {
        holder: holder.clone(),
        bytes: mib * MIB,
    });
    let heap = HeapUse {
        calls,
        bytes: calls * 64.0,
    };
    Reach {
        per_request: [("request".to_owned(), heap)].into(),
        held: held.collect(),
        live_bytes,
        ..Reach::default()
    }
}

/// PHP made 13 heap calls for a request whose script made thousands, and nothing said how to see them.
///
/// Goal: where a variable gives a runtime's memory to malloc, it is said however small that heap is.
#[test]
fn a_switch_is_named_for_a_small_heap_too() {
    let name = "PHP (Zend heap)".to_owned();
    let held = [(Holder::Malloc, 90), (Holder::Runtime { name }, 10)];
    let said = reach(13.0, &held, None).sentences().join(" ");
    assert!(said.contains("USE_ZEND_ALLOC=0"), "{said}");
}

/// Goal: a report says first what malloc has to do with the server, and how much there is to win.
#[test]
fn a_report_begins_with_what_can_change() {
    let server = reach(
        14.0,
        &[(Holder::Malloc, 40), (Holder::Stacks, 10)],
        Some(30 * MIB),
    );
    let sentences = server.sentences();
    assert_eq!(
        sentences,
        [
            "What an allocator can change here: 14.0 heap calls and 896 B for each request.",
            "malloc holds 40.0 MiB of 50.0 MiB of anonymous memory (80 %); 30.0 MiB of it is in use, so no allocator can \
             save more than 10.0 MiB (20 %).",
            "The rest of it: stacks 10.0 MiB.",
        ]
    );
    assert!(!server.is_elsewhere());
    let full = reach(14.0, &[(Holder::Malloc, 4)], Some(5 * MIB)).sentences();
    assert!(full[1].contains("4.00 MiB of it is in use"), "{full:?}");
}

/// A server with an allocator of its own was "proved" to run under every candidate, and called worse under some.
///
/// Goal: it is refused with the alternative; a program that hardly allocates is not, nor is one with two heaps.
#[test]
fn what_malloc_never_sees_is_refused() {
    let embedded = Holder::Embedded {
        name: "mimalloc".to_owned(),
        object: "server".to_owned(),
    };
    let own = reach(0.0, &[(embedded.clone(), 40), (Holder::Malloc, 1)], None);
    assert!(own.is_elsewhere());
    assert!(
        own.refusal()
            .contains("build server without its own mimalloc"),
        "{}",
        own.refusal()
    );
    let both = reach(3.0, &[(embedded.clone(), 20), (Holder::Malloc, 20)], None);
    assert!(!both.is_elsewhere());
    let way = both.sentences().pop().unwrap();
    assert!(way.starts_with("Build server without"), "{way}");
    let pools = reach(
        0.01,
        &[
            (Holder::Malloc, 20),
            (
                Holder::Object {
                    object: "server".to_owned(),
                },
                2,
            ),
        ],
        None,
    );
    assert!(!pools.is_elsewhere());
    assert!(
        pools.sentences()[0].contains("next to nothing"),
        "{:?}",
        pools.sentences()
    );
    assert!(!Reach::default().is_elsewhere() && Reach::default().sentences().is_empty());
}

/// Goal: a written record is read back.
#[test]
fn records_are_read_again() {
    let php = Holder::Runtime {
        name: "PHP (Zend)".to_owned(),
    };
    let before = reach(2.0, &[(php, 3), (Holder::Malloc, 1)], Some(MIB));
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Reach>(&text).unwrap(), before);
    assert!(
        before
            .sentences()
            .iter()
            .any(|line| line.contains("USE_ZEND_ALLOC=0"))
    );
}
