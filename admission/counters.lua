-- The counters in Redis: each call is one atomic step over all scopes of a request. admission/redis.py says who calls.
--
-- ARGV: the step's name, the prefix of all keys, the instant in Unix seconds (empty: the store's own clock), and the
-- step's data in MessagePack. KEYS[1] is the index of leases by expiry. Answers are MessagePack. A step reads, decides,
-- and then writes, so that nothing is half done where it fails. A take names the epoch that its server knows: where it
-- is another, all that was kept here was lost, and the server says first what months have cost.
--
-- A scope's key holds f: what is in flight, h: what is held, w: the window's steps, t: their sum, m: the month (label,
-- money, shares told), l: the life (end, amounts). Amounts are requests, input, output, money; the fifth measure, tokens, is input
-- plus output. A part of a lease is {key, kind, id, tenant, until, money a month, soft share, has a budget, rules}, a
-- rule {name, measure, span, limit}; what is not there is false. admission/tally.py and local.py say it in Python.

local step, P, given, data = ARGV[1], ARGV[2], ARGV[3], cmsgpack.unpack(ARGV[4])
local WINDOW, STEP, BUSY, KEPT = 60, 40, 1, 86400
local floor, max, min = math.floor, math.max, math.min
local now = tonumber(given)
if not now then
  local time = redis.call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- Days of the civil calendar: H. Hinnant, "chrono-Compatible Low-Level Date Algorithms".
local function civil(at)
  local z = floor(at / 86400) + 719468
  local era = floor(z / 146097)
  local doe = z - era * 146097
  local yoe = floor((doe - floor(doe / 1460) + floor(doe / 36524) - floor(doe / 146096)) / 365)
  local mp = floor((5 * (doe - (365 * yoe + floor(yoe / 4) - floor(yoe / 100))) + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  return yoe + era * 400 + (month <= 2 and 1 or 0), month
end
local function first_of(year, month)
  if month <= 2 then year = year - 1 end
  local era = floor(year / 400)
  local yoe = year - era * 400
  local doy = floor((153 * (month > 2 and month - 3 or month + 9) + 2) / 5)
  return (era * 146097 + yoe * 365 + floor(yoe / 4) - floor(yoe / 100) + doy - 719468) * 86400
end
local year, month = civil(now)
local MONTH = string.format('%04d-%02d', year, month)
local MONTH_END = month == 12 and first_of(year + 1, 1) or first_of(year, month + 1)

local function of(v, index)
  if index == 5 then return v[2] + v[3] end
  return v[index]
end
local function add(v, amounts, sign)
  for n = 1, 4 do v[n] = v[n] + sign * amounts[n] end
end
local function any(v)
  return v[1] ~= 0 or v[2] ~= 0 or v[3] ~= 0 or v[4] ~= 0
end

-- A step of a window: its second and what happened in it, five numbers of eight bytes.
local function step_at(w, place)
  local second, a, b, c, d = struct.unpack('>ddddd', w, place)
  return second, {a, b, c, d}
end

local loaded, changed = {}, {}
local function counts(key)
  local own = loaded[key]
  if own then return own end
  local raw = redis.call('GET', P .. 's:' .. key)
  own = raw and cmsgpack.unpack(raw) or {f = {0, 0, 0, 0}, h = {0, 0, 0, 0}, t = {0, 0, 0, 0}, w = ''}
  local first = 1
  while first < #own.w do
    local second, amounts = step_at(own.w, first)
    if second + 1 + WINDOW > now then break end
    add(own.t, amounts, -1)
    first = first + STEP
  end
  if first > 1 then own.w = own.w:sub(first) end
  if own.m and own.m[1] ~= MONTH then own.m = nil end
  if own.l and own.l[1] and own.l[1] <= now then own.l = nil end
  loaded[key] = own
  return own
end
-- A scope in use stays until it is at rest; then its key goes a minute after its window, its month or its life.
local function save()
  for key in pairs(changed) do
    local own, name = loaded[key], P .. 's:' .. key
    local lasts = #own.w > 0 and step_at(own.w, #own.w - STEP + 1) + 2 + WINDOW or 0
    if own.m then lasts = max(lasts, MONTH_END) end
    if own.l then lasts = max(lasts, own.l[1] or math.huge) end
    if any(own.f) or any(own.h) or lasts == math.huge then
      redis.call('SET', name, cmsgpack.pack(own))
    elseif lasts > now then
      redis.call('SET', name, cmsgpack.pack(own), 'EX', math.ceil(lasts - now) + WINDOW)
    else
      redis.call('DEL', name)
    end
  end
end

local function into_window(own, amounts)
  if not any(amounts) then return end
  local second, total, last = floor(now), {0, 0, 0, 0}, #own.w - STEP
  if last >= 0 then
    local newest, so_far = step_at(own.w, last + 1)
    if newest >= second then
      second, total, own.w = newest, so_far, own.w:sub(1, last)
    end
  end
  add(total, amounts, 1)
  own.w = own.w .. struct.pack('>ddddd', second, unpack(total))
  add(own.t, amounts, 1)
end
local function book(own, amounts, recent)
  if recent then into_window(own, amounts) end
  if own.m then own.m[2] = own.m[2] + amounts[4] end
  if own.l then
    for n = 1, 4 do own.l[n + 1] = own.l[n + 1] + amounts[n] end
  end
end
local function begun(part, own)
  if part[6] and not own.m then own.m = {MONTH, 0, {}} end
  if part[8] and not own.l then own.l = {part[5], 0, 0, 0, 0} end
end

local function used(own, rule)
  local index, span = rule[2], rule[3]
  if span == 'now' then return of(own.f, index) end
  if span == 'minute' then return of(own.t, index) + of(own.h, index) end
  if span == 'month' then return (own.m and own.m[2] or 0) + own.h[4] end
  return (own.l and of({own.l[2], own.l[3], own.l[4], own.l[5]}, index) or 0) + of(own.h, index)
end
local function window_wait(own, index, needed)
  local freed = 0
  for place = 1, #own.w, STEP do
    local second, amounts = step_at(own.w, place)
    freed = freed + of(amounts, index)
    if freed >= needed then return second + 1 + WINDOW - now end
  end
  return WINDOW
end
local function left(till)
  return till and max(0, till - now) or WINDOW
end
local function wait(part, own, rule, over)
  if rule[3] == 'minute' then return window_wait(own, rule[2], over) end
  if rule[3] == 'now' or over <= of(own.h, rule[2]) then return BUSY end
  return rule[3] == 'month' and MONTH_END - now or left(part[5])
end
local function resets(part, own, rule)
  if rule[3] == 'now' then return 0 end
  if rule[3] == 'minute' then return of(own.t, rule[2]) > 0 and window_wait(own, rule[2], 1) or 0 end
  return rule[3] == 'month' and MONTH_END - now or left(part[5])
end
-- The refusal with the longest wait, of the first scope of several; nil where `need` fits everywhere.
local function refusal(parts, need, begins)
  local found, longest = nil, -1
  local function note(part, name, limit, uses, needed, seconds)
    if seconds > longest then
      found, longest = {0, part[2], part[3], part[4], name, limit, uses, needed, seconds}, seconds
    end
  end
  for _, part in ipairs(parts) do
    local own = counts(part[1])
    if begins and part[5] and part[5] <= now then
      note(part, 'deadline', 0, 0, 0, WINDOW)
    else
      for _, rule in ipairs(part[9]) do
        local needed = of(need, rule[2])
        if needed ~= 0 or begins then
          local uses = used(own, rule)
          local over = uses + needed - rule[4]
          if over > 0 then note(part, rule[1], rule[4], uses, needed, wait(part, own, rule, over)) end
        end
      end
    end
  end
  return found
end
local function rooms(parts)
  local found = {1}
  for p, part in ipairs(parts) do
    local own = counts(part[1])
    for r, rule in ipairs(part[9]) do
      found[#found + 1] = {p - 1, r - 1, used(own, rule), resets(part, own, rule)}
    end
  end
  return found
end

local function lease_of(id)
  local raw = redis.call('GET', P .. 'l:' .. id)
  return raw and cmsgpack.unpack(raw) or nil
end
local function keep(id, lease)
  redis.call('SET', P .. 'l:' .. id, cmsgpack.pack(lease))
  redis.call('ZADD', KEYS[1], string.format('%.6f', lease.x), id)
end
local function gone(id)
  redis.call('DEL', P .. 'l:' .. id)
  redis.call('ZREM', KEYS[1], id)
end
local function hold(lease, change)
  if not any(change) then return end
  add(lease.h, change, 1)
  add(lease.f, change, 1)
  for _, part in ipairs(lease.p) do
    local own = counts(part[1])
    add(own.h, change, 1)
    add(own.f, change, 1)
    changed[part[1]] = true
  end
end
local function crossings(part, own, crossed)
  local limit = part[6]
  if not limit or not own.m then return end
  local soft = part[7] or 1
  for _, share in ipairs(soft < 1 and {soft, 1} or {1}) do
    if own.m[2] >= share * limit then
      local name = string.format('%.17g:%.17g', share, limit)
      if not own.m[3][name] then
        own.m[3][name] = true
        crossed[#crossed + 1] = {part[2], part[3], part[4], share, limit, own.m[2], MONTH}
      end
    end
  end
end
local function settle(lease, amounts)
  local crossed = {}
  lease.s, lease.r = true, {0, amounts[2], amounts[3], amounts[4]}
  for _, part in ipairs(lease.p) do
    local own = counts(part[1])
    add(own.h, lease.h, -1)
    if part[6] and not own.m then own.m = {MONTH, 0, {}} end
    book(own, lease.r, true)
    crossings(part, own, crossed)
    changed[part[1]] = true
  end
  return crossed
end
local function finish(lease)
  local booked = not lease.s
  local crossed = booked and settle(lease, lease.r) or {}
  for _, part in ipairs(lease.p) do
    add(counts(part[1]).f, lease.f, -1)
    changed[part[1]] = true
  end
  return booked, crossed
end

local steps = {}

function steps.take()
  local id, tenant, ttl, need, parts, known = unpack(data)
  local epoch = redis.call('GET', P .. 'epoch')
  if not epoch then
    epoch = redis.call('TIME')
    epoch = epoch[1] .. '.' .. epoch[2]
    redis.call('SET', P .. 'epoch', epoch)
  end
  if epoch ~= known then return {2, epoch} end
  local kept = lease_of(id)
  if kept then return rooms(kept.p) end
  local refused = refusal(parts, {1, need[2], need[3], need[4]}, true)
  if refused then return refused end
  local held, flight = {0, need[2], need[3], need[4]}, {1, need[2], need[3], need[4]}
  for _, part in ipairs(parts) do
    local own = counts(part[1])
    begun(part, own)
    book(own, {1, 0, 0, 0}, true)
    add(own.f, flight, 1)
    add(own.h, held, 1)
    changed[part[1]] = true
  end
  local granted = rooms(parts)
  save()
  keep(id, {a = tenant, v = ttl, x = now + ttl, s = false, h = held, f = flight, r = {0, 0, 0, 0}, p = parts})
  return granted
end

function steps.extend()
  local id, more, total = unpack(data)
  local lease = lease_of(id)
  if not lease or lease.s then
    local part = lease and lease.p[1] or {'', 'deployment', 'all', ''}
    return {0, part[2], part[3], part[4], 'lease', 0, 0, 0, BUSY}
  end
  lease.x = now + lease.v
  local change, wanted = {0}, {0}
  for n = 2, 4 do
    lease.r[n] = max(lease.r[n], total[n])
    change[n] = max(lease.h[n] + min(0, more[n]), lease.r[n]) - lease.h[n]
    wanted[n] = max(0, more[n])
  end
  hold(lease, change)
  local refused = any(wanted) and refusal(lease.p, wanted, false) or nil
  if not refused then hold(lease, wanted) end
  save()
  keep(id, lease)
  return refused or {1}
end

function steps.settle()
  local id, total = unpack(data)
  local lease = lease_of(id)
  if not lease or lease.s then return {false, {}} end
  local crossed = settle(lease, total)
  save()
  keep(id, lease)
  return {true, crossed}
end

function steps.leave()
  local lease = lease_of(data[1])
  if not lease then return {false, {}} end
  local booked, crossed = finish(lease)
  save()
  gone(data[1])
  return {booked, crossed}
end

-- Where nobody looked for longer than a lease lives, the store or all servers were away: what lives gets another time
-- to say so. That is known until all that expired was looked at, which may take several steps.
function steps.reap()
  local seen, ended = tonumber(redis.call('GET', P .. 'seen') or false), {}
  local expired = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', string.format('%.6f', now), 'LIMIT', 0, data[1])
  local leases, renewed = {}, {}
  for _, id in ipairs(expired) do
    local lease = lease_of(id)
    if lease and seen and now - seen > lease.v then
      lease.x, renewed[id] = now + lease.v, lease
    elseif lease then
      local _, crossed = finish(lease)
      ended[#ended + 1] = {id, lease.a, lease.r, crossed}
    end
    leases[id] = lease
  end
  save()
  for _, id in ipairs(expired) do
    if renewed[id] then keep(id, renewed[id]) else gone(id) end
  end
  local more = #expired == data[1]
  if not more then redis.call('SET', P .. 'seen', string.format('%.6f', now), 'EX', KEPT) end
  return {more, ended}
end

-- What was used while the store was away, once; where the lease was taken after all, it is settled instead.
-- A month or a life that has not begun here does not begin with it: all that it used is read from the record, this too.
function steps.report()
  local id, total, parts, recent = unpack(data)
  if redis.call('EXISTS', P .. 'b:' .. id) == 1 then return {false, {}} end
  local lease, crossed = lease_of(id), {}
  if lease then
    if not lease.s then lease.r = {0, total[2], total[3], total[4]} end
    local _, told = finish(lease)
    crossed = told
  else
    for _, part in ipairs(parts) do
      local own = counts(part[1])
      book(own, total, recent)
      crossings(part, own, crossed)
      changed[part[1]] = true
    end
  end
  save()
  if lease then gone(id) end
  redis.call('SET', P .. 'b:' .. id, '', 'EX', KEPT)
  return {true, crossed}
end

function steps.seed()
  for _, scope in ipairs(data[2]) do
    local own = counts(scope[1])
    if data[1] == MONTH and not own.m then
      own.m = {MONTH, scope[2], {}}
      changed[scope[1]] = true
    end
  end
  save()
  return {}
end

function steps.recall()
  local key, till, total = unpack(data)
  local own = counts(key)
  if not own.l and till > now then
    own.l = {till, total[1], total[2], total[3], total[4]}
    changed[key] = true
  end
  save()
  return {}
end

function steps.use()
  local own = counts(data[1])
  local life = own.l and {own.l[2], own.l[3], own.l[4], own.l[5]} or {0, 0, 0, 0}
  return {own.f, own.h, own.t, own.m and own.m[2] or 0, life}
end

return cmsgpack.pack(steps[step]())
