-- add_scope --
insert into scope (scope, tenant, agent, "user") values (%s, %s, %s, %s) on conflict (scope) do nothing;

-- adopt --
select adopt(%s, %s);

-- lock_scope --
-- Writers of one scope wait for each other here: numbers are taken and committed in one order, and what is decided on
-- what is stored stays true until the commit.
select last_change from scope where scope = %s and is_open(state) for no key update;

-- begin_write --
select tick(%s), open_change();

-- moment --
select greatest(coalesce(%s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), last_value) from clock;

-- removed --
-- One that was put back by a restore stands again.
select id from deleted_item where not exists (select 1 from item where item.id = deleted_item.id);

-- last_moment --
select last_value from clock;

-- end_write --
-- The number of the last change, which is nobody else's before the commit.
update scope set last_change = currval('change') where scope = %s returning last_change;

-- request --
-- The first answer to a request.
select answer from request where scope = %s and id = %s;

-- add_request --
insert into request (scope, id, answer, at) values (%s, %s, %s, %s);

-- tombstone --
select 1 from tombstone where scope = %s and hash = %s;

-- cited --
-- What a source needs to know of the item it cites.
select trust, char_length(text) from item where scope = %s and id = %s;

-- at_place --
select n, id, text, place from item where scope = %s and session = %s and place = %s and retracted_at is null;

-- open_same --
-- The open item that says the same, if same words mean the same item.
select id, hash, valid_from, valid_to from item
where scope = %s and hash = %s and slot is null and occurred_at is null and session is null
  and valid_to is null and retracted_at is null;

-- slot_beside --
-- The last version of a slot that began by then and the first that begins later, in the order of reconcile, which needs
-- no other.
(select id, hash, valid_from, valid_to from item
  where scope = %(scope)s and slot = %(slot)s and valid_from <= %(at)s and retracted_at is null
  order by valid_from desc, valid_to is null desc, valid_to desc, id desc limit 1)
union all
(select id, hash, valid_from, valid_to from item
  where scope = %(scope)s and slot = %(slot)s and valid_from > %(at)s and retracted_at is null
  order by valid_from, valid_to is null, valid_to, id limit 1);

-- add_item --
-- With its first source, in one go.
with new as (
  insert into item (
    id, scope, changed, kind, importance, trust, pinned, traits, passages, words, occurred_at, recorded_at, valid_from,
    valid_to, expires_at, place, session, speaker, role, slot, replaced_by, hash, subject, relation, object, metadata,
    filters, text
  ) values (
    %(id)s, %(scope)s, nextval('change'), %(kind)s, %(importance)s, %(trust)s, %(pinned)s, %(traits)s, %(passages)s,
    %(words)s, %(occurred_at)s, %(recorded_at)s, %(valid_from)s, %(valid_to)s, %(expires_at)s, %(place)s, %(session)s,
    %(speaker)s, %(role)s, %(slot)s, %(replaced_by)s, %(hash)s, %(subject)s, %(relation)s, %(object)s, %(metadata)s,
    %(filters)s, %(text)s
  ) returning scope, n
)
insert into source (scope, item, number, kind, name) select scope, n, 0, %(source_kind)s, %(source_name)s from new;

-- add_source --
insert into source (scope, item, number, kind, name)
select scope, n, %(number)s, %(kind)s, %(name)s from item where scope = %(scope)s and id = %(id)s;

-- add_cite --
insert into citation (scope, item, number, cited, span_start, span_end)
select item.scope, item.n, %(number)s, cited.n, %(from)s, %(to)s from item, item as cited
where item.scope = %(scope)s and item.id = %(id)s and cited.scope = %(scope)s and cited.id = %(cited)s;

-- add_entity --
insert into entity (scope, name, item) select scope, %(name)s, n from item where scope = %(scope)s and id = %(id)s
on conflict do nothing;

-- close_item --
-- A newer value of the slot begins: the old one held until then.
update item set valid_to = %s, replaced_by = %s, changed = nextval('change') where scope = %s and id = %s;

-- repeated --
select place, metadata from item where scope = %s and id = %s;

-- repeat_item --
-- Said again: the higher importance and trust count, and it expires with the later of two dates or not at all.
update item set importance = greatest(importance, %(importance)s), trust = greatest(trust, %(trust)s),
  expires_at = case when expires_at is null or %(expires)s::bigint is null then null
    else greatest(expires_at, %(expires)s::bigint) end,
  metadata = coalesce(%(metadata)s, metadata), filters = coalesce(%(filters)s::jsonb, filters),
  changed = nextval('change')
where scope = %(scope)s and id = %(id)s;

-- sources_of --
select json_agg(json_build_array(source.kind, source.name,
    (select json_agg(json_build_array(cited.id, citation.span_start, citation.span_end) order by citation.n)
      from citation join item as cited on cited.scope = citation.scope and cited.n = citation.cited
      where citation.scope = source.scope and citation.item = source.item and citation.number = source.number))
  order by source.number)
from source join item on item.scope = source.scope and item.n = source.item where item.scope = %s and item.id = %s;

-- next_source --
-- Not their count: an erasure of one of them leaves a gap.
select coalesce(max(source.number), -1) + 1 from source join item on item.scope = source.scope and item.n = source.item
where item.scope = %s and item.id = %s;

-- standing --
-- An item that was not corrected away.
select {item} from item where scope = %s and id = %s and retracted_at is null;

-- retract_item --
update item set retracted_at = %s, changed = nextval('change') where scope = %s and id = %s;

-- drop_words --
-- What was corrected away is found at no moment.
delete from word where scope = %(scope)s and item = (select n from item where scope = %(scope)s and id = %(id)s);

-- point_item --
update item set replaced_by = %s where scope = %s and id = %s;

-- change_item --
update item set importance = coalesce(%(importance)s, importance), pinned = coalesce(%(pinned)s, pinned),
  metadata = coalesce(%(metadata)s, metadata), expires_at = coalesce(%(expires_at)s, expires_at),
  filters = case when %(metadata)s::text is null then filters else %(filters)s::jsonb end, changed = nextval('change')
where scope = %(scope)s and id = %(id)s;

-- hash_of --
select n, hash from item where scope = %s and id = %s;

-- mark_item --
update item set changed = nextval('change') where scope = %s and id = %s;

-- session_length --
select length from session where scope = %s and session = %s;

-- grow_session --
insert into session (scope, session, length, changed) values (%(scope)s, %(session)s, %(length)s, nextval('change'))
on conflict (scope, session) do update
set length = greatest(session.length, excluded.length), changed = excluded.changed;

-- touch --
update item set access_count = access_count + used.count, last_accessed = greatest(last_accessed, used.at)
from unnest(%s::text[], %s::bigint[], %s::bigint[]) as used (id, count, at)
where item.scope = %s and item.id = used.id;

-- items_by_id --
select {item} from item where scope = %s and id = any(%s);

-- page --
select {item} from item
where scope = %(scope)s and (%(history)s or ({visible})) and (%(after)s::text is null or item.id < %(after)s) and {where}
order by item.id desc limit %(limit)s;

-- count --
select count(*) from item where scope = %(scope)s and (%(history)s or ({visible})) and {where};

-- slots --
select {item} from item
where scope = %(scope)s and slot is not null and starts_with(slot, %(prefix)s) and {visible}
order by slot, valid_from desc, id desc;

-- slot --
select {item} from item where scope = %(scope)s and slot = %(slot)s and {visible}
order by valid_from desc, id desc limit 1;

-- history --
select {item} from item where scope = %s and slot = %s order by valid_from, id;

-- corrected --
-- The versions that corrections took away and that led to this one.
with recursive chain as (
  select n, id from item where scope = %(scope)s and id = %(id)s
  union
  select old.n, old.id from chain
  join item as old on old.replaced_by = chain.id and old.retracted_at is not null and old.scope = %(scope)s
)
select {item} from chain join item on item.scope = %(scope)s and item.n = chain.n where item.id <> %(id)s order by item.id desc;

-- about --
select {item} from entity join item on item.scope = entity.scope and item.n = entity.item
where entity.scope = %(scope)s and entity.name = %(name)s and {visible} order by item.id desc;

-- lineage --
-- What these items cite and what cites them.
select distinct item.id, cited.id, citation.span_start, citation.span_end from citation
join item on item.scope = citation.scope and item.n = citation.item join item as cited on cited.scope = citation.scope and cited.n = citation.cited
where citation.scope = %(scope)s and citation.n = any(array(
  select citation.n from item join citation on citation.scope = item.scope and citation.item = item.n where item.scope = %(scope)s and item.id = any(%(ids)s)
  union
  select citation.n from item join citation on citation.scope = item.scope and citation.cited = item.n where item.scope = %(scope)s and item.id = any(%(ids)s)
));

-- outdated --
-- Who cites these items and no longer holds, with the span, and what to follow to what holds now.
select distinct cited.id, coalesce(citation.span_start, 0), coalesce(citation.span_end, char_length(cited.text)),
  coalesce(item.retracted_at, item.valid_to), item.n, item.slot
from item as cited join citation on citation.scope = cited.scope and citation.cited = cited.n join item on item.scope = citation.scope and item.n = citation.item
where cited.scope = %(scope)s and cited.id = any(%(ids)s)
  and (item.retracted_at is not null or item.valid_to <= %(at)s) and citation.span_end is distinct from 0;

-- slot_holder --
select text from item where scope = %(scope)s and slot = %(slot)s and {visible} order by valid_from desc, id desc limit 1;

-- chain_end --
-- Follow the corrections to the last one.
with recursive chain as (
  select n, replaced_by, 0 as depth from item where n = %(n)s and scope = %(scope)s
  union all
  select item.n, item.replaced_by, depth + 1
  from chain join item on item.id = chain.replaced_by and item.scope = %(scope)s where depth < 10000
)
select item.text from item where item.scope = %(scope)s and item.n = (select n from chain order by depth desc limit 1) and {visible};

-- changes --
select changed, id, false from item where scope = %(scope)s and changed > %(since)s
union all
select change, id, true from deleted_item where scope = %(scope)s and change > %(since)s
order by 1 limit %(limit)s;

-- scope_seq --
select last_change from scope where scope = %s;

-- scopes --
select tenant, agent, "user" from scope where state = 0;

-- unembedded --
-- Oldest first.
select scope.tenant, scope.agent, scope."user", item.id, item.text, item.kind, item.hash, item.slot
from item join scope on scope.scope = item.scope
where not exists (
  select 1 from embedding
  where embedding.scope = item.scope and embedding.item = item.n
    and embedding.model = (select n from model where key = %(model)s))
order by item.n limit %(limit)s;

-- vectors_of --
select item.id, vector_send(embedding.vector) from embedding join item on item.scope = embedding.scope and item.n = embedding.item
where embedding.scope = %(scope)s and embedding.model = (select n from model where key = %(model)s)
  and embedding.item = any(array(select n from item where scope = %(scope)s and id = any(%(ids)s)))
order by item.n, embedding.number;

-- speakers --
-- One step of the index for each name, not one for each item.
with recursive name as (
  (select speaker from item where scope = %(scope)s and speaker is not null order by speaker limit 1)
  union all
  select (select speaker from item where scope = %(scope)s and speaker > name.speaker order by speaker limit 1)
  from name where name.speaker is not null
)
select speaker from name where speaker is not null;

-- sketches --
-- These items and their neighbours in the session, each once.
select id, kind, session, place, speaker, role, coalesce(occurred_at, recorded_at), traits, passages, importance, pinned,
  trust,
  (select name from source where source.scope = item.scope and source.item = item.n and source.name <> '' order by number limit 1)
from item
where scope = %(scope)s and {visible} and {where} and n = any(array(
  select n from item where scope = %(scope)s and id = any(%(ids)s)
  union
  select near.n from item as seed
  join item as near on near.scope = %(scope)s and near.session = seed.session
    and near.place between seed.place - %(reach)s and seed.place + %(reach)s
  where seed.scope = %(scope)s and seed.id = any(%(ids)s) and seed.session is not null
));

-- having --
select id from item where scope = %(scope)s and traits <> 0 and traits & %(traits)s <> 0 and {visible} and {where}
order by id desc limit %(limit)s;

-- settled --
select settled_change();

-- target --
select change from outbox_reader where name = %s;

-- outbox --
-- Up to a number below which nothing can come any more. What went with a scope that has no name any more goes too.
select changed, item.id, false, scope.tenant, scope.agent, scope."user" from item join scope on scope.scope = item.scope
where changed > %(since)s and changed <= %(upto)s and (%(scope)s::uuid is null or item.scope = %(scope)s)
union all
select deleted_item.change, deleted_item.id, true, scope.tenant, scope.agent, scope."user" from deleted_item left join scope on scope.scope = deleted_item.scope
where deleted_item.change > %(since)s and deleted_item.change <= %(upto)s and (%(scope)s::uuid is null or deleted_item.scope = %(scope)s)
order by 1 limit %(limit)s;

-- add_target --
insert into outbox_reader (name, change) values (%s, 0) on conflict do nothing;

-- settle --
insert into outbox_reader (name, change) values (%(name)s, %(seq)s)
on conflict (name) do update set change = greatest(outbox_reader.change, excluded.change);

-- model --
select n, dimension from model where key = %s;

-- add_model --
insert into model (key, dimension) values (%s, %s) on conflict (key) do nothing;

-- known_size --
-- What the server believes to be in the table; less than nothing before it has looked.
select reltuples from pg_class where oid = 'item'::regclass;
