/* A thread for each connection, one heap block for each request. Requests of other paths than / are answered with 404, and
   every Nth with 500: N is the second word, or 10 where a library with "fails" in its name is preloaded. */
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static atomic_ulong requests;
static unsigned long bad_every;

static const char *answer_to(const char *request) {
  if (strncmp(request, "GET / ", 6)) return "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
  if (bad_every && (requests++ + 1) % bad_every == 0)
    return "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\nno";
  return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
}

static void *serve(void *word) {
  int client = (int)(long)word;
  char request[4096];
  size_t length = 0;
  ssize_t got;
  while ((got = read(client, request + length, sizeof request - 1 - length)) > 0) {
    char *end, *from = request;
    request[length += got] = 0;
    while ((end = strstr(from, "\r\n\r\n"))) {
      char *volatile block = malloc(100);
      const char *answer = answer_to(from);
      free(block);
      if (write(client, answer, strlen(answer)) < 0) break;
      from = end + 4;
    }
    length -= from - request;
    memmove(request, from, length);
  }
  close(client);
  return 0;
}

int main(int count, char **words) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  const char *preloaded = getenv("LD_PRELOAD");
  bad_every = count > 2 ? atoi(words[2]) : 0;
  if (preloaded && strstr(preloaded, "fails")) bad_every = 10;
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
