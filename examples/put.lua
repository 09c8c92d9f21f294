-- A script as wrk runs it: wrk -s put.lua http://127.0.0.1:8080/ -- 1000
-- Writes entities with ids from 0 up to the number behind `--`, over and over, each thread its own share.
local count, id = 1000, 0

function init(args)
  count = tonumber(args[1]) or count
  wrk.method = "PUT"
  wrk.headers["Content-Type"] = "text/plain"
end

function request()
  id = (id + 1) % count
  return wrk.format(nil, "/v0/entity?id=" .. id, nil, "value " .. id)
end

function done(summary, latency, requests)
  io.write(string.format("put.lua: %d answers, %d of them errors; p99 %.2f ms\n",
    summary.requests, summary.errors.status, latency:percentile(99) / 1000))
end
