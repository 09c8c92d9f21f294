#!/bin/sh
# Which memory allocator suits nginx? One worker, one short answer: nginx.conf.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

"${MILLPOND:-millpond}" compare --url http://127.0.0.1:8081/ \
    --allocators "${ALLOCATORS:-glibc,jemalloc,mempool}" \
    --time-budget "${TIME_BUDGET:-60s}" --out "${OUT:-millpond-nginx}" \
    -- nginx -p "$directory" -c "$here/nginx.conf"
