-- dump_erased_tombstones --
-- The id of an erased scope is a keyed hash.
select scope.id, hash from tombstone join scope on scope.scope = tombstone.scope
where scope.state = 3 and (scope.id, hash) > (:a, :b) order by scope.id, hash limit :limit;

-- dump_vectors --
select model.key, item.id, model.dimension, vector.windows
from item join model join vector on vector.key = (model.n << 40 | item.n) where item.id {in:ids} and {intact:vector};
