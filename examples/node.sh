#!/bin/sh
# Which memory allocator suits a server of node? V8 keeps its own heap; what is left for malloc is
# buffers and the C++ below. The warm-up that node needs is found and done by the comparison.
set -eu
port=${PORT:-18082}
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

cat > "$directory/server.js" <<END
const http = require('http');
http.createServer((request, response) => {
  const body = Buffer.from(JSON.stringify({ path: request.url, at: Date.now() }));
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': body.length });
  response.end(body);
}).listen($port, '127.0.0.1');
END

"${MILLPOND:-millpond}" compare --url "http://127.0.0.1:$port/" \
    --allocators "${ALLOCATORS:-glibc,jemalloc}" \
    --time-budget "${TIME_BUDGET:-60s}" --out "${OUT:-millpond-node}" \
    -- node "$directory/server.js"
