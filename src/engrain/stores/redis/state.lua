-- The working memory of one scope's sessions. KEYS[1] is the prefix of all its keys, which share its hash tag:
--   working:SESSION  the text, with the engine's TTL     all  the names of those keys, scored by their end

-- save --
-- name, milliseconds, text
local at = redis.call('TIME')
local now = tonumber(at[1]) * 1000 + math.floor(tonumber(at[2]) / 1000)
local all = KEYS[1] .. 'all'
redis.call('SET', KEYS[1] .. ARGV[1], ARGV[3], 'PX', ARGV[2])
redis.call('ZADD', all, string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', all, '-inf', string.format('%.0f', now))
return redis.call('PEXPIRE', all, ARGV[2])

-- clear --
local gone = 0
for _, name in ipairs(redis.call('ZRANGE', KEYS[1] .. 'all', 0, -1)) do
  gone = gone + redis.call('DEL', KEYS[1] .. name)
end
redis.call('DEL', KEYS[1] .. 'all')
return gone
