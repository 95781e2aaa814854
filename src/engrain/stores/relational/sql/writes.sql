-- load_request --
select answer from request where scope = :scope and id = :id and {intact:request};

-- drop_requests --
-- An answer of change 0 is that of one Add, by which an import knows its rows again: it stays.
delete from request where at < :before and substr(answer, 1, 3) <> '[0,' and scope {not_scope_in:on_hold}
returning id;

-- add_request --
insert into request (scope, id, answer, at) values (:scope, :id, :answer, :at);

-- find_tombstone --
select 1 from tombstone where scope = :scope and hash = :hash;

-- find_erased_since --
select 1 from erasure_receipt where subject_hash {in:hashes} and at >= :began
union all
select 1 from erasure where subject_hash {in:hashes} and at >= :began;

-- load_cited --
select trust, length(text) from item where {+}scope = :scope and id = :id;

-- find_at_place --
select id, text from item where scope = :scope and session = :session and place = :place and retracted_at is null;

-- find_open_same --
-- The open item that says the same, where the same words mean the same item.
select id, hash, valid_from, valid_to, trust from item
where scope = :scope and hash = :hash and slot is null and occurred_at is null and session is null
  and valid_to is null and retracted_at is null;

-- load_slot_neighbours --
-- The last version of a slot that began by then, and the first that begins later, in the order of reconcile.
select * from (
  select id, hash, valid_from, valid_to, trust from item
  where scope = :scope and slot = :slot and valid_from <= :began and retracted_at is null
  order by valid_from desc, valid_to is null desc, valid_to desc, id desc limit 1) as earlier
union all
select * from (
  select id, hash, valid_from, valid_to, trust from item
  where scope = :scope and slot = :slot and valid_from > :began and retracted_at is null
  order by valid_from, valid_to is null, valid_to, id limit 1) as later;

-- load_unretracted_item --
-- An item that was not corrected.
select {item} from item where {+}scope = :scope and id = :id and retracted_at is null;

-- load_hashes --
select id, n, hash from item where {+}scope = :scope and id {in:ids};

-- add_item --
insert into item (
  id, scope, changed, kind, importance, trust, pinned, traits, passages, occurred_at, recorded_at, valid_from, valid_to,
  expires_at, place, session, speaker, role, slot, replaced_by, hash, subject, relation, object, metadata,
  text{index_columns}
) values (
  :id, :scope, {change}, :kind, :importance, :trust, :pinned, :traits, :passages, :occurred_at, :recorded_at,
  :valid_from, :valid_to, :expires_at, :place, :session, :speaker, :role, :slot, :replaced_by, :hash, :subject,
  :relation, :object, :metadata, :text{index_values}
);

-- add_source --
insert into source (scope, item, number, kind, name)
select scope, n, :number, :kind, :name from item where {+}scope = :scope and id = :id;

-- add_citation --
insert into citation (scope, item, number, cited, span_start, span_end)
select item.scope, item.n, :number, cited.n, :span_start, :span_end from item, item as cited
where {+}item.scope = :scope and item.id = :id and {+}cited.scope = :scope and cited.id = :cited;

-- add_entity --
insert into entity (scope, name, item) select scope, :name, n from item where {+}scope = :scope and id = :id;

-- grow_session --
insert into session (scope, session, length, changed) values (:scope, :session, :length, {change})
on conflict (scope, session) do update
set length = {greatest}(session.length, excluded.length), changed = excluded.changed;

-- close_item --
-- A newer value of the slot begins: the old one held until then.
update item set valid_to = :valid_to, replaced_by = :replaced_by, changed = {change}
where {+}scope = :scope and id = :id;

-- load_repeated --
-- The last value is a free number for one more source. Not their count: an erasure of one of them leaves a gap.
select place, metadata, {sources},
  (select coalesce(max(number), -1) + 1 from source where source.scope = item.scope and source.item = item.n)
from item where {+}scope = :scope and id = :id;

-- repeat_item --
-- The higher importance and trust count. It expires at the later of two dates, or not at all.
update item set importance = {greatest}(importance, :importance), trust = {greatest}(trust, :trust),
  expires_at = case when expires_at is null or cast(:expires_at as bigint) is null then null
    else {greatest}(expires_at, cast(:expires_at as bigint)) end,
  changed = {change}
where {+}scope = :scope and id = :id;

-- store_metadata --
update item set metadata = :metadata where {+}scope = :scope and id = :id;

-- change_item --
update item set importance = coalesce(:importance, importance), pinned = coalesce(:pinned, pinned),
  expires_at = coalesce(:expires_at, expires_at), changed = {change}
where {+}scope = :scope and id = :id;

-- retract_item --
update item set retracted_at = :at, changed = {change} where {+}scope = :scope and id = :id;

-- point_item --
update item set replaced_by = :replaced_by where {+}scope = :scope and id = :id;

-- mark_item --
update item set changed = {change} where scope = :scope and n = :n;
