-- Durable tasks of one scope. KEYS[1] is the beginning of all their keys, which share its hash tag and so its slot:
--   task:NAME   hash: the task         steps:NAME  hash: m… what a step is, r… its result, e… its error
--   events:NAME hash: payloads         now         the newest time that was recorded
--   tasks, open sorted by number       due, ended  sorted by deadline, by end
--   call:NUMBER what a call was answered
-- Times are microseconds. A value that may be missing is "" or "=" and the value. Checks come before the first write,
-- because what a script has written stays if a later line of it fails.

-- shared --
local base, given, call = KEYS[1], ARGV[1], ARGV[2]
local ENDED = {done = true, failed = true, cancelled = true, expired = true}
local UNSETTLED = {intent = true, ambiguous = true}
local FINAL = {done = true, skipped = true}
-- A step is {number, kind, status, attempt, epoch, input, key, version, began, ended}, all of them texts.
local STATUS, ATTEMPT, BEGAN, ENDED_AT = 3, 4, 9, 10

local function digits(number)
  return string.format('%.0f', number)
end

-- The server's time, or the one that was handed in; never before the newest that was recorded.
local function now()
  local at = tonumber(given)
  if not at then
    local time = redis.call('TIME')
    at = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  return math.max(at, tonumber(redis.call('GET', base .. 'now') or '0'))
end

local function stamp(at)
  redis.call('SET', base .. 'now', digits(at))
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

local function task_key(task)
  return base .. 'task:' .. task
end

local function shown(task)
  return {'task', task, redis.call('HGETALL', task_key(task))}
end

-- An answer, if the lease may no longer write. The worker as well: a pruned task counts its claims from 1 again.
local function lost(task, worker, epoch)
  local there = redis.call('HMGET', task_key(task), 'worker', 'epoch', 'status')
  if there[1] == worker and there[2] == epoch then
    return nil
  end
  return {'lost', there[3] or '', there[1] or ''}
end

-- With this status, and held by nobody.
local function give_back(task, status, outcome, at)
  redis.call('HSET', task_key(task), 'status', status, 'outcome', outcome)
  redis.call('HDEL', task_key(task), 'worker', 'until')
  if ENDED[status] then
    redis.call('HSET', task_key(task), 'ended', digits(at))
    redis.call('ZREM', base .. 'open', task)
    redis.call('ZREM', base .. 'due', task)
    redis.call('ZADD', base .. 'ended', digits(at), task)
  end
  stamp(at)
end

local function steps_key(task)
  return base .. 'steps:' .. task
end

local function read_step(task, step)
  local found = redis.call('HGET', steps_key(task), 'm' .. step)
  return found and cjson.decode(found)
end

local function there(task, step, found)
  local rest = redis.call('HMGET', steps_key(task), 'r' .. step, 'e' .. step)
  return {'step', cjson.encode(found), rest[1], rest[2]}
end

-- The step as it begins now, not yet written; and whether that is so.
local function begun(task, step, start, epoch, began)
  local found = read_step(task, step)
  if found and (FINAL[found[STATUS]] or tonumber(start.attempt) ~= tonumber(found[ATTEMPT]) + 1) then
    return found, false
  end
  local number = found and found[1] or digits(redis.call('HINCRBY', steps_key(task), 'count', 1))
  if found then
    redis.call('HDEL', steps_key(task), 'r' .. step, 'e' .. step)
  end
  return {number, start.kind, 'intent', start.attempt, epoch, start.input, start.key, start.version, digits(began), ''}, true
end

local function settle(task, step, found, finish, at)
  if found[STATUS] == 'ambiguous' then
    redis.call('HDEL', steps_key(task), 'r' .. step, 'e' .. step)
  end
  found[STATUS] = finish.status
  found[ENDED_AT] = digits(math.max(at, tonumber(found[BEGAN])))
  local fields = {'m' .. step, cjson.encode(found)}
  for name, value in pairs({r = finish.result, e = finish.error}) do
    if value ~= '' then
      fields[#fields + 1] = name .. step
      fields[#fields + 1] = string.sub(value, 2)
    end
  end
  redis.call('HSET', steps_key(task), unpack(fields))
  stamp(at)
  return {'fresh', fields[2]}
end

-- What is kept with a task, if that came with a step's end.
local function keep(task, snapshot)
  if snapshot ~= '' then
    redis.call('HSET', task_key(task), 'snapshot', string.sub(snapshot, 2))
  end
end

-- Removes an ended task, whole.
local function drop(task)
  redis.call('UNLINK', task_key(task), steps_key(task), base .. 'events:' .. task)
  redis.call('ZREM', base .. 'tasks', task)
  redis.call('ZREM', base .. 'ended', task)
  if redis.call('EXISTS', base .. 'tasks') == 0 then
    redis.call('DEL', base .. 'now')
  end
end

local function same(task, step, found, finish)
  local rest = redis.call('HMGET', steps_key(task), 'r' .. step, 'e' .. step)
  local result, error = rest[1] and '=' .. rest[1] or '', rest[2] and '=' .. rest[2] or ''
  return found[STATUS] == finish.status and result == finish.result and error == finish.error
end

-- claim --
local task, worker, lasts, goal, version, deadline, dead = unpack(ARGV, 3, 9)
local kept = before()
if kept then
  return kept
end
local at, key = now(), task_key(task)
local found = redis.call('HMGET', key, 'status', 'worker', 'until', 'epoch', 'ended')
if found[1] and ENDED[found[1]] then
  return {'over', found[1], found[4], found[5] or digits(at)}
end
if found[2] and (dead == '' or found[2] ~= dead) and tonumber(found[3]) > at then
  return {'claimed', found[2], found[3]}
end
if not found[1] then
  local newest = redis.call('ZREVRANGE', base .. 'tasks', 0, 0, 'WITHSCORES')
  local number = tonumber(newest[2] or '0') + 1
  redis.call('HSET', key, 'goal', goal, 'version', version, 'outcome', '', 'started', digits(at))
  redis.call('ZADD', base .. 'tasks', number, task)
  redis.call('ZADD', base .. 'open', number, task)
  if deadline ~= '' then
    redis.call('HSET', key, 'deadline', deadline)
    redis.call('ZADD', base .. 'due', deadline, task)
  end
end
local till = digits(at + tonumber(lasts))
local epoch = redis.call('HINCRBY', key, 'epoch', 1)
redis.call('HSET', key, 'status', 'running', 'worker', worker, 'until', till)
stamp(at)
return answered({'lease', digits(epoch), till})

-- extend --
local task, worker, epoch, lasts = unpack(ARGV, 3, 6)
local no = lost(task, worker, epoch)
if no then
  return no
end
local at = now()
local till = digits(at + tonumber(lasts))
redis.call('HSET', task_key(task), 'until', till)
stamp(at)
return {'lease', epoch, till}

-- finish_task --
local task, worker, epoch, status, outcome = unpack(ARGV, 3, 7)
local kept = before()
if kept then
  return kept
end
local no = lost(task, worker, epoch)
if no then
  return no
end
give_back(task, status, outcome, now())
return answered(shown(task))

-- overrule --
local task, status, outcome = unpack(ARGV, 3, 5)
local kept = before()
if kept then
  return kept
end
local found = redis.call('HGET', task_key(task), 'status')
if not found then
  return {'missing'}
end
if ENDED[found] then
  return {'settled', found}
end
redis.call('HINCRBY', task_key(task), 'epoch', 1)
give_back(task, status, outcome, now())
return answered(shown(task))

-- begin --
local task, worker, epoch, step, kind, input, key, version, attempt = unpack(ARGV, 3, 11)
local no = lost(task, worker, epoch)
if no then
  return no
end
local start = {kind = kind, input = input, key = key, version = version, attempt = attempt}
local at = now()
local found, fresh = begun(task, step, start, epoch, at)
if not fresh then
  return there(task, step, found)
end
redis.call('HSET', steps_key(task), 'm' .. step, cjson.encode(found))
stamp(at)
return {'step', cjson.encode(found), false, false}

-- finish --
local task, worker, epoch, step, status, result, error, snapshot = unpack(ARGV, 3, 10)
local no = lost(task, worker, epoch)
if no then
  return no
end
local found = read_step(task, step)
if not found then
  return {'missing'}
end
local finish = {status = status, result = result, error = error}
if UNSETTLED[found[STATUS]] then
  keep(task, snapshot)
  return settle(task, step, found, finish, now())
end
return same(task, step, found, finish) and there(task, step, found) or {'settled', found[STATUS]}

-- record --
local task, worker, epoch, step, kind, input, key, version, attempt = unpack(ARGV, 3, 11)
local status, result, error, snapshot, took = unpack(ARGV, 12, 16)
local no = lost(task, worker, epoch)
if no then
  return no
end
local start = {kind = kind, input = input, key = key, version = version, attempt = attempt}
local at = now()
local found = begun(task, step, start, epoch, at - tonumber(took))
if UNSETTLED[found[STATUS]] then
  keep(task, snapshot)
  return settle(task, step, found, {status = status, result = result, error = error}, at)
end
return there(task, step, found)

-- unsettled --
-- As HGETALL answers, of the steps that are not settled: what they are, and their error.
local task, found = ARGV[3], {}
local all = redis.call('HGETALL', steps_key(task))
for i = 1, #all, 2 do
  if string.sub(all[i], 1, 1) == 'm' and UNSETTLED[cjson.decode(all[i + 1])[STATUS]] then
    for _, field in ipairs({all[i], 'r' .. string.sub(all[i], 2), 'e' .. string.sub(all[i], 2)}) do
      local value = redis.call('HGET', steps_key(task), field)
      if value then
        found[#found + 1] = field
        found[#found + 1] = value
      end
    end
  end
end
return found

-- resolve --
local task, step, status, result, error = unpack(ARGV, 3, 7)
local kept = before()
if kept then
  return kept
end
local found = read_step(task, step)
if not found then
  return {'missing'}
end
if not UNSETTLED[found[STATUS]] then
  return {'settled', found[STATUS]}
end
local at, held = now(), redis.call('HMGET', task_key(task), 'worker', 'until')
if found[STATUS] == 'intent' and held[2] and tonumber(held[2]) > at then
  return {'claimed', held[1], held[2]}
end
return answered(settle(task, step, found, {status = status, result = result, error = error}, at))

-- keep --
local task, worker, epoch, snapshot = unpack(ARGV, 3, 6)
local no = lost(task, worker, epoch)
if no then
  return no
end
redis.call('HSET', task_key(task), 'snapshot', snapshot)
stamp(now())
return {'kept'}

-- signal --
local task, event, payload = unpack(ARGV, 3, 5)
local kept = before()
if kept then
  return kept
end
return answered({'first', redis.call('HSETNX', base .. 'events:' .. task, event, payload)})

-- tasks --
-- A page of tasks below a number, newest first: those of some states, or of which the lease has run out.
local index, states, stale, below, limit = unpack(ARGV, 3, 7)
local wanted, any, at = {}, states == '', now()
for state in string.gmatch(states, '%a+') do
  wanted[state] = true
end
local page = redis.call('ZREVRANGEBYSCORE', base .. index, below, '-inf', 'WITHSCORES', 'LIMIT', 0, limit)
local found = {}
for i = 1, #page, 2 do
  local is = redis.call('HMGET', task_key(page[i]), 'status', 'until')
  if (any or wanted[is[1]]) and (stale == '' or (is[2] and tonumber(is[2]) <= at)) then
    found[#found + 1] = shown(page[i])
  end
end
return {page[#page] or '', found}

-- expire --
local late, limit = unpack(ARGV, 3, 4)
local kept = before()
if kept then
  return kept
end
local found = {}
for _, task in ipairs(redis.call('ZRANGEBYSCORE', base .. 'due', '-inf', late, 'LIMIT', 0, limit)) do
  give_back(task, 'expired', redis.call('HGET', task_key(task), 'outcome'), now())
  found[#found + 1] = shown(task)
end
return #found > 0 and answered(found) or found

-- prune --
local old, limit = unpack(ARGV, 3, 4)
local kept = before()
if kept then
  return kept
end
local gone = redis.call('ZRANGEBYSCORE', base .. 'ended', '-inf', '(' .. old, 'LIMIT', 0, limit)
for _, task in ipairs(gone) do
  drop(task)
end
return #gone > 0 and answered(#gone) or 0

-- remove --
local task = ARGV[3]
local kept = before()
if kept then
  return kept
end
local found = redis.call('HGET', task_key(task), 'status')
if not found then
  return {'missing'}
end
if not ENDED[found] then
  return {'open', found}
end
drop(task)
return answered({'gone'})

-- restore_task --
-- From another store, as it was there. Numbers follow the starts, and no two tasks have the same.
local task, started = ARGV[3], ARGV[4]
local key, is = task_key(task), {started = started}
for i = 5, #ARGV, 2 do
  is[ARGV[i]] = ARGV[i + 1]
end
local number = tonumber(redis.call('ZSCORE', base .. 'tasks', task) or 'none')
if not number then
  number = tonumber(started)
  while redis.call('ZCOUNT', base .. 'tasks', digits(number), digits(number)) > 0 do
    number = number + 1
  end
end
redis.call('DEL', key)
for name, value in pairs(is) do
  redis.call('HSET', key, name, value)
end
redis.call('ZADD', base .. 'tasks', digits(number), task)
for _, index in ipairs({'open', 'due', 'ended'}) do
  redis.call('ZREM', base .. index, task)
end
if ENDED[is.status] then
  redis.call('ZADD', base .. 'ended', is.ended, task)
else
  redis.call('ZADD', base .. 'open', digits(number), task)
  if is.deadline then
    redis.call('ZADD', base .. 'due', is.deadline, task)
  end
end
local newest = tonumber(redis.call('GET', base .. 'now') or '0')
stamp(math.max(newest, tonumber(started), tonumber(is.ended or '0')))
return {'kept'}

-- restore_step --
-- In place of the one with its name; 'missing' if there is no such task.
local task, step, result, error, number = unpack(ARGV, 3, 7)
if redis.call('EXISTS', task_key(task)) == 0 then
  return {'missing'}
end
local key = steps_key(task)
redis.call('HDEL', key, 'r' .. step, 'e' .. step)
redis.call('HSET', key, 'm' .. step, cjson.encode({unpack(ARGV, 7)}))
for name, value in pairs({r = result, e = error}) do
  if value ~= '' then
    redis.call('HSET', key, name .. step, string.sub(value, 2))
  end
end
local count = tonumber(redis.call('HGET', key, 'count') or '0')
redis.call('HSET', key, 'count', digits(math.max(count, tonumber(number))))
return {'kept'}
