#!/bin/sh
# A service of our own on these crates, and how often it calls malloc: with its pools on not once per
# request. The lab counts that in any server, by an object preloaded in front of the allocator.
set -eu
port=${PORT:-18089}
cd "$(dirname "$0")/.."
cargo build --release --locked -p millpond-http --example json
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')

status=0
"${MILLPOND:-millpond}" compare --url "http://127.0.0.1:$port/hello/you" --allocators glibc --rounds 2 \
    --time-budget 30s --out "${OUT:-millpond-json}" -- "$target/release/examples/json" "127.0.0.1:$port" ||
    status=$?
python3 examples/results.py "${OUT:-millpond-json}/results.json" | grep heap_calls
exit "$status"
