/* Every function of malloc's family, used as programs use them, under whatever malloc is preloaded.
 *
 *   exercise PART      one part; prints "ok PART" and exits 0, or names the broken line and exits 1
 *
 * Compiled by exercise.rs with the system's own compiler, so that the object under test meets the
 * C declarations and not our idea of them. Parts end by themselves: an alarm bounds each, long after
 * what it takes beside other programs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEMAND(fact)                                                                     \
    do {                                                                                 \
        if (!(fact)) {                                                                   \
            fprintf(stderr, "exercise.c:%d: broken: %s\n", __LINE__, #fact);             \
            _exit(1);                                                                    \
        }                                                                                \
    } while (0)

/* The compiler may know what malloc does; a pointer through here it knows nothing about. */
static void *hide(void *block) {
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static size_t hide_size(size_t size) {
    __asm__ volatile("" : "+r"(size));
    return size;
}

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Sizes as programs have them: mostly small, a few of every magnitude up to `max`. */
static size_t random_size(uint64_t *state, size_t max) {
    unsigned magnitude = next_random(state) % 100;
    size_t limit = magnitude < 60 ? 256 : magnitude < 85 ? 4096 : magnitude < 97 ? 65536 : max;
    if (limit > max) limit = max;
    return next_random(state) % (limit + 1);
}

static void fill(void *block, size_t size, unsigned char mark) { memset(block, mark, size); }

static int filled(const void *block, size_t size, unsigned char mark) {
    const unsigned char *bytes = block;
    return size == 0 || (bytes[0] == mark && memcmp(bytes, bytes + 1, size - 1) == 0);
}

static long resident_bytes(void) {
    FILE *statm = fopen("/proc/self/statm", "r");
    long all = 0, resident = 0;
    DEMAND(statm && fscanf(statm, "%ld %ld", &all, &resident) == 2);
    fclose(statm);
    return resident * sysconf(_SC_PAGESIZE);
}

/* --- sizes, alignment, contents ---------------------------------------------------------------- */

static void check_size(size_t size) {
    unsigned char mark = (unsigned char)(size * 31 + 7);
    char *block = hide(malloc(size));
    DEMAND(block && (uintptr_t)block % 16 == 0);
    size_t usable = malloc_usable_size(block);
    DEMAND(usable >= size);
    fill(block, usable, mark);
    char *zeroed = hide(calloc(1, size));
    DEMAND(zeroed && filled(zeroed, size, 0));
    DEMAND(filled(block, usable, mark));
    char *longer = hide(realloc(block, size * 2 + 1));
    DEMAND(longer && filled(longer, size, mark));
    char *shorter = hide(realloc(longer, size / 3 + 1));
    DEMAND(shorter && filled(shorter, size < size / 3 + 1 ? size : size / 3 + 1, mark));
    free(shorter);
    fill(zeroed, malloc_usable_size(zeroed), mark);
    free(zeroed);
    zeroed = hide(calloc(size, 1));
    DEMAND(zeroed && filled(zeroed, size, 0));
    free(zeroed);
}

static void part_sizes(void) {
    for (size_t size = 0; size < 3000; size++) check_size(size);
    for (size_t size = 3000; size < 300000; size += 997) check_size(size);
    for (int bit = 10; bit < 25; bit++)
        for (long off = -17; off <= 17; off++) check_size((size_t)((1L << bit) + off));
    size_t boundaries[] = {32768, 65536, 4063232, 4128768, 4194304, 8388608, 50000000};
    for (size_t i = 0; i < sizeof boundaries / sizeof *boundaries; i++)
        for (long off = -1; off <= 1; off++) check_size(boundaries[i] + (size_t)off);
}

static void check_aligned(char *block, size_t alignment, size_t size) {
    DEMAND(block && (uintptr_t)block % alignment == 0);
    size_t usable = malloc_usable_size(block);
    DEMAND(usable >= size);
    fill(block, usable, 0x5a);
    char *moved = hide(realloc(block, size + 100));
    DEMAND(moved && filled(moved, size, 0x5a));
    free(moved);
}

static void part_alignment(void) {
    size_t sizes[] = {0, 1, 15, 16, 17, 64, 100, 1000, 4096, 5000, 40000, 100000, 5000000};
    for (size_t alignment = 1; alignment <= 64u << 20; alignment *= 2) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t size = sizes[i];
            void *block = NULL;
            if (alignment >= sizeof(void *)) {
                DEMAND(posix_memalign(&block, alignment, size) == 0);
                check_aligned(hide(block), alignment, size);
                check_aligned(hide(aligned_alloc(alignment, hide_size(size))), alignment, size);
            }
            check_aligned(hide(memalign(alignment, hide_size(size))), alignment, size);
        }
        /* Several at once do not overlap. */
        char *blocks[8];
        for (int i = 0; i < 8; i++) {
            blocks[i] = hide(memalign(alignment, 3000));
            DEMAND(blocks[i]);
            fill(blocks[i], 3000, (unsigned char)i);
        }
        for (int i = 0; i < 8; i++) {
            DEMAND(filled(blocks[i], 3000, (unsigned char)i));
            free(blocks[i]);
        }
    }
    long page = sysconf(_SC_PAGESIZE);
    char *block = hide(valloc(10));
    DEMAND(block && (uintptr_t)block % (uintptr_t)page == 0);
    free(block);
    block = hide(pvalloc(10));
    DEMAND(block && (uintptr_t)block % (uintptr_t)page == 0);
    DEMAND(malloc_usable_size(block) >= (size_t)page);
    fill(block, (size_t)page, 1);
    free(block);
}

/* --- what the manual page promises at the edges --------------------------------------------------- */

static void part_edges(void) {
    void *first = hide(malloc(0)), *second = hide(malloc(0));
    DEMAND(first && second && first != second);
    free(first);
    free(second);
    free(hide(NULL));
    DEMAND(malloc_usable_size(hide(NULL)) == 0);
    void *fresh = hide(realloc(hide(NULL), 100));
    DEMAND(fresh && malloc_usable_size(fresh) >= 100);
    free(fresh);
    first = hide(reallocarray(NULL, 10, 10));
    DEMAND(first && malloc_usable_size(first) >= 100);
    fill(first, 100, 9);

    size_t half = hide_size(SIZE_MAX / 2), huge = hide_size(SIZE_MAX - 100);
    struct { size_t count, size; } products[] = {{half, 3}, {3, half}, {huge, 2}, {1ul << 32, 1ul << 32}};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        size_t count = hide_size(products[i].count), size = hide_size(products[i].size);
        errno = 0;
        DEMAND(hide(calloc(count, size)) == NULL && errno == ENOMEM);
        errno = 0;
        DEMAND(hide(reallocarray(hide(first), count, size)) == NULL && errno == ENOMEM);
        DEMAND(filled(first, 100, 9));
    }
    size_t impossible[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 4096, SIZE_MAX - (8ul << 20),
                           PTRDIFF_MAX, (size_t)PTRDIFF_MAX + 1, 1ul << 60, 1ul << 47};
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        size_t size = hide_size(impossible[i]);
        errno = 0;
        DEMAND(hide(malloc(size)) == NULL && errno == ENOMEM);
        errno = 0;
        DEMAND(hide(calloc(1, size)) == NULL && errno == ENOMEM);
        errno = 0;
        DEMAND(hide(realloc(hide(first), size)) == NULL && errno == ENOMEM);
        DEMAND(filled(first, 100, 9));
        errno = 0;
        DEMAND(hide(memalign(1 << 20, size)) == NULL && errno == ENOMEM);
        void *untouched = first;
        DEMAND(posix_memalign(&untouched, 64, size) == ENOMEM && untouched == first);
    }
    void *untouched = first;
    size_t wrong[] = {0, 3, 4, 24, 100};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        DEMAND(posix_memalign(&untouched, hide_size(wrong[i]), 8) == EINVAL && untouched == first);

    /* free keeps errno (POSIX 2024, glibc since 2.33), whatever it has to do. */
    for (size_t size = 16; size < 64u << 20; size *= 4) {
        void *block = hide(malloc(size));
        DEMAND(block);
        errno = 77;
        free(block);
        DEMAND(errno == 77);
    }
    free(first);
}

/* Grows one block byte-wise and then wildly, as string builders and vectors do. */
static void part_realloc(void) {
    char *text = NULL;
    for (size_t len = 1; len < 200000; len += len < 3000 ? 1 : 1117) {
        text = hide(realloc(text, len));
        DEMAND(text);
        text[len - 1] = (char)(len * 7);
        if (len > 1 && len <= 3000) DEMAND(text[len - 2] == (char)((len - 1) * 7));
    }
    for (size_t len = 1; len < 3000; len++) DEMAND(text[len - 1] == (char)(len * 7));
    free(text);

    uint64_t seed = 88172645463325252ull;
    size_t *block = NULL, count = 0;
    for (int round = 0; round < 400; round++) {
        size_t wanted = next_random(&seed) % (round % 40 == 0 ? 3000000 : 9000) + 1;
        block = hide(reallocarray(block, wanted, sizeof *block));
        DEMAND(block);
        for (size_t i = 0; i < (count < wanted ? count : wanted); i++) DEMAND(block[i] == i * 3);
        for (size_t i = count; i < wanted; i++) block[i] = i * 3;
        count = wanted;
    }
    free(block);
    /* A large block that shrinks for good gives its memory back. */
    char *large = hide(malloc(64u << 20));
    DEMAND(large);
    fill(large, 64u << 20, 3);
    long before = resident_bytes();
    large = hide(realloc(large, 1000));
    DEMAND(large && filled(large, 1000, 3));
    DEMAND(before - resident_bytes() > 48l << 20);
    free(large);
}

/* --- threads ----------------------------------------------------------------------------------- */

#define SLOTS 512
struct held { size_t size; unsigned char mark; };
static _Atomic(struct held *) shared_slots[SLOTS];

static struct held *make_held(uint64_t *seed, size_t max) {
    size_t size = random_size(seed, max) + sizeof(struct held);
    struct held *held = hide(next_random(seed) % 8 ? malloc(size) : calloc(1, size));
    DEMAND(held);
    held->size = size;
    held->mark = (unsigned char)next_random(seed);
    fill(held + 1, size - sizeof *held, held->mark);
    return held;
}

static void check_held(const struct held *held) {
    DEMAND(filled(held + 1, held->size - sizeof *held, held->mark));
}

/* Blocks wander between threads through the shared slots; any thread may free any block. */
static void *wander(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument * 0x9e3779b97f4a7c15ull + 1;
    struct held *mine[64] = {0};
    for (int round = 0; round < 60000; round++) {
        size_t at = next_random(&seed) % 64;
        if (mine[at]) {
            check_held(mine[at]);
            if (next_random(&seed) % 4 == 0) {
                size_t size = sizeof(struct held) + next_random(&seed) % 600;
                size_t keep = size < mine[at]->size ? size : mine[at]->size;
                mine[at] = hide(realloc(mine[at], size));
                DEMAND(mine[at] && filled(mine[at] + 1, keep - sizeof(struct held), mine[at]->mark));
                mine[at]->size = size;
                fill(mine[at] + 1, size - sizeof(struct held), mine[at]->mark);
            }
            struct held *other = atomic_exchange(&shared_slots[next_random(&seed) % SLOTS], mine[at]);
            if (other) check_held(other);
            free(other);
        }
        mine[at] = make_held(&seed, 100000);
    }
    for (int i = 0; i < 64; i++) free(mine[i]);
    return NULL;
}

static void clear_slots(void) {
    for (int i = 0; i < SLOTS; i++) {
        struct held *held = atomic_exchange(&shared_slots[i], NULL);
        if (held) check_held(held);
        free(held);
    }
}

static void part_threads(void) {
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) DEMAND(!pthread_create(&threads[i], NULL, wander, (void *)(i + 1)));
    for (int i = 0; i < 4; i++) DEMAND(!pthread_join(threads[i], NULL));
    clear_slots();
}

/* Threads of a wave begin together, so that as many heaps are there at once in each. */
enum { WAVE = 16 };
static pthread_barrier_t wave_begins;

/* A short life: blocks of its own, blocks of the dead, and blocks it leaves to others. */
static void *short_life(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument * 0x2545f4914f6cdd1dull + 9;
    for (int i = 0; i < 40; i++) {
        struct held *mine = make_held(&seed, 20000);
        struct held *other = atomic_exchange(&shared_slots[next_random(&seed) % SLOTS], mine);
        if (other) check_held(other);
        free(other);
    }
    return NULL;
}

static void *life_in_a_wave(void *argument) {
    free(hide(malloc(1)));
    pthread_barrier_wait(&wave_begins);
    return short_life(argument);
}

static void part_storm(void) {
    long after_some = 0;
    DEMAND(!pthread_barrier_init(&wave_begins, NULL, WAVE));
    for (long wave = 0; wave < 200; wave++) {
        pthread_t threads[WAVE];
        for (long i = 0; i < WAVE; i++)
            DEMAND(!pthread_create(&threads[i], NULL, life_in_a_wave, (void *)(wave * WAVE + i)));
        for (int i = 0; i < WAVE; i++) DEMAND(!pthread_join(threads[i], NULL));
        if (wave == 50) after_some = resident_bytes();
    }
    /* What dead threads left is taken over, not piled up: 2400 more lives, and little more memory. */
    DEMAND(resident_bytes() - after_some < 24l << 20);
    clear_slots();
}

static struct held *_Atomic handed[1024];
static atomic_int producing = 1;

static void *consume(void *unused) {
    (void)unused;
    for (;;) {
        int last = !atomic_load(&producing), got = 0;
        for (int i = 0; i < 1024; i++) {
            struct held *held = atomic_exchange(&handed[i], NULL);
            if (!held) continue;
            check_held(held);
            free(held);
            got = 1;
        }
        if (!got && last) return NULL;
    }
}

static void part_producer(void) {
    pthread_t consumer;
    uint64_t seed = 4711;
    DEMAND(!pthread_create(&consumer, NULL, consume, NULL));
    long after_some = 0;
    for (long i = 0; i < 600000; i++) {
        struct held *held = make_held(&seed, 3000), *left = NULL;
        /* A full slot: the producer frees its own block again. */
        if (!atomic_compare_exchange_strong(&handed[i % 1024], &left, held)) free(held);
        if (i == 100000) after_some = resident_bytes();
    }
    atomic_store(&producing, 0);
    DEMAND(!pthread_join(consumer, NULL));
    DEMAND(resident_bytes() - after_some < 24l << 20);
}

/* --- the end of a thread, and what still runs after it --------------------------------------------- */

static pthread_key_t keys[40];

static void allocate_again(void *value) {
    /* Called after the allocator's own end of the thread, perhaps several times. */
    free(value);
    static _Thread_local int rounds = 0;
    char *block = hide(malloc(123));
    DEMAND(block);
    fill(block, 123, 1);
    void *large = hide(malloc(100000));
    DEMAND(large);
    free(large);
    if (++rounds % 3) pthread_setspecific(keys[rounds % 40], block);
    else free(block);
}

static void *end_with_keys(void *unused) {
    for (int i = 0; i < 40; i++) DEMAND(!pthread_setspecific(keys[i], hide(malloc(40 + i))));
    return unused;
}

/* Whether the main thread has ended: it is a zombie for as long as others run. */
static int main_has_ended(void) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    FILE *stat = fopen(path, "r");
    DEMAND(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
    fclose(stat);
    return state == 'Z';
}

static void *outlive_main(void *block) {
    while (!main_has_ended()) usleep(1000);
    DEMAND(filled(block, 5000, 7));
    free(block);
    for (int i = 0; i < 1000; i++) free(hide(malloc((size_t)i)));
    printf("ok ends\n");
    exit(0);
}

static void at_the_very_end(void) {
    void *block = hide(malloc(1000));
    DEMAND(block);
    free(block);
}

static void part_ends(void) {
    atexit(at_the_very_end);
    for (int i = 0; i < 40; i++) DEMAND(!pthread_key_create(&keys[i], allocate_again));
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        DEMAND(!pthread_create(&thread, NULL, end_with_keys, NULL));
        DEMAND(!pthread_join(thread, NULL));
    }
    pthread_t thread;
    char *block = hide(malloc(5000));
    fill(block, 5000, 7);
    DEMAND(!pthread_create(&thread, NULL, outlive_main, block));
    pthread_exit(NULL); /* the main thread ends; the process goes on in the other one */
}

/* --- fork and signals ------------------------------------------------------------------------------- */

static atomic_int forking = 1;

static void *churn_while_forking(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument + 77;
    while (atomic_load(&forking)) {
        struct held *held = make_held(&seed, 200000);
        struct held *other = atomic_exchange(&shared_slots[next_random(&seed) % SLOTS], held);
        if (other) check_held(other);
        free(other);
    }
    return NULL;
}

static void in_the_child(long round) {
    alarm(300);
    uint64_t seed = (uint64_t)round + 5;
    for (int i = 0; i < 300; i++) {
        struct held *held = make_held(&seed, 100000);
        struct held *other = atomic_exchange(&shared_slots[next_random(&seed) % SLOTS], held);
        if (other) check_held(other);
        free(other); /* also blocks of threads that do not exist here */
    }
    if (round % 8 == 0) {
        pthread_t thread;
        DEMAND(!pthread_create(&thread, NULL, short_life, (void *)round));
        DEMAND(!pthread_join(thread, NULL));
    }
    if (round % 16 == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            free(hide(malloc(1000)));
            exit(0);
        }
        int status = 1;
        DEMAND(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    }
    _exit(0);
}

static void part_fork(void) {
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        DEMAND(!pthread_create(&threads[i], NULL, churn_while_forking, (void *)i));
    for (long round = 0; round < 150; round++) {
        pid_t child = fork();
        DEMAND(child >= 0);
        if (child == 0) in_the_child(round);
        int status = 1;
        DEMAND(waitpid(child, &status, 0) == child && status == 0);
    }
    atomic_store(&forking, 0);
    for (int i = 0; i < 3; i++) DEMAND(!pthread_join(threads[i], NULL));
    clear_slots();
}

static atomic_long signals_seen;

static void note_signal(int signal_number) {
    (void)signal_number;
    int kept = errno;
    atomic_fetch_add(&signals_seen, 1);
    errno = kept;
}

static void part_signals(void) {
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    DEMAND(!sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    DEMAND(!setitimer(ITIMER_REAL, &often, NULL));
    do part_threads();
    while (atomic_load(&signals_seen) < 100);
    DEMAND(!setitimer(ITIMER_REAL, &never, NULL));
}

/* --- memory goes back, and what the C library and its loader allocate ------------------------------- */

static void part_returned(void) {
    enum { COUNT = 400000 };
    static void *blocks[COUNT];
    uint64_t seed = 31337;
    long start = resident_bytes(), peak;
    for (int i = 0; i < COUNT; i++) {
        size_t size = 16 + next_random(&seed) % 400;
        blocks[i] = hide(malloc(size));
        DEMAND(blocks[i]);
        fill(blocks[i], size, 1);
    }
    peak = resident_bytes();
    DEMAND(peak - start > 70l << 20);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    usleep(20000);
    /* Some more calls, since an allocator without a thread of its own works when it is called. */
    for (int i = 0; i < 20000; i++) free(hide(malloc(16 + next_random(&seed) % 100000)));
    fprintf(stderr, "returned: start %ld peak %ld now %ld\n", start, peak, resident_bytes());
    DEMAND(resident_bytes() - start < (peak - start) / 2);
}

/* Locked pages do not go back to the system, and so are not zero when they come again. */
static void part_locked(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE)) return; /* not allowed here */
    for (int round = 0; round < 3; round++) {
        char *blocks[40];
        for (int i = 0; i < 40; i++) {
            size_t size = (size_t)(i + 1) * 30000;
            blocks[i] = hide(calloc(1, size));
            DEMAND(blocks[i] && filled(blocks[i], size, 0));
            fill(blocks[i], size, 0x77);
        }
        for (int i = 0; i < 40; i++) free(blocks[i]);
        malloc_trim(0);
    }
}

static void part_loader(void) {
    for (int i = 0; i < 20; i++) {
        const char *names[] = {"libm.so.6", "libstdc++.so.6", "libresolv.so.2", "libz.so.1"};
        void *library = dlopen(names[i % 4], RTLD_NOW);
        if (library) DEMAND(dlclose(library) == 0);
        else DEMAND(dlerror() != NULL);
        pthread_t thread;
        DEMAND(!pthread_create(&thread, NULL, short_life, (void *)(long)i));
        DEMAND(!pthread_join(thread, NULL));
    }
    char *line = NULL;
    size_t size = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    DEMAND(maps);
    while (getline(&line, &size, maps) > 0) DEMAND(strlen(line) < size);
    free(line);
    fclose(maps);
    char *text = NULL;
    DEMAND(asprintf(&text, "%050000d", 7) == 50000 && strlen(text) == 50000);
    free(text);
    free(strdup("copied by the C library"));
    clear_slots();
}

/* --- faults, which only a checked heap is expected to find ------------------------------------------ */

static void fault_double_free(void) {
    char *block = hide(malloc(100));
    free(block);
    free(hide(block));
}

static void fault_foreign(void) {
    static char never_lent[64] __attribute__((aligned(64)));
    free(hide(never_lent));
}

static void fault_inside(void) {
    char *block = hide(malloc(100));
    free(hide(block + 16));
}

static void fault_overrun(void) {
    char *block = hide(malloc(100));
    ((char *)hide(block))[100] = 1;
    free(block);
}

static void fault_write_after_free(void) {
    char *block = hide(malloc(100));
    free(block);
    ((char *)hide(block))[50] = 1;
} /* found at exit at the latest */

static void fault_realloc_stale(void) {
    char *block = hide(malloc(100)), *moved = hide(realloc(block, 5000));
    DEMAND(moved);
    free(hide(block));
}

int main(int count, char **words) {
    static const struct { const char *name; void (*run)(void); } parts[] = {
        {"sizes", part_sizes},       {"alignment", part_alignment}, {"edges", part_edges},
        {"realloc", part_realloc},   {"threads", part_threads},     {"storm", part_storm},
        {"producer", part_producer}, {"ends", part_ends},           {"fork", part_fork},
        {"signals", part_signals},   {"returned", part_returned},   {"loader", part_loader},
        {"locked", part_locked},     {"double free", fault_double_free},
        {"foreign", fault_foreign},  {"inside", fault_inside},
        {"overrun", fault_overrun},  {"write after free", fault_write_after_free},
        {"stale", fault_realloc_stale},
    };
    for (size_t i = 0; count == 2 && i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(words[1], parts[i].name)) continue;
        if (strcmp(words[1], "signals")) alarm(500);
        parts[i].run();
        printf("ok %s\n", words[1]);
        return 0;
    }
    fprintf(stderr, "usage: exercise PART; see the end of exercise.c for the parts\n");
    return 2;
}
