// Answers what server.py answers, by node's http.
const http = require('http');
http.createServer((request, response) => {
  const parts = [];
  request.on('data', (part) => parts.push(part));
  request.on('end', () => {
    const body = Buffer.concat(parts);
    const [path, query] = request.url.split('?');
    if (path === '/big') return response.end(Buffer.alloc(1 << 20, 'x'));
    if (path === '/204') return response.writeHead(204).end();
    if (path === '/parts') {
      response.write('a');
      return setTimeout(() => response.end('b'), 5);
    }
    response.write(`${request.method} ${query || ''} ${body.length} `);
    response.end(body);
  });
}).listen(+process.argv[2], '127.0.0.1');
