#!/bin/sh
# A script written for wrk, as it is, against the entity server: every write is on the disk before it is
# answered. Then one of the entities is read back.
set -eu
millpond=${MILLPOND:-millpond}
port=${PORT:-18084}
here=$(dirname "$0")
directory=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; wait; rm -rf "$directory"' EXIT

"$millpond" serve entity --data "$directory/data" --listen "127.0.0.1:$port" &
server=$!
curl -sf --retry 20 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$port/v0/status"

"$millpond" load -t 1 -c 32 -d "${DURATION:-5s}" -s "$here/put.lua" "http://127.0.0.1:$port/" -- 1000

test "$(curl -sf "http://127.0.0.1:$port/v0/entity?id=999")" = 'value 999'
echo 'lua.sh: what the script wrote is there'
