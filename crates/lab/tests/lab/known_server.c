/* A server whose heap calls and whose busiest function are known: each connection does the same. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static void small(void) {
  for (int i = 0; i < 100000; i++) free(malloc(32));
}
__attribute__((noinline)) static void medium(void) {
  for (int i = 0; i < 20000; i++) free(calloc(10, 100));
}
__attribute__((noinline)) static void large(void) {
  for (int i = 0; i < 50; i++) free(malloc(1 << 20));
}
__attribute__((noinline)) static void grown(void) {
  void *block = malloc(100);
  for (int i = 1; i < 1000; i++) block = realloc(block, 100 + 10 * i);
  free(block);
}
__attribute__((noinline)) static void spin(void) {
  struct timespec now;
  volatile unsigned long sum = 0;
  long until;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  until = now.tv_sec * 1000 + now.tv_nsec / 1000000 + 250;
  do {
    for (int i = 0; i < 1000000; i++) sum += i;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  } while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < until);
}

int main(int count, char **words) {
  static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
  int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (count != 2 || bind(listener, (void *)&address, sizeof address) || listen(listener, 64)) return 1;
  for (;;) {
    char question[4096];
    int connection = accept(listener, 0, 0);
    ssize_t len = read(connection, question, sizeof question - 1);
    if (len > 0) {
      question[len] = 0;
      if (strstr(question, "/allocate")) { small(); medium(); large(); grown(); }
      if (strstr(question, "/spin")) spin();
      if (strstr(question, "/fork")) {
        if (fork() == 0) { small(); _exit(0); }
        /* The answer says that it has ended. */
        wait(0);
      }
      if (write(connection, answer, sizeof answer - 1) < 0) return 1;
    }
    close(connection);
  }
}
