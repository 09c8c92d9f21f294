/* The C library's malloc under another name, which does ACT at its LIMITth call and at each one after, in targets whose
   log has LABEL in its name. */
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static atomic_ulong calls;
static int is_armed;

__attribute__((constructor)) static void arm(void) {
  char log[4096];
  ssize_t length = readlink("/proc/self/fd/1", log, sizeof log - 1);
  if (length < 0) return;
  log[length] = 0;
  is_armed = strstr(log, LABEL) != 0;
}

static void count(void) {
  static const char words[] = "the shim has had enough\n";
  if (!is_armed || calls++ < LIMIT) return;
  if (write(2, words, sizeof words - 1) < 0) _exit(1);
  ACT;
}

void *malloc(size_t bytes) { count(); return __libc_malloc(bytes); }
void *calloc(size_t items, size_t bytes) { count(); return __libc_calloc(items, bytes); }
void *realloc(void *block, size_t bytes) { count(); return __libc_realloc(block, bytes); }
void free(void *block) { __libc_free(block); }
