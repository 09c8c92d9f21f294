// Reads byte strings from stdin, each behind its length as four bytes, least significant first, and
// tells on one line for each how llhttp, the parser inside node, takes it apart: first what ended it
// (`none`, `upgrade` or the name of an error), then METHOD:TARGET:BODY of every request that is
// complete, target and body in hexadecimal. Strict: no leniency is switched on.
'use strict';
process.removeAllListeners('warning');
const { HTTPParser, methods, allMethods } = process.binding('http_parser');
const input = require('fs').readFileSync(0);
const names = allMethods ?? methods;
const out = [`# llhttp ${process.versions.llhttp} of node ${process.version}`];

function takeApart(bytes) {
  const requests = [];
  let now = null;
  const parser = new HTTPParser();
  parser.initialize(HTTPParser.REQUEST, {}, 1 << 20, HTTPParser.kLenientNone);
  parser[HTTPParser.kOnMessageBegin] = () => {};
  let early = '';
  parser[HTTPParser.kOnHeaders] = (headers, url) => { early += url; };
  parser[HTTPParser.kOnHeadersComplete] = (major, minor, headers, method, url) => {
    now = { method: names[method], target: Buffer.from(early + (url ?? ''), 'latin1'), body: [] };
    early = '';
    return 0;
  };
  parser[HTTPParser.kOnBody] = (piece) => { now.body.push(Buffer.from(piece)); };
  parser[HTTPParser.kOnMessageComplete] = () => {
    const body = Buffer.concat(now.body).toString('hex');
    requests.push(`${now.method}:${now.target.toString('hex')}:${body}`);
    now = null;
    early = ''; // Trailers come with a target as well.
  };
  const result = parser.execute(bytes);
  const end = result instanceof Error ? result.code : result < bytes.length ? 'upgrade' : 'none';
  return [end, ...requests].join(' ');
}

for (let at = 0; at < input.length;) {
  const length = input.readUInt32LE(at);
  out.push(takeApart(input.subarray(at + 4, at + 4 + length)));
  at += 4 + length;
}
process.stdout.write(out.join('\n') + '\n');
