-- dump_erased_tombstones --
-- The id of an erased scope is a keyed hash.
select scope.id, hash from tombstone join scope on scope.scope = tombstone.scope
where scope.state = 3 and (scope.id, hash) > (:a, :b) order by scope.id, hash limit :limit;

-- dump_steps --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  coalesce(step.result, large_result.body), error
from step left join large_result on large_result.n = step.large_result
where step.scope = :scope and task = :task order by step.n;

-- dump_vectors --
select model.key, item.id, model.dimension, vector.windows
from item join model join vector on vector.key = (model.n << 40 | item.n) where item.id {in:ids};
