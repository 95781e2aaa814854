-- add_scope --
insert into scope (id, tenant, agent, user) values (?, ?, ?, ?);

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

-- sources_of --
select {sources} from item where item.n = ?;

-- cites_of --
-- In the order they were given.
select citation.item, citation.number, item.id, citation.span_start, citation.span_end from citation join item on item.n = citation.cited
where (citation.scope, citation.item) in (select scope, n from item where n in (select value from json_each(?)))
order by citation.n;
