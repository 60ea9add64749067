-- A dissector of the Bowline protocol (SPEC.md) for Wireshark and tshark.
--
--   tshark -X lua_script:bowline.lua -r capture.pcapng
--
-- Connections are recognized by their first frame, on any port. Filters: bowline.kind,
-- bowline.call (client/seq), bowline.n, bowline.twin, bowline.remaining, bowline.how, ...

local bowline = Proto("bowline", "Bowline")

local kinds = {
  [1] = "hello", [2] = "hello-ack", [3] = "ping", [4] = "pong", [5] = "request", [6] = "cancel",
  [7] = "started", [8] = "reply", [9] = "ended", [10] = "overloaded", [11] = "goodbye",
  [12] = "segment", [13] = "credit", [14] = "go-away",
}
local hows = { [0] = "withdrawn", [1] = "aborted", [2] = "shed" }
local statuses = { [0] = "ok", [1] = "no such method", [2] = "bad request", [3] = "failed",
  [4] = "stale", [5] = "too large" }
local reasons = { [0] = "leaving", [1] = "protocol", [2] = "stranger", [3] = "silent", [4] = "credit" }
local payloads = { [0] = "request", [1] = "reply" }
local option_names = {
  [1] = "total", [2] = "key", [0x8001] = "class", [0x8002] = "trace", [0x8003] = "label",
  [0x8004] = "fresh",
}

local f = bowline.fields
f.sum = ProtoField.uint32("bowline.checksum", "Header checksum", base.HEX)
f.version = ProtoField.uint8("bowline.version", "Version")
f.kind = ProtoField.uint8("bowline.kind", "Kind", base.DEC, kinds)
f.flags = ProtoField.uint16("bowline.flags", "Flags", base.HEX)
f.length = ProtoField.uint32("bowline.length", "Payload length")
f.n = ProtoField.uint16("bowline.n", "Attempt")
f.code = ProtoField.uint16("bowline.code", "Code")
f.client = ProtoField.uint64("bowline.client", "Client", base.HEX)
f.seq = ProtoField.uint64("bowline.seq", "Call")
f.call = ProtoField.string("bowline.call", "Call")
f.method = ProtoField.uint16("bowline.method", "Method")
f.remaining = ProtoField.uint64("bowline.remaining", "Remaining, ns")
f.idempotent = ProtoField.bool("bowline.idempotent", "Idempotent")
f.cause = ProtoField.string("bowline.cause", "Cause")
f.twin = ProtoField.string("bowline.twin", "Twin")
f.window = ProtoField.uint32("bowline.tie_window", "Tie window, us")
f.reason = ProtoField.string("bowline.reason", "Reason")
f.lifetime = ProtoField.uint64("bowline.lifetime", "Lifetime, ns")
f.status = ProtoField.uint16("bowline.status", "Status", base.DEC)
f.executed = ProtoField.bool("bowline.executed", "Executed")
f.how = ProtoField.uint16("bowline.how", "How it ended", base.DEC, hows)
f.by = ProtoField.uint16("bowline.by", "By twin")
f.after = ProtoField.uint64("bowline.retry_after", "Retry after, ns")
f.running = ProtoField.uint16("bowline.running", "Running")
f.queued = ProtoField.uint16("bowline.queued", "Queued")
f.wait = ProtoField.uint32("bowline.wait", "Queue wait, us")
f.token = ProtoField.uint64("bowline.token", "Token")
f.offset = ProtoField.uint32("bowline.offset", "Offset")
f.credit_requests = ProtoField.uint64("bowline.credit.requests", "Credit, requests")
f.credit_bytes = ProtoField.uint64("bowline.credit.bytes", "Credit, bytes")
f.within = ProtoField.uint64("bowline.within", "Closes within, ns")
f.obeys = ProtoField.bool("bowline.obeys_cancels", "Obeys a twin's cancels")
f.station = ProtoField.string("bowline.station", "Replica and core")
f.option = ProtoField.bytes("bowline.option", "Option")
f.payload = ProtoField.bytes("bowline.payload", "Payload")
f.payload_sum = ProtoField.uint32("bowline.payload_checksum", "Payload checksum", base.HEX)

local function has(flags, flag)
  return bit.band(flags, flag) ~= 0
end

local function span(b)
  local ns = b(32, 8):le_uint64():tonumber()
  if ns >= 1e9 then return string.format("%.3g s", ns / 1e9) end
  if ns >= 1e6 then return string.format("%.4g ms", ns / 1e6) end
  return string.format("%.4g us", ns / 1e3)
end

-- The name of the copy, in the packet list and as fields.
local function copy(b, tree)
  local name = string.format("%s/%s", tostring(b(16, 8):le_uint64():tohex()), tostring(b(24, 8):le_uint64()))
  tree:add_le(f.client, b(16, 8))
  tree:add_le(f.seq, b(24, 8))
  tree:add(f.call, b(16, 16), name)
  tree:add_le(f.n, b(12, 2))
  return string.format("%s#%d", name, b(12, 2):le_uint())
end

local function station(b)
  return string.format("%d.%d", b(44, 2):le_uint(), b(46, 2):le_uint())
end

local function twin(b, tree)
  local text = string.format("#%d at %s", b(48, 2):le_uint(), station(b))
  tree:add(f.twin, b(44, 6), text)
  return text
end

local function load(b, tree)
  tree:add_le(f.running, b(50, 2))
  tree:add_le(f.queued, b(52, 2))
  tree:add_le(f.wait, b(56, 4))
  return string.format(" load %d+%d", b(50, 2):le_uint(), b(52, 2):le_uint())
end

-- A version, and how stale at most; either may be left open.
local function fresh(b, at)
  local version, staleness = b(at, 8):le_uint64(), b(at + 8, 8):le_uint64()
  local text = version:tonumber() > 0 and " version " .. tostring(version) or ""
  if staleness:tohex() == "ffffffffffffffff" then return text end
  return text .. string.format(" within %.4g ms", staleness:tonumber() / 1e6)
end

-- Options stand at the head of the payload of a request or reply.
local function options(b, tree)
  local text, at, stop = "", 64, 64 + b(54, 2):le_uint()
  while at + 4 <= stop and stop <= b:len() do
    local tag, length = b(at, 2):le_uint(), b(at + 2, 2):le_uint()
    if at + 4 + length > stop then break end
    local name = option_names[tag] or string.format("%#06x", tag)
    local item = tree:add(f.option, b(at, 4 + length))
    item:set_text("Option: " .. name)
    if tag == 1 and length == 4 then name = name .. " " .. b(at + 4, 4):le_uint() end
    if tag == 0x8001 and length == 1 then name = name .. " " .. b(at + 4, 1):uint() end
    if tag == 0x8003 and length > 0 then name = name .. " " .. b(at + 4, length):string() end
    if tag == 0x8004 and length == 16 then name = name .. fresh(b, at + 4) end
    text = text .. ", " .. name
    at = at + 4 + length
  end
  return text
end

local function credit(b, tree)
  tree:add_le(f.credit_requests, b(24, 8))
  tree:add_le(f.credit_bytes, b(16, 8))
  return string.format(" %s requests, %s bytes", tostring(b(24, 8):le_uint64()), tostring(b(16, 8):le_uint64()))
end

local frames = {}

frames[1] = function(b, tree)
  if b(14, 2):le_uint() == 1 then
    tree:add(f.station, b(44, 4), station(b))
    return " of replica and core " .. station(b)
  end
  tree:add_le(f.client, b(16, 8))
  return " of client " .. b(16, 8):le_uint64():tohex()
end

frames[2] = function(b, tree, flags)
  tree:add(f.obeys, b(6, 2), has(flags, 1))
  local text = has(flags, 1) and ", obeys cancels" or ""
  return text .. (has(flags, 2) and ", grants" .. credit(b, tree) or "")
end

frames[3] = function(b, tree)
  tree:add_le(f.token, b(24, 8))
  return " " .. tostring(b(24, 8):le_uint64())
end
frames[4] = frames[3]

frames[5] = function(b, tree, flags)
  local text = " " .. copy(b, tree) .. " method " .. b(14, 2):le_uint() .. ", " .. span(b) .. " left"
  tree:add_le(f.method, b(14, 2))
  tree:add_le(f.remaining, b(32, 8))
  tree:add(f.idempotent, b(6, 2), has(flags, 1))
  local cause = has(flags, 4) and "hedge" or has(flags, 8) and "re-dispatch" or "first"
  tree:add(f.cause, b(6, 2), cause)
  if cause ~= "first" then text = text .. ", " .. cause end
  if has(flags, 2) then
    tree:add_le(f.window, b(40, 4))
    text = text .. ", tied to " .. twin(b, tree)
  end
  return text .. (has(flags, 16) and options(b, tree) or "")
end

frames[6] = function(b, tree, flags)
  local text = " " .. copy(b, tree)
  tree:add_le(f.lifetime, b(32, 8))
  local reason = has(flags, 1) and "twin started" or "caller done"
  tree:add(f.reason, b(6, 2), reason)
  return text .. ": " .. reason .. (has(flags, 1) and ", " .. twin(b, tree) or "")
end

frames[7] = function(b, tree) return " " .. copy(b, tree) end

frames[8] = function(b, tree, flags)
  local status = b(14, 2):le_uint()
  local text = " " .. copy(b, tree) .. ": "
  text = text .. (status >= 256 and "error " .. (status - 256) or statuses[status] or "failed, by a status of a later version")
  tree:add_le(f.status, b(14, 2))
  tree:add(f.executed, b(6, 2), has(flags, 1))
  return text .. "," .. load(b, tree) .. (has(flags, 16) and options(b, tree) or "")
end

frames[9] = function(b, tree, flags)
  local text = " " .. copy(b, tree) .. ": " .. (hows[b(14, 2):le_uint()] or "unknown")
  tree:add_le(f.how, b(14, 2))
  if has(flags, 1) then
    tree:add_le(f.by, b(48, 2))
    text = text .. " by #" .. b(48, 2):le_uint()
  end
  return text .. "," .. load(b, tree)
end

frames[10] = function(b, tree)
  tree:add_le(f.after, b(32, 8))
  return " " .. copy(b, tree) .. ", ask after " .. span(b) .. "," .. load(b, tree)
end

frames[11] = function(b, tree)
  local reason = reasons[b(14, 2):le_uint()] or "unknown"
  tree:add(f.reason, b(14, 2), reason)
  return ": " .. reason
end

frames[12] = function(b, tree)
  tree:add_le(f.offset, b(40, 4))
  local of = payloads[b(14, 2):le_uint()] or "unknown"
  return string.format(" %s, %s from %d", copy(b, tree), of, b(40, 4):le_uint())
end

frames[13] = credit

frames[14] = function(b, tree)
  tree:add_le(f.within, b(32, 8))
  return " within " .. span(b)
end

local function dissect_frame(b, pinfo, root)
  local kind, flags = b(5, 1):uint(), b(6, 2):le_uint()
  local tree = root:add(bowline, b())
  tree:add_le(f.sum, b(0, 4))
  tree:add(f.version, b(4, 1))
  tree:add(f.kind, b(5, 1))
  tree:add_le(f.flags, b(6, 2))
  tree:add_le(f.length, b(8, 4))
  tree:add_le(f.code, b(14, 2))
  local describe = frames[kind]
  local text = (kinds[kind] or "kind " .. kind) .. (describe and describe(b, tree, flags) or "")
  tree:add_le(f.payload_sum, b(60, 4))
  if b:len() > 64 then tree:add(f.payload, b(64)) end
  tree:append_text(": " .. text)
  pinfo.cols.info:append(text .. " | ")
  return b:len()
end

local function frame_length(b, _, at)
  return 64 + b(at + 8, 4):le_uint()
end

function bowline.dissector(b, pinfo, root)
  pinfo.cols.protocol = "BOWLINE"
  pinfo.cols.info:clear()
  dissect_tcp_pdus(b, root, 64, frame_length, dissect_frame)
  return b:len()
end

-- A hello or a goodbye of version 1, with no more payload than those have.
local function recognize(b, pinfo, root)
  if b:len() < 64 or b(4, 1):uint() ~= 1 then return false end
  local kind, length = b(5, 1):uint(), b(8, 4):le_uint()
  if not (kind == 1 and length >= 4 and length <= 16384) then return false end
  pinfo.conversation = bowline
  bowline.dissector(b, pinfo, root)
  return true
end

bowline:register_heuristic("tcp", recognize)
DissectorTable.get("tcp.port"):add_for_decode_as(bowline)
