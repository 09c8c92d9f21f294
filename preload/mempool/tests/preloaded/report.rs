//! `MEMPOOL_STATS=1`: the line at exit, and the identity in it.

use std::collections::BTreeMap;

use crate::harness::{find_program, is_ours, preloaded, run};

fn numbers(stderr: &str) -> BTreeMap<String, u64> {
    let mut lines = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("mempool: "));
    let line = lines.next().expect("a line that begins with the name");
    assert_eq!(lines.next(), None, "one line");
    line.split(' ')
        .map(|word| {
            let (name, number) = word.split_once('=').expect("name=number");
            (name.to_owned(), number.parse().expect("a number"))
        })
        .collect()
}

/// Goal: the chunks of a process with one thread are accounted for to the byte, and the line
/// appears only on request.
#[test]
fn report_adds_up() {
    let Some(python) = find_program("python3").filter(|_| is_ours()) else {
        return;
    };
    let interpreter = run(preloaded(&python).args(["-c", "import sys; print(sys.executable)"]));
    assert!(
        !interpreter.stderr.contains("mempool:"),
        "{}",
        interpreter.stderr
    );
    let interpreter = interpreter.expect_ok();
    let mut command = preloaded(interpreter.trim().as_ref());
    let work = "x = [bytes(n % 50000) for n in range(3000)]; import os; os.write(1, b'done')";
    let finished = run(command.args(["-c", work]).env("MEMPOOL_STATS", "1"));
    let line = numbers(&finished.stderr);
    assert_eq!(finished.expect_ok(), "done");
    let of = |name: &str| line[name];
    assert_eq!(of("heaps"), 1);
    assert!(of("live") > 0);
    assert_eq!(
        of("heap_chunk_bytes"),
        of("live_bytes") + of("cached_bytes") + of("waste_bytes")
    );
    assert!(of("chunk_bytes") >= of("heap_chunk_bytes"));
    assert!(of("reserved_bytes") >= of("chunk_bytes") + of("dirty_bytes"));
}
