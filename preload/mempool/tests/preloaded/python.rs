//! CPython with its own small-object allocator switched off, so that every object is a malloc.

use crate::harness::{demand_bound, find_program, preloaded, run};
use std::path::PathBuf;
use std::process::Command;

/// Threads, big lists, text, JSON, compression, children by fork and by exec, and the collector.
const SCRIPT: &str = r#"
import ctypes, gc, hashlib, json, os, subprocess, sys, threading, zlib

def work(seed, results):
    rows = [{"id": i, "name": "n%d" % (i * seed), "tags": [str(j) for j in range(i % 7)]} for i in range(4000)]
    text = json.dumps(rows)
    assert json.loads(text) == rows
    packed = zlib.compress(text.encode())
    assert zlib.decompress(packed).decode() == text
    table = {}
    for i in range(20000):
        table[i % 997] = bytes(i % 3000)
    results[seed] = hashlib.sha256(text.encode()).hexdigest()

results = {}
for round in range(2):
    threads = [threading.Thread(target=work, args=(seed, results)) for seed in range(1, 6)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert len(set(results.values())) == 5

big = [object() for _ in range(500000)]
big += [[i] for i in range(200000)]
numbers = list(range(300000))
numbers.sort(key=lambda n: -n)
assert numbers[0] == 299999
del big, numbers

class Node: pass
for i in range(50000):
    a, b = Node(), Node()
    a.other, b.other = b, a
assert gc.collect() >= 0

child = os.fork()
if child == 0:
    results = {}
    work(3, results)
    os._exit(0 if len(results) == 1 else 9)
assert os.waitpid(child, 0)[1] == 0
out = subprocess.run([sys.executable, "-c", "print(sum(range(100000)))"], capture_output=True, text=True, check=True)
assert out.stdout.strip() == "4999950000"

libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]
info = Info()
assert libc.dladdr(libc.malloc, ctypes.byref(info))
print(info.file.decode())
print("done")
"#;

/// The interpreter itself: `python3` may be a shell script that searches for it.
fn interpreter() -> Option<PathBuf> {
    let found = find_program("python3")?;
    let path = run(Command::new(found).args(["-c", "import sys; print(sys.executable)"]));
    Some(path.expect_ok().trim().into())
}

/// Goal: an interpreter with threads, forks and garbage runs to its end with the right results, and
/// the `malloc` that its own loader finds is the object's.
#[test]
fn python_computes_the_same() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    let output = run(preloaded(&interpreter)
        .args(["-c", SCRIPT])
        .env("PYTHONMALLOC", "malloc"))
    .expect_ok();
    let object = crate::harness::object();
    assert_eq!(output, format!("{}\ndone\n", object.display()));
}

/// Goal: the same through whatever `python3` is on the path, with Python's own allocator on top.
#[test]
fn python_as_it_is_installed() {
    let Some(python) = find_program("python3") else {
        return;
    };
    let output = run(preloaded(&python).args(["-c", SCRIPT])).expect_ok();
    assert!(output.ends_with("done\n"), "{output}");
}

/// Goal: Python's binary or its library binds to the object.
#[test]
fn python_is_bound() {
    let Some(interpreter) = interpreter() else {
        return;
    };
    demand_bound(&interpreter, &["-c", "pass"]);
}
