#!/bin/sh
# Which memory allocator suits redis? It does not speak HTTP, so redis-benchmark makes the load, and
# patterns say what its output tells. Debian's redis brings jemalloc along: that is the baseline.
set -eu
port=${PORT:-18083}

"${MILLPOND:-millpond}" compare --port "$port" \
    --check-cmd "redis-cli -p $port set k v" \
    --load-cmd "redis-benchmark -p $port -t set -r 100000 -d 200 -n 50000 --csv" \
    --load-metric 'throughput=regex:^"SET","([0-9.]+)"' \
    --load-metric 'p99[ms]=regex:^"SET",(?:"[0-9.]+",){5}"([0-9.]+)"' \
    --load-metric requests=50000 \
    --allocators "${ALLOCATORS:-glibc,mempool}" \
    --time-budget "${TIME_BUDGET:-60s}" --out "${OUT:-millpond-redis}" \
    -- redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no
