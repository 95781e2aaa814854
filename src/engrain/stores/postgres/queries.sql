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

-- session_length --
select length from session where scope = %s and session = %s;

-- grow_session --
insert into session (scope, session, length, changed) values (%(scope)s, %(session)s, %(length)s, nextval('change'))
on conflict (scope, session) do update
set length = greatest(session.length, excluded.length), changed = excluded.changed;

-- slot --
select {item} from item where scope = %(scope)s and slot = %(slot)s and {visible}
order by valid_from desc, id desc limit 1;

-- scopes --
select tenant, agent, "user" from scope where state = 0;

-- model --
select n, dimension from model where key = %s;

-- add_model --
insert into model (key, dimension) values (%s, %s) on conflict (key) do nothing;

-- known_size --
-- What the server believes to be in the table; less than nothing before it has looked.
select reltuples from pg_class where oid = 'item'::regclass;
