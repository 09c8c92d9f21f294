use super::*;

/// A main state with `t`, which is the other state as a thread.
fn pair() -> (Lua, Lua, Arc<ThreadFacts>) {
    let (main, other) = (Lua::new(), Lua::new());
    let facts = Arc::new(ThreadFacts::new("127.0.0.1:1".parse().unwrap()));
    let handle = ThreadHandle {
        lua: other.weak(),
        facts: Arc::clone(&facts),
    };
    main.globals().set("t", handle).unwrap();
    (main, other, facts)
}

#[test]
fn plain_values_and_tables_cross_over() {
    let (main, other, _) = pair();
    main.load("t:set('n', 1.5) t:set('s', 'a\\0b') t:set('b', true) t:set('gone', nil)")
        .exec()
        .unwrap();
    main.load("t:set('deep', { 1, { x = 'y', [3] = false } })")
        .exec()
        .unwrap();
    other
        .load(
            "assert(n == 1.5 and s == 'a\\0b' and b == true and gone == nil)
                 assert(deep[1] == 1 and deep[2].x == 'y' and deep[2][3] == false)
                 back = { list = { 7 } }",
        )
        .exec()
        .unwrap();
    main.load("assert(t:get('back').list[1] == 7 and t:get('nothing') == nil)")
        .exec()
        .unwrap();
}

#[test]
fn what_cannot_cross_over_is_named() {
    let (main, _other, _) = pair();
    for (code, part) in [
        ("t:set('f', print)", "cannot transfer 'function' to thread"),
        ("t:get('print')", "cannot transfer 'function' to thread"),
        ("t:set('x', { { f = print } })", "'function'"),
        (
            "local x = {} x.x = x t:set('x', x)",
            "more than 64 tables deep",
        ),
        ("t.addr = 'somewhere'", "wrk.lookup()"),
    ] {
        let error = main.load(code).exec().unwrap_err().to_string();
        assert!(error.contains(part), "{code}: {error}");
    }
}

#[test]
fn addresses_are_given_and_taken() {
    let (main, _other, facts) = pair();
    let address = ScriptAddress("127.0.0.2:80".parse().unwrap());
    main.globals().set("a", address).unwrap();
    main.load("assert(tostring(t.addr) == '127.0.0.1:1') t.addr = a")
        .exec()
        .unwrap();
    assert_eq!(facts.address().to_string(), "127.0.0.2:80");
}

#[test]
fn only_a_running_thread_stops() {
    let (main, _other, facts) = pair();
    main.load("t:stop()").exec().unwrap();
    assert!(!facts.is_stopped());
    facts.set_running(true);
    main.load("t:stop()").exec().unwrap();
    assert!(facts.is_stopped());
}
