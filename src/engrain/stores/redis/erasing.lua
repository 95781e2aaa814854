-- erase --
-- Every key of a scope: all share its hash tag, and so lie on one server.
local keys = redis.call('KEYS', KEYS[1] .. '*')
for _, key in ipairs(keys) do
  redis.call('UNLINK', key)
end
return #keys

-- left --
return #redis.call('KEYS', KEYS[1] .. '*')
