/* Programs whose memory is known, for tests/memory.rs. Each prints "ready" and ends with its input. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB ((size_t)1 << 20)
#define PAGE 4096

/* What only a page table could tell from a real use. */
static char *volatile kept;

/* In blocks as of a heap, each written whole. */
static void use_heap(size_t bytes)
{
	const size_t block = 1000;
	for (size_t done = 0; done < bytes; done += block) {
		kept = malloc(block);
		memset(kept, 7, block);
	}
}

static char *map(int flags, int file, size_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
	if (at == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return at;
}

static void ready(void)
{
	puts("ready");
	fflush(stdout);
}

/* Children go with their parent. */
static pid_t start_child(void)
{
	pid_t child = fork();
	if (child == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return child;
}

static void wait_for_end(void)
{
	while (getchar() != EOF)
		;
}

/* prefork SHARED WORKERS OWN: megabytes that all have from their parent, and of each worker itself. */
static void prefork(char **words)
{
	size_t shared = strtoul(words[0], NULL, 10) * MB, own = strtoul(words[2], NULL, 10) * MB;
	int workers = atoi(words[1]), told[2];
	if (pipe(told) != 0)
		exit(1);
	use_heap(shared);
	for (int worker = 0; worker < workers; worker++) {
		if (start_child() == 0) {
			/* Not what the parent's heap has left. */
			memset(map(MAP_PRIVATE | MAP_ANONYMOUS, -1, own), 1, own);
			if (write(told[1], "x", 1) != 1)
				exit(1);
			for (;;)
				pause();
		}
	}
	for (int worker = 0; worker < workers; worker++) {
		char byte;
		if (read(told[0], &byte, 1) != 1)
			exit(1);
	}
}

/* mapped FILE MAPPED HEAP SHARED: megabytes of a file that are read, of a heap, and shared without a file. */
static void mapped(char **words)
{
	size_t bytes = strtoul(words[1], NULL, 10) * MB, shared = strtoul(words[3], NULL, 10) * MB;
	int file = open(words[0], O_RDWR | O_CREAT, 0600);
	if (file < 0 || ftruncate(file, bytes) != 0) {
		perror(words[0]);
		exit(1);
	}
	volatile char *at = map(MAP_SHARED, file, bytes);
	char sum = 0;
	for (size_t offset = 0; offset < bytes; offset += PAGE)
		sum += at[offset];
	use_heap(strtoul(words[2], NULL, 10) * MB + (sum != 0));
	if (shared > 0)
		memset(map(MAP_SHARED | MAP_ANONYMOUS, -1, shared), 1, shared);
}

/* churn CHILDREN: so many at any time, each of which ends at once and is followed by another. */
static void churn(char **words)
{
	int children = atoi(words[0]);
	use_heap(4 * MB);
	ready();
	fcntl(0, F_SETFL, O_NONBLOCK);
	for (int living = 0;; living--) {
		char byte;
		if (read(0, &byte, 1) == 0)
			return;
		for (; living < children; living++)
			if (start_child() == 0) {
				use_heap(MB / 4);
				_exit(0);
			}
		wait(NULL);
	}
}

/* faults PAGES: for each byte of input so many pages that were never used. */
static void faults(char **words)
{
	size_t pages = strtoul(words[0], NULL, 10);
	int byte;
	ready();
	while ((byte = getchar()) != EOF) {
		char *at = map(MAP_PRIVATE | MAP_ANONYMOUS, -1, pages * PAGE);
		madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
		for (size_t page = 0; page < pages; page++)
			at[page * PAGE] = 1;
		munmap(at, pages * PAGE);
		ready();
	}
}

int main(int count, char **words)
{
	if (count == 5 && strcmp(words[1], "prefork") == 0) {
		prefork(words + 2);
	} else if (count == 6 && strcmp(words[1], "mapped") == 0) {
		mapped(words + 2);
	} else if (count == 3 && strcmp(words[1], "churn") == 0) {
		churn(words + 2);
		return 0;
	} else if (count == 3 && strcmp(words[1], "faults") == 0) {
		faults(words + 2);
		return 0;
	} else {
		return 2;
	}
	ready();
	wait_for_end();
	return 0;
}
