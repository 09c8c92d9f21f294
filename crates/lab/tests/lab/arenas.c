/* Threads that each hold blocks of their own: as many arenas. It writes the C library's own statistics to stderr, says
   "up", and waits until its stdin ends. Arguments: threads, blocks of 100 KB for each. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int ready;
static size_t blocks;

static void *hold(void *unused) {
    for (size_t i = 0; i < blocks; i++)
        memset(malloc(100000), 1, 100000);
    atomic_fetch_add(&ready, 1);
    pause();
    return unused;
}

int main(int count, char **words) {
    int threads = count > 1 ? atoi(words[1]) : 0;
    blocks = count > 2 ? (size_t)atoi(words[2]) : 0;
    memset(malloc(1 << 20), 1, 1 << 20);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, hold, NULL) != 0)
            return 1;
    }
    while (atomic_load(&ready) < threads)
        usleep(1000);
    char byte;
    malloc_stats();
    if (write(1, "up\n", 3) != 3)
        return 1;
    return read(0, &byte, 1) < 0;
}
