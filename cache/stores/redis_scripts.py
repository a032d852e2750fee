"""Lua for Redis: each script is one atomic step on one tenant's keys, which share a slot.

KEYS[1] is the tenant's `state`, and ARGV[1] the prefix of the tenant's keys; further keys are named by the script
itself, all with the same hash tag. Redis writes the effects of a script to its log and to replicas as one transaction:
a server that is killed has all of it or nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

_SHARED: Final = """
local P = ARGV[1]
local function less(key, field)
  if redis.call('HINCRBY', key, field, -1) <= 0 then redis.call('HDEL', key, field) end
end
local function keep(key, at)
  if redis.call('EXPIRETIME', key) < at then redis.call('EXPIREAT', key, at) end
end
local function strings(...)
  for _, value in ipairs({...}) do
    if type(value) ~= 'string' then return false end
  end
  return true
end
-- What is noted of an entry, or nil where it is damaged.
local function noted(raw)
  local fine, meta = pcall(cjson.decode, raw)
  if not fine or type(meta) ~= 'table' or type(meta.d) ~= 'table' or not strings(unpack(meta.d))
    or not strings(meta.i or 0, meta.n or 0, meta.u or 0, meta.t or 0) or type(meta.v) ~= 'boolean'
    or type(meta.b) ~= 'number' or type(meta.c) ~= 'number' or type(meta.x) ~= 'number' then return nil end
  return meta
end
local function drop(m)
  local raw = redis.call('HGET', P .. 'meta', m)
  redis.call('UNLINK', P .. 'e:' .. m)
  redis.call('ZREM', P .. 'lru', m)
  redis.call('ZREM', P .. 'exp', m)
  redis.call('ZREM', P .. 'new', m)
  if not raw then return 0 end
  redis.call('HDEL', P .. 'meta', m)
  local meta = noted(raw)
  -- What it is counted in is then unknown: a repair counts anew.
  if not meta then return 1 end
  if redis.call('HGET', P .. 'ids', meta.i) == m then redis.call('HDEL', P .. 'ids', meta.i) end
  if meta.v then redis.call('VREM', P .. 'v:' .. meta.n, m) end
  redis.call('SREM', P .. 'u:' .. meta.u, m)
  redis.call('SREM', P .. 't:' .. meta.t, m)
  for _, document in ipairs(meta.d) do redis.call('SREM', P .. 'd:' .. document, m) end
  less(P .. 'spaces', meta.n)
  less(P .. 'users', meta.u)
  redis.call('HINCRBY', P .. 'state', 'bytes', -meta.b)
  return 1
end
local function expired(now, limit, but)
  local removed = 0
  for _, m in ipairs(redis.call('ZRANGEBYSCORE', P .. 'exp', '-inf', now, 'LIMIT', 0, limit)) do
    if m ~= but then removed = removed + drop(m) end
  end
  return removed
end
"""

STEP: Final = 64
"""How many entries one step removes at most: it holds the server up for some milliseconds (0.3 ms a vector)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Script:
    """Lua, and the name that Redis gives it: its SHA-1."""

    source: str
    sha: str


def _script(body: str, *, adds: bool = False) -> Script:
    """What `adds` is refused as a whole where the server is full; what removes has to work there above all."""
    source = ("#!lua\n" if adds else "#!lua flags=allow-oom\n") + _SHARED + body
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def steps(members: Iterable[T]) -> Iterator[list[T]]:
    """`members` in parts of at most `STEP`."""
    rest = iter(members)
    while part := list(islice(rest, STEP)):
        yield part


# The answer is '' where the entry was written, else why not. The vector goes first, since it alone can be refused.
PUT: Final = _script(
    """
local moved, m, id, checksum, body, vector = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local raw, now, at, created, expires = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12]
local most, most_bytes, step = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local state = redis.call('HGET', P .. 'state', 'moved') or ''
if state == 'deleted' then return 'the tenant is deleted' end
if state ~= moved then return 'moved' end
if tonumber(redis.call('TIME')[1]) >= at then return 'expired' end
for n = 16, #ARGV, 2 do redis.call('ZADD', P .. 'lru', 'XX', ARGV[n + 1], ARGV[n]) end
local meta = cjson.decode(raw)
drop(m)
local space = P .. 'v:' .. meta.n
if vector ~= '' then
  local done = redis.pcall('VADD', space, 'FP32', vector, m, 'NOQUANT', 'SETATTR', '{"x":' .. expires .. '}')
  if type(done) == 'table' and done.err then return 'the vector was refused' end
  keep(space, at)
end
redis.call('HSET', P .. 'e:' .. m, 'i', id, 'k', checksum, 'b', body)
redis.call('EXPIREAT', P .. 'e:' .. m, at)
redis.call('HSET', P .. 'meta', m, raw)
redis.call('HSET', P .. 'ids', id, m)
redis.call('ZADD', P .. 'lru', now, m)
redis.call('ZADD', P .. 'exp', expires, m)
redis.call('ZADD', P .. 'new', created, m)
redis.call('HINCRBY', P .. 'spaces', meta.n, 1)
redis.call('HINCRBY', P .. 'users', meta.u, 1)
redis.call('HINCRBY', P .. 'state', 'bytes', meta.b)
local touched = {'meta', 'ids', 'lru', 'exp', 'new', 'spaces', 'users', 'state', 'u:' .. meta.u, 't:' .. meta.t}
redis.call('SADD', P .. 'u:' .. meta.u, m)
redis.call('SADD', P .. 't:' .. meta.t, m)
for _, document in ipairs(meta.d) do
  redis.call('SADD', P .. 'd:' .. document, m)
  touched[#touched + 1] = 'd:' .. document
end
for _, name in ipairs(touched) do keep(P .. name, at) end
local function over()
  return redis.call('HLEN', P .. 'meta') > most
    or tonumber(redis.call('HGET', P .. 'state', 'bytes')) > most_bytes
end
-- A few at every write, so that what has expired goes also where no quota is met.
local left = step - expired(now, over() and step or 8, m)
while left > 0 and over() do
  local oldest = redis.call('ZRANGE', P .. 'lru', 0, 1)
  local victim = oldest[1] == m and oldest[2] or oldest[1]
  if not victim then break end
  drop(victim)
  left = left - 1
end
if over() then
  drop(m)
  return 'the quota is full'
end
return ''
""",
    adds=True,
)

CONFIRM: Final = _script(
    """
local m, id, checksum, body = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('HGET', P .. 'e:' .. m, 'i') ~= id then return 0 end
redis.call('HSET', P .. 'e:' .. m, 'k', checksum, 'b', body)
return 1
""",
    adds=True,
)

# Of the members ARGV[3..] those that meet every condition of ARGV[2].
REMOVE: Final = _script("""
local wanted, removed = cjson.decode(ARGV[2]), 0
local function meant(meta)
  if wanted.i and meta.i ~= wanted.i or wanted.u and meta.u ~= wanted.u or wanted.t and meta.t ~= wanted.t
    or wanted.c and meta.c > wanted.c then return false end
  if not wanted.d then return true end
  for _, document in ipairs(meta.d) do
    if document == wanted.d then return true end
  end
  return false
end
for n = 3, #ARGV do
  local raw = redis.call('HGET', P .. 'meta', ARGV[n])
  local meta = raw and noted(raw)
  -- A damaged note may be of an entry that is meant.
  if raw and (not meta or meant(meta)) then removed = removed + drop(ARGV[n]) end
end
return removed
""")

# From here on no write goes through that was begun before.
MOVE: Final = _script("""
redis.call('HSET', P .. 'state', 'moved', ARGV[2])
keep(P .. 'state', tonumber(ARGV[3]))
return 1
""")

# A tenant is being deleted: what others are about to write is refused until nobody can begin another write.
DELETED: Final = _script("""
redis.call('UNLINK', P .. 'state')
redis.call('HSET', P .. 'state', 'moved', 'deleted')
redis.call('EXPIRE', P .. 'state', ARGV[2])
return 1
""")

EXPIRE: Final = _script("return expired(ARGV[2], tonumber(ARGV[3]), '')")

# What a lookup found to be no entry: ARGV[2] its namespace, then member and the checksum that was read ('' for none).
FORGET: Final = _script("""
for n = 3, #ARGV, 2 do
  local m, seen = ARGV[n], ARGV[n + 1]
  if (redis.call('HGET', P .. 'e:' .. m, 'k') or '') == seen then
    drop(m)
    redis.call('VREM', P .. 'v:' .. ARGV[2], m)
  end
end
return 1
""")

# Repair, member by member of `meta`: an entry that lacks its text or its vector goes; indexes are made whole.
CHECK: Final = _script("""
local gone = 0
for n = 2, #ARGV do
  local m = ARGV[n]
  local raw = redis.call('HGET', P .. 'meta', m)
  if raw then
    local meta = noted(raw)
    local at = redis.call('EXPIRETIME', P .. 'e:' .. m)
    local lacks = not meta or meta.v and not redis.call('VGETATTR', P .. 'v:' .. meta.n, m)
    if at < 0 or lacks or redis.call('HGET', P .. 'e:' .. m, 'i') ~= meta.i then
      gone = gone + drop(m)
    else
      redis.call('ZADD', P .. 'lru', 'NX', meta.c, m)
      redis.call('ZADD', P .. 'exp', 'NX', meta.x, m)
      redis.call('ZADD', P .. 'new', 'NX', meta.c, m)
      redis.call('HSET', P .. 'ids', meta.i, m)
      redis.call('SADD', P .. 'u:' .. meta.u, m)
      redis.call('SADD', P .. 't:' .. meta.t, m)
      local touched = {'meta', 'ids', 'lru', 'exp', 'new', 'u:' .. meta.u, 't:' .. meta.t}
      for _, document in ipairs(meta.d) do
        redis.call('SADD', P .. 'd:' .. document, m)
        touched[#touched + 1] = 'd:' .. document
      end
      for _, name in ipairs(touched) do keep(P .. name, at) end
    end
  end
end
return gone
""")

# Repair, the other way round: members ARGV[4..] of the key ARGV[2], whose kind is ARGV[3], that no `meta` knows.
PRUNE: Final = _script("""
local key, kind, gone = P .. ARGV[2], ARGV[3], 0
for n = 4, #ARGV do
  local m = ARGV[n]
  local raw = redis.call('HGET', P .. 'meta', m)
  local known = raw and true or false
  if known and kind == 'v' then
    local meta = noted(raw)
    known = meta and meta.v and ARGV[2] == 'v:' .. meta.n
  end
  if not known then
    gone = gone + 1
    if kind == 'z' then redis.call('ZREM', key, m)
    elseif kind == 's' then redis.call('SREM', key, m)
    elseif kind == 'v' then redis.call('VREM', key, m)
    else redis.call('UNLINK', key) end
  end
end
return gone
""")

# Repair, last: the totals as they follow from `meta`. One pass over all of it, for an operator's repair alone.
RECOUNT: Final = _script("""
local bytes, spaces, users, ids = 0, {}, {}, {}
local all = redis.call('HGETALL', P .. 'meta')
for n = 1, #all, 2 do
  local meta = noted(all[n + 1])
  if meta then
    bytes = bytes + meta.b
    spaces[meta.n] = (spaces[meta.n] or 0) + 1
    users[meta.u] = (users[meta.u] or 0) + 1
    ids[meta.i] = true
  end
end
for _, id in ipairs(redis.call('HKEYS', P .. 'ids')) do
  if not ids[id] then redis.call('HDEL', P .. 'ids', id) end
end
local at = redis.call('EXPIRETIME', P .. 'meta')
redis.call('UNLINK', P .. 'spaces', P .. 'users')
for name, count in pairs(spaces) do redis.call('HSET', P .. 'spaces', name, count) end
for name, count in pairs(users) do redis.call('HSET', P .. 'users', name, count) end
if at > 0 then
  redis.call('HSET', P .. 'state', 'bytes', bytes)
  for _, name in ipairs({'spaces', 'users', 'state'}) do keep(P .. name, at) end
else
  redis.call('HDEL', P .. 'state', 'bytes')
end
return bytes
""")
