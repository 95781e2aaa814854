-- scopes_of --
-- Exactly this user in this tenant, whatever the agent.
select scope, tenant, agent, user, state from scope where user = :user and tenant is :tenant order by scope;

-- names_of --
select tenant, agent, user from scope where scope = ?;

-- named --
-- Those that are not erased.
select scope, tenant, agent, user, state, id from scope where state <> 3 order by scope;

-- older --
-- Anything from before that moment.
select 1 from scope where scope = :scope and (
  exists (select 1 from item where scope = :scope and recorded_at <= :at)
  or exists (select 1 from episode where scope = :scope and happened_at <= :at)
  or exists (select 1 from task where scope = :scope and started_at <= :at));

-- scoped --
-- Every table with rows of a scope, but for what keeps the erased out.
select sqlite_master.name from sqlite_master join pragma_table_info(sqlite_master.name) as field
where sqlite_master.type = 'table' and field.name = 'scope' and sqlite_master.name not in ('scope', 'tombstone', 'deleted_item');

-- old_items --
select id from item where recorded_at <= :at and id in (select value from json_each(:ids));

-- sessions --
-- By every row that names one: the look afterwards goes by it.
select session from session where scope = ?1 union select session from summary where scope = ?1
union select session from progress where scope = ?1 union select session from episode where scope = ?1
union select session from item where scope = ?1 and session is not null;

-- session_left --
-- Besides its items. Of a summary that says something the version tells whether it is old. The others have no time of
-- their own: where nothing was said since they are old, unless the erasure is complete, when none of them was left.
with complete as (select 1 from erasure_receipt where subject_hash = :mark and at >= :at)
select 'episode', count(*) from episode where scope = :scope and session = :session and happened_at <= :at
union all select kind, count(*) from (
  select 'summary' as kind from summary where scope = :scope and session = :session and version <= :version
    and (text <> '' or not exists (select 1 from complete))
  union all select 'progress' from progress where scope = :scope and session = :session
    and not exists (select 1 from complete)
  union all select 'session' from session where scope = :scope and session = :session
    and not exists (select 1 from complete))
where not exists (select 1 from item where scope = :scope and session = :session and recorded_at > :at)
  and not exists (select 1 from episode where scope = :scope and session = :session and happened_at > :at)
group by kind;

-- names --
select distinct name from source join item on item.n = source.item and item.scope = source.scope where source.scope = ? and name is not null;

-- aside --
-- A scope that is blocked has another id.
select scope, state from scope where id = ?;

-- shut_scope --
update scope set id = :id, state = :state where scope = :n;

-- reopen_scope --
update scope set id = :id, tenant = :tenant, agent = :agent, user = :user, state = 0 where scope = :n;

-- unname_scope --
update scope set tenant = null, agent = null, user = null, state = 3 where scope = ?;

-- add_erasing --
insert into erasure (id, subject_hash, subject_kind, stage, at, tenant, agent, user, name, notes)
values (:id, :mark, :by, 'shut', :at, :tenant, :agent, :user, :name, :notes) on conflict (id) do nothing;

-- pass --
update counter set now = max(now, :at + 1) where n = 1;

-- erasing --
select id, subject_hash, subject_kind, stage, at, tenant, agent, user, name, counts, ids, notes, fingerprints from erasure
where :id is null or id = :id order by n;

-- shutting --
-- Its names go with the stage `named`, and from then on the user may come back.
select 1 from erasure where subject_hash = ? and subject_kind = 'user' and stage <> 'named';

-- keep --
-- Prints that are taken after the rows went are of nothing: those of whoever was faster stay.
update erasure set notes = :notes, fingerprints = case when stage = 'shut' or fingerprints = x'' then :prints else fingerprints end
where id = :id and stage <> 'named';

-- taken --
update erasure set stage = 'rows', counts = :counts, ids = :ids, at = :at where id = :id;

-- unname --
update erasure set stage = 'named', tenant = null, agent = null, user = null, name = null, ids = '[]',
  notes = coalesce(:notes, notes)
where id = :id;

-- drop_erasing --
delete from erasure where id = ?;

-- add_erased --
insert into erasure_receipt (subject_hash, subject_kind, at, receipt) values (:mark, :by, :at, :receipt)
on conflict (subject_hash) do update set at = max(at, excluded.at), receipt = excluded.receipt;

-- erased --
select subject_hash, subject_kind, at, receipt from erasure_receipt where :mark is null or subject_hash = :mark order by at, subject_hash;

-- erased_since --
select 1 from json_each(:marks) where exists (select 1 from erasure_receipt where subject_hash = value and at >= :began)
or exists (select 1 from erasure where subject_hash = value and at >= :began);

-- tombstones --
-- Of all scopes but the hidden ones.
select scope.id, lower(hex(hash)) from tombstone join scope on scope.scope = tombstone.scope where scope.state <> 2;

-- tombstones_of --
select lower(hex(hash)) from tombstone where scope = ?;

-- hold --
select subject_hash, at, reason, hidden from hold where :mark is null or subject_hash = :mark order by at, subject_hash;

-- keep_hold --
insert into hold (subject_hash, at, reason) values (?, ?, ?) on conflict (subject_hash) do update set reason = excluded.reason;

-- hide --
update hold set hidden = 1 where subject_hash = ?;

-- release --
delete from hold where subject_hash = ?;

-- items --
select n, id, text from item where scope = ? order by n;

-- parts --
select n, id, kind, session, place, slot, replaced_by, valid_to, retracted_at is not null from item
where scope = ? order by id;

-- origins --
select item.id, source.number, source.kind, source.name from source join item on item.n = source.item
where source.scope = ? order by source.item, source.number;

-- cites --
select item.id, citation.number, cited.id from citation join item on item.n = citation.item join item as cited on cited.n = citation.cited
where citation.scope = ?;

-- talks --
-- Whole sessions in which a tool was called with an address, or answered under that name.
select item.id, session, role, text, metadata,
  exists (select 1 from source where source.scope = item.scope and source.item = item.n and source.name = :name)
from item where scope = :scope and kind = 'message' and session in (
  select session from item where scope = :scope and role = 'assistant' and instr(text, :argument)
  union select session from source join item on item.n = source.item
  where source.scope = :scope and role = 'tool' and source.name = :name)
order by session, place, item.id;

-- calls --
select text, metadata from item where scope = ? and role = 'assistant' and instr(metadata, '"calls"');

-- strip --
delete from source where scope = ? and item = ? and number = ?;

-- strip_cites --
delete from citation where scope = ? and item = ? and number = ?;

-- trust --
update item set trust = ?, changed = ? where n = ?;

-- restore --
-- Not if the same words stand open again by now.
update or ignore item set retracted_at = null, valid_to = ?, replaced_by = ?, changed = ? where n = ?;

-- back --
update progress set upto = min(upto, :place) where scope = :scope and session = :session;

-- requests --
select id, answer from request where scope = ?;

-- drop_request --
delete from request where scope = ? and id = ?;

-- changed --
update item set changed = ? where n = ?;

-- count_vectors --
select count(*) from item join model join vector on vector.key = (model.n << 40 | item.n) where item.scope = ?;

-- drop_vectors --
delete from vector where key in (select model.n << 40 | item.n from item join model where item.scope = ?);

-- drop_codes --
delete from code where key in (select model.n << 40 | item.n from item join model where item.scope = ?);

-- vector_pieces --
select substr(vector.windows, 1, :most) from item join model join vector on vector.key = (model.n << 40 | item.n)
where :scope is null or item.scope = :scope;

-- part_texts --
with removed as materialized (select item.* from json_each(:ns) join item on item.n = value)
select text from removed union all select metadata from removed where metadata <> '{}'
union all select speaker from removed where speaker is not null union all select slot from removed where slot is not null
union all select subject from removed where subject is not null union all select object from removed where object is not null
union all select relation from removed where relation is not null
union all select name from source join removed on removed.scope = source.scope and removed.n = source.item where name is not null
union all select note from trial join removed on removed.scope = trial.scope and removed.n = trial.item
union all select episode.text from episode join removed on removed.n = episode.item
union all select episode.data from episode join removed on removed.n = episode.item where data <> '{}';

-- part_vectors --
select substr(vector.windows, 1, :most) from json_each(:ns) as wanted cross join model
join vector on vector.key = (model.n << 40 | wanted.value);

-- session_texts --
select text from episode where scope = ?1 and session = ?2
union all select data from episode where scope = ?1 and session = ?2 and data <> '{}'
union all select text from summary where scope = ?1 and session = ?2
union all select raw_text.text from raw_text join episode using (scope, id)
where episode.scope = ?1 and episode.session = ?2;

-- own_texts --
-- With the ids that are given to items: a step that wrote to memory has them for its result.
select sql from sqlite_master union all select key from model union all select name from outbox_reader
union all select details from audit union all select reason from hold union all select id from item
union all select id from deleted_item;
