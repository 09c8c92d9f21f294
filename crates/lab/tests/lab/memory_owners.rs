//! The owners of a program's memory, of programs in which they are known.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millpond_lab::allocator::{self, Allocator};
use millpond_lab::memory_owners::add_holders;
use millpond_lab::{LabError, compare};
use millpond_measure::process::ProcessTree;
use millpond_measure::record::{Held, Holder, Reach};
use std::sync::atomic::AtomicBool;

use crate::common::{free_address, short_comparison};
use crate::heap::{compile, traced, wait_for};

const MIB: u64 = 1 << 20;

/// 32 MiB by malloc in small blocks, 32 MiB by an allocator of its own, 8 MiB of variables, and a thread that has used
/// 4 MiB of its stack. `mi_malloc` is the name by which the one inside is known.
const TWO_HEAPS: &str = "#include <pthread.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
#include <unistd.h>\n\
#define MIB (1 << 20)\n\
char variables[8 * MIB];\n\
static char *pool; static size_t used;\n\
void *mi_malloc(size_t size) {\n\
  if (!pool || used + size > 4 * MIB) {\n\
    pool = mmap(0, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); used = 0;\n\
  }\n\
  used += size; return pool + used - size;\n}\n\
static void *deep(void *unused) {\n\
  volatile char stack[4 * MIB];\n\
  memset((void *)stack, 1, sizeof stack); write(1, \"held\\n\", 5); pause(); return unused;\n}\n\
static void *keep[32 * 1024];\n\
int main(void) {\n\
  pthread_t thread;\n\
  memset(variables, 1, sizeof variables);\n\
  for (int i = 0; i < 32 * 1024; i++) { keep[i] = malloc(1000); memset(keep[i], 1, 1000); }\n\
  for (int i = 0; i < 32 * 1024; i++) memset(mi_malloc(1024), 1, 1024);\n\
  pthread_create(&thread, 0, deep, 0); pthread_join(thread, 0); return 0;\n}\n";

/// The findings in the processes below `pid`.
fn found(pid: i32, trace: &millpond_lab::trace::Trace) -> Reach {
    let heap = trace.read_heap(&|_| true).expect("counters");
    let members = ProcessTree::new(u32::try_from(pid).expect("a process")).members();
    let mut reach = Reach::default();
    add_holders(&mut reach, &members, &heap, trace);
    reach
}

fn mib_of(reach: &Reach, is_meant: impl Fn(&Holder) -> bool) -> f64 {
    let meant = reach.held.iter().filter(|one| is_meant(&one.holder));
    let bytes: u64 = meant.map(|Held { bytes, .. }| bytes).sum();
    bytes as f64 / MIB as f64
}

/// A program with two allocators was proved to run under every candidate, as if all of its memory were malloc's.
///
/// Goal: each part of the memory is named by its holder, under every allocator.
#[test]
fn two_allocators_in_one_process_have_their_shares() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), TWO_HEAPS);
    let usual = allocator::discover()
        .into_iter()
        .filter(|one| !one.is_extra());
    for allocator in usual {
        let (subject, trace) = traced(directory.path(), &program, &[], &allocator);
        wait_for(directory.path(), "held");
        let reach = found(subject.pid(), &trace);
        subject.stop(Duration::ZERO).expect("killed");
        let name = &allocator.name;
        let inside = |holder: &Holder| matches!(holder, Holder::Embedded { name, object } if name == "mimalloc" && object == "known");
        let own = mib_of(&reach, inside);
        assert!((31.9..33.0).contains(&own), "{name}: {reach:?}");
        // An allocator's own memory is not checked.
        let malloc = mib_of(&reach, |holder| *holder == Holder::Malloc);
        assert!(malloc > 31.0, "{name}: {reach:?}");
        if name == allocator::GLIBC {
            let share = malloc / (malloc + own);
            assert!((0.45..0.55).contains(&share), "{share}: {reach:?}");
        }
        let variables = mib_of(&reach, |holder| *holder == Holder::Variables);
        assert!((8.0..11.0).contains(&variables), "{name}: {reach:?}");
        let stacks = mib_of(&reach, |holder| *holder == Holder::Stacks);
        assert!((4.0..5.0).contains(&stacks), "{name}: {reach:?}");
        assert_eq!(reach.unnoted, 0, "{name}");
    }
}

/// Four children share what their parent wrote, and each writes 4 MiB of its own by its own allocator. With an argument
/// that memory lies right below the shared block, so that the kernel makes one mapping of both.
const PREFORK: &str = "#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n#include <unistd.h>\n\
#define MIB (1 << 20)\n\
int main(int count, char **words) {\n\
  char *shared = malloc(48 * MIB); memset(shared, 1, 48 * MIB);\n\
  char *below = count > 1 ? (char *)((unsigned long)shared & ~4095ul) - 4 * MIB : 0;\n\
  char *own = mmap(below, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
  if (below && own != below) return 1;\n\
  for (int i = 0; i < 4; i++) if (fork() == 0) {\n\
    memset(own, i, 4 * MIB); if (i == 3) { sleep(0); write(1, \"held\\n\", 5); } pause(); }\n\
  pause(); return 0;\n}\n";

/// Goal: memory shared by forks counts once, and memory written by each counts for each, by the notes it took over from
/// its parent.
#[test]
fn pages_that_forks_share_count_once() {
    forks_share_once(&[]);
}

/// By chance, once in some hundred runs, the kernel placed the two regions side by side and merged them: their bytes were
/// divided as if a page that five processes share weighed as much as one page of one process.
///
/// Goal: the same when one mapping holds both kinds of pages.
#[test]
fn merged_regions_count_by_their_own_pages() {
    forks_share_once(&["below"]);
}

fn forks_share_once(words: &[&str]) {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), PREFORK);
    let glibc = Allocator::native("glibc");
    let (subject, trace) = traced(directory.path(), &program, words, &glibc);
    wait_for(directory.path(), "held");
    let mut reach = Reach::default();
    let written = |reach: &Reach| {
        mib_of(reach, |holder| {
            *holder
                == (Holder::Object {
                    object: "known".to_owned(),
                })
        })
    };
    crate::common::eventually("all four have written", || {
        reach = found(subject.pid(), &trace);
        written(&reach) >= 16.0
    });
    subject.stop(Duration::ZERO).expect("killed");
    assert!(written(&reach) < 16.5, "{reach:?}");
    let malloc = mib_of(&reach, |holder| *holder == Holder::Malloc);
    assert!((48.0..51.0).contains(&malloc), "{reach:?}");
}

/// A server whose every byte comes from an allocator of its own.
const OWN_HEAP: &str = "#include <arpa/inet.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/mman.h>\n\
#include <unistd.h>\n#include <poll.h>\n\
static char *pool; static size_t used = 1 << 22;\n\
void *mi_malloc(size_t size) {\n\
  if (used + size > 1 << 22) {\n\
    if (!pool) pool = mmap(0, 1 << 22, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n\
    used = 0; }\n\
  used += size; return pool + used - size;\n}\n\
int main(int count, char **words) {\n\
  static const char answer[] = \"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok\";\n\
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};\n\
  int on = 1, open = 1; struct pollfd all[256] = {{socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0}};\n\
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);\n\
  setsockopt(all[0].fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);\n\
  if (bind(all[0].fd, (void *)&address, sizeof address) || listen(all[0].fd, 64)) return 1;\n\
  for (;;) {\n\
    poll(all, open, -1);\n\
    if (all[0].revents && open < 256) { all[open].fd = accept(all[0].fd, 0, 0); all[open].events = POLLIN; open++; }\n\
    for (int i = 1; i < open; i++) {\n\
      char *question = mi_malloc(4096);\n\
      if (!all[i].revents) continue;\n\
      memset(question, 1, 4096);\n\
      if (read(all[i].fd, question, 4096) > 0) write(all[i].fd, answer, sizeof answer - 1);\n\
      else { close(all[i].fd); all[i--] = all[--open]; }\n\
    }\n\
  }\n}\n";

/// A server with an allocator of its own was compared under five others, and called worse under some of them.
///
/// Goal: it is refused, with the reason and the way on.
#[test]
fn a_server_that_malloc_never_sees_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), OWN_HEAP);
    assert!(Path::new(&program).exists());
    let address = free_address();
    let words = [program, address.port().to_string()];
    let Some(other) = allocator::discover()
        .into_iter()
        .find(|one| one.library.is_some())
    else {
        return;
    };
    let names = vec!["glibc".to_owned(), other.name];
    let config = short_comparison(directory.path(), &words, address, names);
    let error = compare(&config, &mut |_| {}, &AtomicBool::new(false)).unwrap_err();
    let sentence = error.to_string();
    assert!(matches!(error, LabError::OutOfReach(_)), "{sentence}");
    assert!(sentence.contains("mimalloc inside known"), "{sentence}");
    assert!(
        sentence.contains("build known without its own mimalloc"),
        "{sentence}"
    );
    assert!(fs::exists(directory.path().join("report")).unwrap());
}
