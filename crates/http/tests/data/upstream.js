// An upstream by others: node's http server, strict. Prints its port, then serves; each complete request
// is one JSON line in the file that is named on the command line, written before its answer, and so is
// each that it refuses.
'use strict';
const fs = require('fs');
const http = require('http');

const log = fs.openSync(process.argv[2], 'a');
const see = (what) => fs.writeSync(log, JSON.stringify(what) + '\n');

function fieldsOf(raw) {
  const fields = [];
  for (let at = 0; at < raw.length; at += 2) fields.push([raw[at], raw[at + 1]]);
  return fields;
}

const server = http.createServer({ maxHeaderSize: 128 * 1024 }, (request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    see({
      line: `${request.method} ${request.url} HTTP/${request.httpVersion}`,
      fields: fieldsOf(request.rawHeaders),
      trailers: fieldsOf(request.rawTrailers),
      body: Buffer.concat(parts).toString('latin1'),
    });
    response.end('seen');
  });
});
server.keepAliveTimeout = 120000;
server.on('clientError', (error, socket) => {
  // The proxy cut a request that turned out to be unsound: no request, then.
  const isCut = ['ECONNRESET', 'HPE_INVALID_EOF_STATE', 'EPIPE'].includes(error.code);
  see(isCut ? { cut: error.code } : { status: 400, line: '', why: error.code });
  if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n');
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
