-- list_items --
-- Newest first: numbers rise with the time of recording. A page may begin after an item that was deleted since.
select {item} from item
where scope = :scope and (:history or ({visible})) and {where} and item.n < case
  when :after is null then 9223372036854775807
  else coalesce(
    (select n from item where +scope = :scope and id = :after),
    (select n from deleted_item where scope = :scope and id = :after),
    (select min(n) from item where scope = :scope and id >= :after),
    9223372036854775807)
  end
order by item.n desc limit :limit;

-- find_newest_time --
select now from counter where n = 0;

-- find_last_change --
select change from counter where n = 0;

-- find_settled_change --
select change from counter where n = 0;

-- load_unembedded --
-- Oldest first.
select scope.tenant, scope.agent, scope.user, item.id, item.text, item.kind, item.hash, item.slot
from item join scope on scope.scope = item.scope and scope.state = 0
where not exists (select 1 from vector where key = ((select n from model where key = :model) << 40 | item.n))
order by item.n limit :limit;

-- load_vectors --
select item.id, model.dimension, vector.windows from item
join model on model.key = :model join vector on vector.key = (model.n << 40 | item.n)
where +item.scope = :scope and item.id {in:ids};

-- load_outbox --
-- By scope, because that is how changes are indexed. There are far fewer scopes than items.
select item.changed, item.id, 0, scope.tenant, scope.agent, scope.user
from scope cross join item on item.scope = scope.scope and item.changed > :since
where item.changed <= :upto and (:only is null or scope.id = :only)
union all
select deleted_item.change, deleted_item.id, 1, scope.tenant, scope.agent, scope.user
from deleted_item join scope on scope.scope = deleted_item.scope
where deleted_item.change > :since and (:only is null or scope.id = :only)
order by 1 limit :limit;

-- load_sketches --
-- These items and their neighbours in the session, each once.
with seed as materialized (select n, scope, session, place from item where +scope = :scope and id {in:ids})
select id, kind, session, place, speaker, role, coalesce(occurred_at, recorded_at) / 1e6, traits, passages, importance,
  pinned, trust, (select name from source
    where source.scope = item.scope and source.item = item.n and source.name <> '' order by number limit 1)
from item
where {visible} and {where} and item.n in (
  select n from seed
  union all
  select near.n from seed
  cross join item as near on near.scope = seed.scope and near.session = seed.session and near.session is not null
    and near.place between seed.place - :reach and seed.place + :reach and near.retracted_at is null
);
