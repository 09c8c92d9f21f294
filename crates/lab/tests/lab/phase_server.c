/* A thread for each connection. What a request does with memory depends on its path:
     /leak   a block that is never given back
     /large  1 MiB that the connection holds until it ends
     /pin    4 MiB of small blocks that the connection holds until it ends, all but one of each page;
             those stay, and take the place of the ones before them
     /cache  blocks of a cache that keeps 8 MiB, once it is full no more
     /mib    1 MiB that is given back at once
   Everything else: a block that is given back at once. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LARGE = 1 << 20, BLOCKS = 4096, BLOCK_BYTES = 1000, PER_PAGE = 4, PINS = 16384 };

enum { CACHED = 8192, CACHED_AT_ONCE = 64 };

static void *cache[CACHED];
static int next_cached;
static void *pins[PINS];
static int next_pin;
static pthread_mutex_t pins_lock = PTHREAD_MUTEX_INITIALIZER;

static void *filled(size_t size) { return memset(malloc(size), 1, size); }

struct held {
  void *large;
  void *blocks[BLOCKS];
  int has_blocks;
};

static void work(const char *request, struct held *held) {
  if (!strncmp(request, "GET /leak ", 10)) {
    void *volatile leaked = filled(BLOCK_BYTES);
    (void)leaked;
  } else if (!strncmp(request, "GET /large ", 11) && !held->large) {
    held->large = filled(LARGE);
  } else if (!strncmp(request, "GET /pin ", 9) && !held->has_blocks) {
    for (int i = 0; i < BLOCKS; i++) held->blocks[i] = filled(BLOCK_BYTES);
    held->has_blocks = 1;
  } else if (!strncmp(request, "GET /cache ", 11)) {
    int first = __atomic_fetch_add(&next_cached, CACHED_AT_ONCE, __ATOMIC_RELAXED);
    for (int i = first; i < first + CACHED_AT_ONCE && i < CACHED; i++) cache[i] = filled(BLOCK_BYTES);
  } else if (!strncmp(request, "GET /mib ", 9)) {
    free(filled(LARGE));
  } else {
    free(filled(BLOCK_BYTES));
  }
}

static void give_back(struct held *held) {
  free(held->large);
  for (int i = 0; held->has_blocks && i < BLOCKS; i++) {
    void *leaving = held->blocks[i];
    if (i % PER_PAGE == 0) {
      pthread_mutex_lock(&pins_lock);
      void **pin = &pins[next_pin++ % PINS];
      leaving = *pin;
      *pin = held->blocks[i];
      pthread_mutex_unlock(&pins_lock);
    }
    free(leaving);
  }
  free(held);
}

static void *serve(void *word) {
  static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  int client = (int)(long)word;
  struct held *held = calloc(1, sizeof *held);
  char request[4096];
  size_t length = 0;
  ssize_t got;
  while ((got = read(client, request + length, sizeof request - 1 - length)) > 0) {
    char *end, *from = request;
    request[length += got] = 0;
    while ((end = strstr(from, "\r\n\r\n"))) {
      work(from, held);
      if (write(client, answer, sizeof answer - 1) < 0) break;
      from = end + 4;
    }
    length -= from - request;
    memmove(request, from, length);
  }
  give_back(held);
  close(client);
  return 0;
}

int main(int count, char **words) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  signal(SIGPIPE, SIG_IGN);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (void *)&address, sizeof address) || listen(listener, 512)) return 1;
  for (;;) {
    pthread_t thread;
    int client = accept(listener, 0, 0);
    if (client < 0 || pthread_create(&thread, 0, serve, (void *)(long)client)) return 1;
    pthread_detach(thread);
  }
}
