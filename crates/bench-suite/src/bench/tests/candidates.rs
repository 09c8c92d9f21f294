use super::*;

/// Goal: the object is that of the program's own call, and of this symbol only.
#[test]
fn bindings_are_read() {
    let text = "\
 7:\tbinding file /lib/libssl.so.3 [0] to /lib/libc.so.6 [0]: normal symbol `malloc' [GLIBC_2.2.5]
     7:\tbinding file redis-server [0] to /lib/a.so.2 [0]: normal symbol `malloc_usable_size'
     7:\tbinding file redis-server [0] to /lib/b.so.2 [0]: normal symbol `malloc'
";
    assert_eq!(
        bound_to(text, "redis-server", "malloc"),
        Some("/lib/b.so.2")
    );
    assert_eq!(bound_to(text, "redis-cli", "malloc"), None);
}
