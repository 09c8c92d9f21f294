-- What a script of wrk's finds when it begins: the global table `wrk`. Runs in each state before the
-- script, with the host's facts and functions as its argument, and returns the host's ways in.
-- What is called for each request is Lua, so that LuaJIT compiles it together with the script.
local host = ...
local buffer = require("string.buffer")
local _G, type, tostring, tonumber, next, ipairs = _G, type, tostring, tonumber, next, ipairs
local len, find, stdout, error = string.len, string.find, io.stdout, error
local getinfo = debug.getinfo

local wrk = {
   scheme  = host.scheme,
   host    = host.host,
   port    = host.port,
   method  = host.method,
   path    = host.path,
   headers = host.fields,
   body    = host.body,
   addrs   = host.addrs,
   lookup  = host.lookup,
   connect = host.connect,
   time_us = host.time_us,
}
_G.wrk = wrk

-- Where Debian and others keep modules; LuaJIT as built here knows /usr/local alone.
package.path = package.path .. ";/usr/share/lua/5.1/?.lua;/usr/share/lua/5.1/?/init.lua"

local function text(value)
   local kind = type(value)
   if kind == "string" or kind == "number" then return value end
   return tostring(value)
end

local request = buffer.new(1024)

local function put_field(headers, name)
   local value
   name, value = next(headers, name)
   if name ~= nil then request:put(text(name), ": ", text(value), "\r\n") end
   return name
end

-- One trace of LuaJIT's, which holds no loop and ends in no call: hence the fields one by one, and
-- the local variable at the end. That makes it a third of the instructions.
function wrk.format(method, path, headers, body)
   method  = method  or wrk.method
   path    = path    or wrk.path
   headers = headers or wrk.headers
   body    = body    or wrk.body

   if not headers["Host"] then headers["Host"] = wrk.headers["Host"] end
   headers["Content-Length"] = body and len(body)

   request:reset()
   request:put(text(method), " ", text(path), " HTTP/1.1\r\n")
   local name = put_field(headers, nil)
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   if name ~= nil then name = put_field(headers, name) end
   while name ~= nil do name = put_field(headers, name) end
   request:put("\r\n", body or "")
   local whole = request:tostring()
   return whole
end

function wrk.resolve(name, service)
   local alive = {}
   for _, addr in ipairs(wrk.lookup(name, service)) do
      if wrk.connect(addr) then alive[#alive + 1] = addr end
   end
   wrk.addrs = alive
end

function wrk.setup(thread)
   thread.addr = wrk.addrs[1] or thread.addr
   if type(_G.setup) == "function" then _G.setup(thread) end
end

function wrk.init(args)
   if not wrk.headers["Host"] then
      local name = find(wrk.host, ":", 1, true) and "[" .. wrk.host .. "]" or wrk.host
      wrk.headers["Host"] = wrk.port and name .. ":" .. wrk.port or name
   end
   if type(_G.init) == "function" then _G.init(args) end
   local whole = wrk.format()
   wrk.request = function() return whole end
end

-- The globals are looked up at each call: a script may replace them while it runs.
local ways_in = {}

function ways_in.setup(thread) _G.wrk.setup(thread) end

function ways_in.init(args) _G.wrk.init(args) end

-- Until the first one, something that no string is.
local in_hand = {}

-- False: the same string as the last time.
function ways_in.request()
   local ask = _G.request
   if type(ask) ~= "function" then ask = _G.wrk.request end
   local whole = ask()
   if whole == in_hand then return false end
   local kind = type(whole)
   if kind == "number" then
      whole = tostring(whole)
   elseif kind ~= "string" then
      error("request() has to return a string, and returned a " .. kind, 0)
   end
   in_hand = whole
   return whole
end

function ways_in.delay()
   local ask = _G.delay
   if type(ask) ~= "function" then return 0 end
   return tonumber(ask()) or 0
end

-- The fields of the head that the host has shown last, in its order.
local names, values, count = {}, {}, 0

function ways_in.fields(...)
   local all = {...}
   names, values, count = {}, {}, #all / 2
   for i = 1, count do
      names[i], values[i] = all[2 * i - 1], all[2 * i]
   end
end

-- How many of status, headers and body a function takes. What it does not take it cannot miss.
local takes = setmetatable({}, { __mode = "k" })

local function arguments_of(tell)
   local info = getinfo(tell, "u")
   takes[tell] = info.isvararg and 3 or info.nparams
   return takes[tell]
end

-- 0: told. Else how many arguments are wanted: fields or body are missing and nothing was called.
function ways_in.response(status, has_fields, body)
   local tell = _G.response
   if type(tell) ~= "function" then return 0 end
   local wanted = takes[tell] or arguments_of(tell)
   if wanted < 2 then
      tell(status)
      return 0
   end
   if not has_fields or (wanted > 2 and not body) then return wanted end
   -- A table of its own for each answer: the script may keep it, or write in it.
   local headers = {}
   for i = 1, count do headers[names[i]] = values[i] end
   if wanted == 2 then tell(status, headers) else tell(status, headers, body) end
   return 0
end

function ways_in.done(summary, latency, requests)
   if type(_G.done) == "function" then _G.done(summary, latency, requests) end
end

function ways_in.defines(name) return type(_G[name]) == "function" end

-- Scripts print through C's buffer, the program around them does not.
function ways_in.flush() stdout:flush() end

return ways_in
