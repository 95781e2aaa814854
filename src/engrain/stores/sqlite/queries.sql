-- scope_number --
-- The store's own number of a scope.
select scope from scope where id = ?;

-- add_scope --
insert into scope (id, tenant, agent, user) values (?, ?, ?, ?);

-- removed --
-- One that was put back by a restore stands again.
select id from deleted_item where not exists (select 1 from item where item.id = deleted_item.id);

-- counters --
-- The newest change, then the newest time recorded.
select change, now from counter;

-- set_counters --
-- Once per plan. Times never run backwards, whatever the clocks of other processes say.
update counter set change = :seq, now = max(now, :now) where n = 1;

-- set_meta --
insert into meta (name, value) values (?, ?) on conflict (name) do update set value = excluded.value;

-- meta --
select value from meta where name = ?;

-- drop_meta --
-- Only if nobody has set it anew.
delete from meta where name = ? and value = ?;

-- request --
-- The first answer to a request.
select answer from request where scope = ? and id = ?;

-- add_request --
insert into request (scope, id, answer, at) values (?, ?, ?, ?);

-- tombstone --
select 1 from tombstone where scope = ? and hash = ?;

-- add_tombstone --
insert or ignore into tombstone (scope, hash, at) values (?, ?, ?);

-- cited --
-- What a source needs to know of the item it cites.
select n, trust, length(text) from item where scope = ? and id = ?;

-- at_place --
select n, id, text, place from item where scope = ? and session = ? and place = ? and retracted_at is null;

-- open_same --
-- The open item that says the same, if same words mean the same item.
select id, hash, valid_from, valid_to from item
where scope = ? and hash = ? and slot is null and occurred_at is null and session is null
  and valid_to is null and retracted_at is null;

-- slot_before --
-- The last version of a slot that began by then, in the order of reconcile, which needs no earlier one.
select id, hash, valid_from, valid_to from item
where scope = ? and slot = ? and valid_from <= ? and retracted_at is null
order by valid_from desc, valid_to is null desc, valid_to desc, id desc limit 1;

-- slot_after --
select id, hash, valid_from, valid_to from item
where scope = ? and slot = ? and valid_from > ? and retracted_at is null
order by valid_from, valid_to is null, valid_to, id limit 1;

-- add_item --
insert into item (
  id, scope, changed, kind, importance, trust, pinned, traits, passages, occurred_at, recorded_at, valid_from, valid_to,
  expires_at, place, session, speaker, role, slot, replaced_by, hash, subject, relation, object, metadata, text
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- add_source --
insert into source (scope, item, number, kind, name) values (?, ?, ?, ?, ?);

-- add_cite --
insert into citation (scope, item, number, cited, span_start, span_end) values (?, ?, ?, ?, ?, ?);

-- add_entity --
insert or ignore into entity (scope, name, item) values (?, ?, ?);

-- close_item --
-- A newer value of the slot begins: the old one held until then.
update item set valid_to = ?, replaced_by = ?, changed = ? where scope = ? and id = ?;

-- repeat_item --
-- Said again: the higher importance and trust count, and it expires with the later of two dates or not at all.
update item set importance = max(importance, :importance), trust = max(trust, :trust), changed = :changed,
  expires_at = case when expires_at is null or :expires is null then null else max(expires_at, :expires) end
where n = :n;

-- next_source --
-- Not their count: an erasure of one of them leaves a gap.
select coalesce(max(number), -1) + 1 from source where scope = ? and item = ?;

-- metadata_of --
select metadata from item where n = ?;

-- set_metadata --
update item set metadata = ? where n = ?;

-- repeated --
select n, place from item where scope = ? and id = ?;

-- item_number --
select n from item where scope = ? and id = ?;

-- standing --
-- An item that was not corrected away.
select {item} from item where scope = ? and id = ? and retracted_at is null;

-- retract_item --
update item set retracted_at = ?, changed = ? where n = ?;

-- point_item --
update item set replaced_by = ? where n = ?;

-- change_item --
update item set importance = coalesce(:importance, importance), pinned = coalesce(:pinned, pinned),
  metadata = coalesce(:metadata, metadata), expires_at = coalesce(:expires_at, expires_at), changed = :changed
where n = :n;

-- hash_of --
select n, hash from item where scope = ? and id = ?;

-- mark_item --
update item set changed = ? where n = ?;

-- session_length --
select length from session where scope = ? and session = ?;

-- grow_session --
insert into session (scope, session, length, changed) values (:scope, :session, :length, :changed)
on conflict (scope, session) do update set length = max(length, excluded.length), changed = excluded.changed;

-- touch --
update item set access_count = access_count + :count, last_accessed = max(coalesce(last_accessed, 0), :at)
where id = :id and scope = (select scope from scope where id = :scope);

-- sources_of --
select {sources} from item where item.n = ?;

-- cites_of --
-- In the order they were given.
select citation.item, citation.number, item.id, citation.span_start, citation.span_end from citation join item on item.n = citation.cited
where (citation.scope, citation.item) in (select scope, n from item where n in (select value from json_each(?)))
order by citation.n;

-- items_by_id --
-- Here and wherever ids are given, +scope: by the scope's own index all of its rows would be read for a few.
select {item} from item where +scope = ? and id in (select value from json_each(?));

-- page --
-- Newest first: numbers rise with the time of recording.
select {item} from item where scope = :scope and (:history or ({visible})) and item.n < :before and {where}
order by item.n desc limit :limit;

-- number_of --
-- An item's number, although it is gone.
select n from item where scope = :scope and id = :id
union all select n from deleted_item where scope = :scope and id = :id limit 1;

-- number_before --
-- Where an unknown id would stand.
select coalesce(min(n), 9223372036854775807) from item where scope = ? and id >= ?;

-- slots --
select {item} from item
where scope = :scope and slot >= :prefix and substr(slot, 1, length(:prefix)) = :prefix and {visible}
order by slot, valid_from desc, id desc;

-- slot --
select {item} from item where scope = :scope and slot = :slot and {visible} order by valid_from desc, id desc limit 1;

-- count --
select count(*) from item where scope = :scope and (:history or ({visible})) and {where};

-- corrected --
-- The versions that corrections took away and that led to this one. A cross join keeps its order: item by item, not
-- all items.
with recursive chain (n, id) as (
  select n, id from item where scope = :scope and id = :id
  union
  select old.n, old.id from chain
  join item as old on old.replaced_by = chain.id and old.retracted_at is not null and +old.scope = :scope
)
select {item} from chain cross join item on item.n = chain.n where item.id <> :id order by item.n desc;

-- history --
select {item} from item where scope = ? and slot = ? order by valid_from, id;

-- about --
select {item} from entity join item on item.n = entity.item
where entity.scope = :scope and entity.name = :name and {visible} order by item.n desc;

-- lineage --
-- What these items cite and what cites them.
select distinct item.id, cited.id, citation.span_start, citation.span_end from citation
join item on item.n = citation.item join item as cited on cited.n = citation.cited
where citation.n in (
  select citation.n from item join citation on citation.scope = item.scope and citation.item = item.n
  where +item.scope = :scope and item.id in (select value from json_each(:ids))
  union
  select citation.n from item join citation on citation.scope = item.scope and citation.cited = item.n
  where +item.scope = :scope and item.id in (select value from json_each(:ids))
)
order by citation.n;

-- outdated --
-- Who cites these items and no longer holds, with the span, and what to follow to what holds now.
select distinct cited.id, coalesce(citation.span_start, 0), coalesce(citation.span_end, length(cited.text)),
  coalesce(item.retracted_at, item.valid_to), item.n, item.slot
from item as cited join citation on citation.scope = cited.scope and citation.cited = cited.n join item on item.n = citation.item
where +cited.scope = :scope and cited.id in (select value from json_each(:ids))
  and (item.retracted_at is not null or item.valid_to <= :at) and citation.span_end is not 0;

-- slot_holder --
select text from item where scope = :scope and slot = :slot and {visible} order by valid_from desc, id desc limit 1;

-- chain_end --
-- Follow the corrections to the last one.
with recursive chain (n, id, next, depth) as (
  select n, id, replaced_by, 0 from item where n = :n
  union all
  select item.n, item.id, item.replaced_by, depth + 1 from chain join item on item.id = chain.next and item.scope = :scope
  where depth < 10000
)
select item.text from item
where item.n = (select n from chain order by depth desc limit 1) and {visible};

-- changes --
select changed, id, 0 from item where scope = :scope and changed > :since
union all
select change, id, 1 from deleted_item where scope = :scope and change > :since
order by 1 limit :limit;

-- scopes --
select tenant, agent, user from scope where state = 0;

-- unembedded --
-- Oldest first. A model that the store has not met has number -1.
select scope.tenant, scope.agent, scope.user, item.id, item.text, item.kind, item.hash, item.slot
from item join scope on scope.scope = item.scope and scope.state = 0
where not exists (select 1 from vector where key = (:model << 40 | item.n)) order by item.n limit :limit;

-- model_number --
select n from model where key = ?;

-- target --
select change from outbox_reader where name = ?;

-- add_target --
insert or ignore into outbox_reader (name, change) values (?, 0);

-- settle --
insert into outbox_reader (name, change) values (:name, :seq) on conflict (name) do update set change = max(change, excluded.change);

-- vectors_of --
select item.id, model.dimension, vector.windows from item
join model on model.key = :model join vector on vector.key = (model.n << 40 | item.n)
where +item.scope = :scope and item.id in (select value from json_each(:ids));

-- outbox --
-- By scope, because that is how changes are indexed; there are far fewer scopes than items.
select item.changed, item.id, 0, scope.tenant, scope.agent, scope.user
from scope cross join item on item.scope = scope.scope and item.changed > :since
where :scope is null or scope.id = :scope
union all
select deleted_item.change, deleted_item.id, 1, scope.tenant, scope.agent, scope.user
from deleted_item join scope on scope.scope = deleted_item.scope where deleted_item.change > :since and (:scope is null or scope.id = :scope)
order by 1 limit :limit;
