//! Memory of a whole comparison, of a server that has a known amount of it.

use std::fs;
use std::sync::atomic::AtomicBool;

use millpond_lab::compare;
use millpond_measure::record::{CandidateRounds, Measure, Quantity, RoundStatus};

use crate::common::{free_address, has_program, short_comparison};
use crate::presence::compile_c;

/// malloc of twice the size, and all that has to come from the same object.
pub(crate) const DOUBLING: &str = "#include <stddef.h>\n\
    extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);\n\
    extern void __libc_free(void *);\n\
    void *malloc(size_t size) { return __libc_malloc(2 * size); }\n\
    void *calloc(size_t count, size_t size) { return __libc_calloc(count, 2 * size); }\n\
    void *realloc(void *at, size_t size) { return __libc_realloc(at, 2 * size); }\n\
    void free(void *at) { __libc_free(at); }\n";

/// Four workers share 40 MB of blocks and a file of 400 MB with their parent; each serves ten connections, ends, and is
/// followed by another.
const SERVER: &str = r"
import mmap, os, socket, sys
heap = [os.urandom(1000) for _ in range(40 << 10)]
with open(sys.argv[2], 'a+b') as file:
    file.truncate(400 << 20)
    mapped = mmap.mmap(file.fileno(), 400 << 20)
assert not any(mapped[::4096])
server = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=64)
answer = b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello'

def work():
    for _ in range(10):
        client, _ = server.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while client.recv(4096):
            client.sendall(answer)
        client.close()
    os._exit(0)

living = 0
while True:
    while living < 4:
        living += 1
        if os.fork() == 0:
            work()
    os.wait()
    living -= 1
";

fn median(candidate: &CandidateRounds, quantity: Quantity) -> f64 {
    let median = candidate.median(Measure::whole(quantity));
    median.unwrap_or_else(|| panic!("{quantity:?} of {}", candidate.name))
}

/// A Python server with mapped files showed 1.09x for an allocator that doubles each size; by hand it was 1.83x. Comparisons
/// of Apache's prefork ended because a child did.
///
/// Goal: what a doubling allocator costs a server whose workers are replaced shows in memory, its peak, its mean and
/// after idle; what they share counts once; the mapped file is apart.
#[test]
#[ignore = "slow tier: a whole comparison, 15 s"]
fn a_doubling_allocator_is_seen() {
    if !has_program("python3") {
        return;
    }
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    fs::write(path("server.py"), SERVER).unwrap();
    let object = compile_c(
        directory.path(),
        "doubling.so",
        DOUBLING,
        &["-shared", "-fPIC"],
    );
    let address = free_address();
    let words = [
        "/usr/bin/env",
        "python3",
        &path("server.py"),
        &address.port().to_string(),
        &path("file"),
    ];
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let doubling = format!("doubling={object}");
    let config = short_comparison(
        directory.path(),
        &words,
        address,
        vec!["glibc".to_owned(), doubling],
    );
    let outcome = compare(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap();
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    let [plain, again, doubled] = &outcome.record.candidates[..] else {
        panic!("{:?}", outcome.record.candidates)
    };
    for candidate in [plain, again, doubled] {
        assert!(
            candidate
                .rounds
                .iter()
                .all(|run| run.status == RoundStatus::Done)
        );
        let files = median(candidate, Quantity::FileMemory);
        assert!((400e6..470e6).contains(&files), "{files}");
    }
    let one = median(plain, Quantity::MemoryAfterWork);
    // The blocks once, and what five interpreters have of their own.
    assert!((42e6..80e6).contains(&one), "{one}");
    for quantity in [
        Quantity::MemoryAfterWork,
        Quantity::MemoryAfterIdle,
        Quantity::PeakMemory,
        Quantity::MeanMemory,
    ] {
        let ratio = median(doubled, quantity) / median(plain, quantity);
        assert!((1.5..1.95).contains(&ratio), "{quantity:?}: {ratio}");
    }
    let rss = median(doubled, Quantity::RssAfterWork) / median(plain, Quantity::RssAfterWork);
    assert!(rss < 1.5, "{rss}");
}
