//! Node: an engine with its own heap over mmap, native code over malloc, and many threads.

use crate::harness::{find_program, preloaded, run};

const SCRIPT: &str = r#"
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const zlib = require('zlib'), crypto = require('crypto'), assert = require('assert');

function work(seed) {
  const kept = [];
  let size = seed;
  for (let i = 0; i < 3000; i++) {
    size = (size * 1103515245 + 12345) % 2147483648;
    const buffer = Buffer.allocUnsafeSlow(size % (i % 50 ? 9000 : 300000) + 1).fill(i & 255);
    kept[i % 100] = buffer;
    assert(buffer[buffer.length - 1] === (i & 255));
  }
  const text = Buffer.concat(kept);
  assert(zlib.gunzipSync(zlib.gzipSync(text)).equals(text));
  assert(zlib.inflateSync(zlib.deflateSync(text, { level: 9 })).equals(text));
  assert(zlib.brotliDecompressSync(zlib.brotliCompressSync(text, { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } })).equals(text));
  return crypto.createHash('sha256').update(text).digest('hex');
}

if (isMainThread) {
  const maps = require('fs').readFileSync('/proc/self/maps', 'utf8');
  assert(maps.includes(process.env.LD_PRELOAD), 'the object is not mapped');
  const expected = [1, 2, 3].map(work);
  const rounds = [];
  for (let round = 0; round < 2; round++)
    for (const seed of [1, 2, 3])
      rounds.push(new Promise((done, failed) => {
        const worker = new Worker(__filename, { workerData: seed });
        worker.on('message', done);
        worker.on('error', failed);
      }).then(digest => assert.equal(digest, expected[seed - 1])));
  const packed = new Promise((done, failed) => zlib.gzip(Buffer.alloc(3e6, 'abc'), (error, data) =>
    error ? failed(error) : zlib.gunzip(data, (error, plain) => error ? failed(error) : done(plain.length))));
  Promise.all([packed, ...rounds]).then(([length]) => {
    assert.equal(length, 3e6);
    const child = require('child_process').execFileSync(process.execPath, ['-p', '6 * 7'], { encoding: 'utf8' });
    assert.equal(child, '42\n');
    console.log('done');
  });
} else {
  parentPort.postMessage(work(workerData));
}
"#;

/// Goal: buffers, compression and hashes give the same in the main thread and in workers that come
/// and go.
#[test]
fn node_computes_the_same() {
    let Some(node) = find_program("node") else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("work.js");
    std::fs::write(&script, SCRIPT).unwrap();
    let output = run(preloaded(&node).arg(&script)).expect_ok();
    assert_eq!(output, "done\n");
}
