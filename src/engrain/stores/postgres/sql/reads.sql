-- list_items --
select {item} from item
where scope = :scope and (:history or ({visible})) and (cast(:after as text) is null or item.id < :after) and {where}
order by item.id desc limit :limit;

-- find_newest_time --
select last_value from clock;

-- find_last_change --
select last_change from scope where scope = :scope;

-- find_settled_change --
-- Below it nothing can come any more.
select settled_change();

-- load_unembedded --
-- Oldest first.
select scope.tenant, scope.agent, scope."user", item.id, item.text, item.kind, item.hash, item.slot
from item join scope on scope.scope = item.scope
where not exists (
  select 1 from embedding
  where embedding.scope = item.scope and embedding.item = item.n
    and embedding.model = (select n from model where key = :model))
order by item.n limit :limit;

-- load_vectors --
select item.id, vector_send(embedding.vector)
from embedding join item on item.scope = embedding.scope and item.n = embedding.item
where embedding.scope = :scope and embedding.model = (select n from model where key = :model)
  and embedding.item = any(array(select n from item where scope = :scope and id {in:ids}))
order by item.n, embedding.number;

-- load_outbox --
-- An entry of a scope that has no name any more has none either.
select changed, item.id, false, scope.tenant, scope.agent, scope."user" from item join scope on scope.scope = item.scope
where changed > :since and changed <= :upto and (cast(:only as uuid) is null or item.scope = :only)
union all
select deleted_item.change, deleted_item.id, true, scope.tenant, scope.agent, scope."user"
from deleted_item left join scope on scope.scope = deleted_item.scope
where deleted_item.change > :since and deleted_item.change <= :upto
  and (cast(:only as uuid) is null or deleted_item.scope = :only)
order by 1 limit :limit;

-- list_speakers --
-- One step of the index for each name, not one for each item.
with recursive name as (
  (select speaker from item where scope = :scope and speaker is not null order by speaker limit 1)
  union all
  select (select speaker from item where scope = :scope and speaker > name.speaker order by speaker limit 1)
  from name where name.speaker is not null
)
select speaker from name where speaker is not null;

-- load_sketches --
-- These items and their neighbours in the session, each once.
select id, kind, session, place, speaker, role, coalesce(occurred_at, recorded_at) / 1e6::double precision, traits,
  passages, importance, pinned, trust, (select name from source
    where source.scope = item.scope and source.item = item.n and source.name <> '' order by number limit 1)
from item
where scope = :scope and {visible} and {where} and n = any(array(
  select n from item where scope = :scope and id {in:ids}
  union
  select near.n from item as seed
  join item as near on near.scope = :scope and near.session = seed.session
    and near.place between seed.place - :reach and seed.place + :reach
  where seed.scope = :scope and seed.id {in:ids} and seed.session is not null
));
