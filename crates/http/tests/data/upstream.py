"""An upstream by others: Python's http.server parses the head, so that what it makes of a request can be
compared with what the proxy made of it. Prints its port, then serves; each complete request is one JSON
line in the file that is named on the command line, written before its answer."""

import http.server
import json
import sys
import threading

LOG = open(sys.argv[1], "a", buffering=1)
LOCK = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def chunks(self):
        body = b""
        while True:
            size = int(self.rfile.readline().strip(), 16)
            if size == 0:
                while (line := self.rfile.readline()) not in (b"\r\n", b""):
                    name, value = line.decode("latin-1").split(":", 1)
                    self.trailers.append([name, value.strip()])
                return body
            body += self.rfile.read(size)
            self.rfile.readline()

    def __getattr__(self, name):
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self):
        coding = self.headers.get("transfer-encoding")
        length = self.headers.get("content-length")
        self.trailers = []
        body = self.chunks() if coding else self.rfile.read(int(length or 0))
        if length and len(body) < int(length):
            self.close_connection = True
            return
        seen = {
            "line": self.requestline,
            "fields": [list(field) for field in self.headers.items()],
            "body": body.decode("latin-1"),
            "trailers": self.trailers,
            "peer": self.client_address[1],
        }
        with LOCK:
            LOG.write(json.dumps(seen) + "\n")
        text = json.dumps(seen).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
