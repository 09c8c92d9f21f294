/* A thread for each connection, and for each request 256 blocks that are freed again below one that stays for a while:
   the C library's malloc keeps them in the arena of the thread. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BLOCKS = 256, BLOCK_BYTES = 2000 };

static void work(void **kept) {
  void *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = memset(malloc(BLOCK_BYTES), 1, BLOCK_BYTES);
  void *next = malloc(64);
  free(*kept);
  *kept = next;
  for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void *serve(void *word) {
  static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
  int client = (int)(long)word;
  void *kept = 0;
  char request[4096];
  size_t length = 0;
  ssize_t got;
  while ((got = read(client, request + length, sizeof request - 1 - length)) > 0) {
    char *end, *from = request;
    request[length += got] = 0;
    while ((end = strstr(from, "\r\n\r\n"))) {
      work(&kept);
      if (write(client, answer, sizeof answer - 1) < 0) break;
      from = end + 4;
    }
    length -= from - request;
    memmove(request, from, length);
  }
  free(kept);
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
