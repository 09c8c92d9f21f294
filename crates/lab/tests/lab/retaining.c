/* Keeps freed memory as the C library does: 64 MiB of blocks below the mmap threshold, all freed but the last, which
   pins the top of the heap. Answers each line on stdin with its RSS in KiB and its number of threads; "fork" has a child
   answer instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 16384, BLOCK_BYTES = 4096 };

static long of_status(const char *name) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    long value = -1;
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0)
            value = atol(line + strlen(name));
    if (status)
        fclose(status);
    return value;
}

static void answer(void) {
    printf("%ld %ld\n", of_status("VmRSS:"), of_status("Threads:"));
    fflush(stdout);
}

int main(void) {
    static char *blocks[BLOCKS];
    for (int at = 0; at < BLOCKS; at++)
        blocks[at] = memset(malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
    for (int at = 0; at < BLOCKS - 1; at++)
        free(blocks[at]);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        if (strcmp(line, "fork\n") != 0) {
            answer();
            continue;
        }
        pid_t child = fork();
        if (child == 0) {
            answer();
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}
