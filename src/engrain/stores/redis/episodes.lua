-- Episodes of one scope. KEYS[1] is the beginning of all their keys, which share its hash tag and so its slot:
--   episode:ID  hash, with the engine's TTL   raw:ID      hash, the long form, with a TTL of its own
--   all         ids by time                   of:SESSION  ids by time
--   due         [id, session, key] by expiry  raws        ids by the raw text's expiry
--   same:…      ids of one session and key    call:NUMBER what a call was answered
-- The engine's TTL ends a grace after `expires`, which decides what is shown. An id whose episode the engine took stays
-- in the indexes until the next write or `expire`; indexes live as long as the last episode in them, and those of what
-- is due as long as the scope has any. Of a scope on hold nothing has a TTL; after the release `expire` removes what is
-- over.

-- shared --
local base, call, grace = KEYS[1], ARGV[1], tonumber(ARGV[2])

local function digits(number)
  return string.format('%.0f', number)
end

local function time()
  local at = redis.call('TIME')
  return tonumber(at[1]) * 1000000 + tonumber(at[2])
end

-- What this very call was answered before, if the answer was lost on its way and the call comes again.
local function before()
  local kept = redis.call('GET', base .. 'call:' .. call)
  return kept and cmsgpack.unpack(kept)
end

local function answered(reply)
  redis.call('SET', base .. 'call:' .. call, cmsgpack.pack(reply), 'PX', 60000)
  return reply
end

local function due_name(id, session, key)
  return cjson.encode(key and {id, session, key} or {id, session})
end

local function same_key(session, key)
  return base .. 'same:' .. #session .. ':' .. session .. ':' .. key
end

local function remove(id, session, key)
  redis.call('DEL', base .. 'episode:' .. id, base .. 'raw:' .. id)
  redis.call('ZREM', base .. 'all', id)
  redis.call('ZREM', base .. 'of:' .. session, id)
  redis.call('ZREM', base .. 'due', due_name(id, session, key))
  redis.call('ZREM', base .. 'raws', id)
  if key then
    redis.call('SREM', same_key(session, key), id)
  end
end

-- 1 if it was there.
local function drop(id)
  local found = redis.call('HMGET', base .. 'episode:' .. id, 'session', 'key')
  if not found[1] then
    return 0
  end
  remove(id, found[1], found[2])
  return 1
end

-- Take out of the indexes what the engine has taken away; how many.
local function clean(most)
  local past = digits(time() - grace)
  redis.call('ZREMRANGEBYSCORE', base .. 'raws', '-inf', past)
  local dead = redis.call('ZRANGEBYSCORE', base .. 'due', '-inf', past, 'LIMIT', 0, most)
  for _, name in ipairs(dead) do
    remove(unpack(cjson.decode(name)))
  end
  return #dead
end

local function trim(session, keep)
  local index, gone = base .. 'of:' .. session, 0
  while redis.call('ZCARD', index) > keep and clean(100) > 0 do end
  local over = redis.call('ZCARD', index) - keep
  if over > 0 then
    for _, id in ipairs(redis.call('ZRANGE', index, 0, over - 1)) do
      gone = gone + drop(id)
    end
  end
  return gone
end

local function engine_time(expires)
  return digits(math.ceil((tonumber(expires) + grace) / 1000))
end

-- An index lives as long as the last of what is in it.
local function index(command, name, expires, ...)
  local new = redis.call('EXISTS', name) == 0
  redis.call(command, name, ...)
  if not expires then
    redis.call('PERSIST', name)
    return
  end
  local left, at = redis.call('PTTL', name), engine_time(expires)
  if new or (left >= 0 and time() / 1000 + left < tonumber(at)) then
    redis.call('PEXPIREAT', name, at)
  end
end

local function live_with_all(name)
  local left = redis.call('PTTL', base .. 'all')
  if left < 0 then
    redis.call('PERSIST', base .. name)
  else
    redis.call('PEXPIRE', base .. name, left)
  end
end

-- The episode as it is given, in place of nothing; `raw` is "" or "=" and the text.
local function write(id, new, raw, raw_expires, held)
  local ends = not held and new.expires
  local fields = {}
  for name, value in pairs(new) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  redis.call('HSET', base .. 'episode:' .. id, unpack(fields))
  index('ZADD', base .. 'all', ends, new.happened, id)
  index('ZADD', base .. 'of:' .. new.session, ends, new.happened, id)
  if new.key then
    index('SADD', same_key(new.session, new.key), ends, id)
  end
  if ends then
    redis.call('PEXPIREAT', base .. 'episode:' .. id, engine_time(ends))
  end
  if new.expires then
    redis.call('ZADD', base .. 'due', new.expires, due_name(id, new.session, new.key))
  end
  if raw ~= '' then
    redis.call('HSET', base .. 'raw:' .. id, 'text', string.sub(raw, 2), 'expires', raw_expires)
    if not held then
      local sooner = ends and tonumber(ends) < tonumber(raw_expires) and ends or raw_expires
      redis.call('PEXPIREAT', base .. 'raw:' .. id, engine_time(sooner))
    end
    redis.call('ZADD', base .. 'raws', raw_expires, id)
  end
  live_with_all('due')
  live_with_all('raws')
end

-- add --
-- `most` is "" on hold: then nothing is trimmed, joined with what is like it, or ended by the engine.
local id, most, raw, raw_expires = unpack(ARGV, 3, 6)
local held = most == ''
local kept = before()
if kept then
  return kept
end
local new = {}
for i = 7, #ARGV, 2 do
  new[ARGV[i]] = ARGV[i + 1]
end
-- Changes nothing, and is refused if the server is full: later on, after a removal, nothing would be.
redis.call('SETRANGE', base .. 'call:' .. call, 0, '')
if not held then
  clean(100)
end
drop(id)
local same = not held and new.key and same_key(new.session, new.key)
for _, other in ipairs(same and redis.call('SMEMBERS', same) or {}) do
  local it = redis.call('HMGET', base .. 'episode:' .. other, 'count', 'importance', 'expires')
  if not it[1] then
    redis.call('SREM', same, other)
  elseif not it[3] or tonumber(it[3]) > tonumber(new.happened) then
    new.count = digits(tonumber(new.count) + tonumber(it[1]))
    new.importance = tonumber(it[2]) > tonumber(new.importance) and it[2] or new.importance
    if not it[3] or not new.expires then
      new.expires = nil
    elseif tonumber(it[3]) > tonumber(new.expires) then
      new.expires = it[3]
    end
    drop(other)
  end
end
write(id, new, raw, raw_expires, held)
if not held then
  trim(new.session, tonumber(most))
end
return answered({new.count, new.importance, new.expires or ''})

-- recent --
-- At most n that are not over, from a time on downwards, of which the first ones were seen; and where to go on. Each as
-- one JSON text: the client reads that much faster than twenty small ones.
local name, now, n, top, seen = unpack(ARGV, 3, 7)
local found, walked, skip, most = {}, 0, tonumber(seen), tonumber(n)
while #found < most and walked < 2000 do
  local few = math.min(100, most - #found)
  local page = redis.call('ZREVRANGEBYSCORE', base .. name, top, '-inf', 'WITHSCORES', 'LIMIT', skip, few)
  if #page == 0 then
    return {found, '', '0'}
  end
  for i = 1, #page, 2 do
    local fields = redis.call('HGETALL', base .. 'episode:' .. page[i])
    local expires = redis.call('HGET', base .. 'episode:' .. page[i], 'expires')
    if #fields > 0 and (not expires or tonumber(expires) > tonumber(now)) then
      found[#found + 1] = cjson.encode({page[i], fields})
    end
    walked = walked + 1
    skip = page[i + 1] == top and skip + 1 or 1
    top = page[i + 1]
  end
end
return {found, top, digits(skip)}

-- raw --
local id, now = ARGV[3], tonumber(ARGV[4])
local raw = redis.call('HMGET', base .. 'raw:' .. id, 'text', 'expires')
local episode = redis.call('HMGET', base .. 'episode:' .. id, 'session', 'expires')
if not raw[1] or tonumber(raw[2]) <= now or not episode[1] or (episode[2] and tonumber(episode[2]) <= now) then
  return false
end
return raw[1]

-- remove --
local kept = before()
if kept then
  return kept
end
local gone = 0
for i = 3, #ARGV do
  gone = gone + drop(ARGV[i])
end
return answered(gone)

-- trim --
local kept = before()
if kept then
  return kept
end
return answered(trim(ARGV[3], tonumber(ARGV[4])))

-- expire --
-- What is over, at most so many; how many episodes went, and whether that was all.
local now, limit = unpack(ARGV, 3, 4)
local kept = before()
if kept then
  return kept
end
local raws = redis.call('ZRANGEBYSCORE', base .. 'raws', '-inf', now, 'LIMIT', 0, limit)
for _, id in ipairs(raws) do
  redis.call('DEL', base .. 'raw:' .. id)
  redis.call('ZREM', base .. 'raws', id)
end
local over, gone = redis.call('ZRANGEBYSCORE', base .. 'due', '-inf', now, 'LIMIT', 0, limit), 0
for _, name in ipairs(over) do
  local it = cjson.decode(name)
  gone = gone + redis.call('EXISTS', base .. 'episode:' .. it[1])
  remove(unpack(it))
end
return answered({gone, #over < tonumber(limit) and #raws < tonumber(limit) and 1 or 0})

-- hold --
-- From here on nothing ends by itself; some at a time, and where to go on.
local page = redis.call('ZSCAN', base .. 'all', ARGV[3], 'COUNT', 500)
for i = 1, #page[2], 2 do
  local id = page[2][i]
  local it = redis.call('HMGET', base .. 'episode:' .. id, 'session', 'key')
  redis.call('PERSIST', base .. 'episode:' .. id)
  redis.call('PERSIST', base .. 'raw:' .. id)
  if it[1] then
    redis.call('PERSIST', base .. 'of:' .. it[1])
  end
  if it[2] then
    redis.call('PERSIST', same_key(it[1], it[2]))
  end
end
for _, name in ipairs({'all', 'due', 'raws'}) do
  redis.call('PERSIST', base .. name)
end
return page[1]

-- restore --
-- From another store, as it was there: not joined with what is like it.
local id, raw, raw_expires = unpack(ARGV, 3, 5)
local new = {}
for i = 6, #ARGV, 2 do
  new[ARGV[i]] = ARGV[i + 1]
end
redis.call('SETRANGE', base .. 'call:' .. call, 0, '')
drop(id)
write(id, new, raw, raw_expires)
return 1
