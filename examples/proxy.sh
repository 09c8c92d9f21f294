#!/bin/sh
# One address in front of two entity servers. Whoever asks names the entity in a field as well, and the
# proxy hashes that: an id is always kept, and looked for, at the same server.
set -eu
millpond=${MILLPOND:-millpond}
port=${PORT:-18085}
directory=$(mktemp -d)
processes=
trap 'kill $processes 2>/dev/null; wait; rm -rf "$directory"' EXIT

answers() { curl -sf --retry 20 --retry-connrefused --retry-delay 1 "$1" > /dev/null; }

for number in 1 2; do
    "$millpond" serve entity --data "$directory/$number" --listen "127.0.0.1:$((port + number))" --shards 1 &
    processes="$processes $!"
    answers "http://127.0.0.1:$((port + number))/v0/status"
done
"$millpond" proxy --listen "127.0.0.1:$port" --upstream "127.0.0.1:$((port + 1))" \
    --upstream "127.0.0.1:$((port + 2))" --balance hash:header:X-Id --health /v0/status &
processes="$processes $!"
answers "http://127.0.0.1:$port/v0/status"

for id in $(seq 40); do
    curl -sf -X PUT -H "X-Id: $id" --data-binary "value $id" "http://127.0.0.1:$port/v0/entity?id=$id"
done
for id in $(seq 40); do
    test "$(curl -sf -H "X-Id: $id" "http://127.0.0.1:$port/v0/entity?id=$id")" = "value $id"
done

# What each server has of its own, asked past the proxy.
count() { curl -sf "http://127.0.0.1:$1/v0/entities?start=0" | grep -o value | wc -l; }
first=$(count $((port + 1)))
second=$(count $((port + 2)))
echo "proxy.sh: 40 entities through the proxy, $first at the first server and $second at the second"
test $((first + second)) = 40
test "$first" -gt 0
test "$second" -gt 0

