-- What everscale's clients sent: a GET with 1,024 bytes in one chunk.
local text

function init(args)
  local head = "GET " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. "\r\n"
    .. "Content-Type: octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
  text = head .. "400\r\n" .. string.rep("*", 1024) .. "\r\n0\r\n\r\n"
end

function request()
  return text
end
