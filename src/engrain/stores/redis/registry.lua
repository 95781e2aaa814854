-- forget --
-- Let go of a scope that has nothing any more, unless somebody has noted it since.
if redis.call('ZSCORE', KEYS[1], ARGV[1]) == ARGV[2] then
  return redis.call('ZREM', KEYS[1], ARGV[1])
end
return 0
