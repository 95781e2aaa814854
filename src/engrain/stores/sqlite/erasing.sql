-- scopes_of --
-- Exactly this user in this tenant, whatever the agent.
select n, tenant, agent, user, shut from scope where user = :user and tenant is :tenant order by n;

-- names_of --
select tenant, agent, user from scope where n = ?;

-- named --
-- Those that are not erased.
select n, tenant, agent, user, shut, id from scope where shut <> 3 order by n;

-- older --
-- Anything from before that moment.
select 1 from scope where n = :scope and (
  exists (select 1 from item where scope = :scope and recorded_at <= :at)
  or exists (select 1 from episode where scope = :scope and happened_at <= :at)
  or exists (select 1 from task where scope = :scope and started_at <= :at));

-- scoped --
-- Every table with rows of a scope, but for what keeps the erased out.
select sqlite_master.name from sqlite_master join pragma_table_info(sqlite_master.name) as field
where sqlite_master.type = 'table' and field.name = 'scope' and sqlite_master.name not in ('tombstone', 'gone');

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
with complete as (select 1 from erased where mark = :mark and at >= :at)
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
select distinct name from source join item on item.n = source.item where item.scope = ? and name is not null;

-- aside --
-- A scope that is shut has another id.
select n, shut from scope where id = ?;

-- shut_scope --
update scope set id = :id, shut = :shut where n = :n;

-- reopen_scope --
update scope set id = :id, tenant = :tenant, agent = :agent, user = :user, shut = 0 where n = :n;

-- unname_scope --
update scope set tenant = null, agent = null, user = null, shut = 3 where n = ?;

-- add_erasing --
insert into erasing (id, mark, "by", stage, at, tenant, agent, user, name, notes)
values (:id, :mark, :by, 'shut', :at, :tenant, :agent, :user, :name, :notes) on conflict (id) do nothing;

-- pass --
update counter set now = max(now, :at + 1) where n = 1;

-- erasing --
select id, mark, "by", stage, at, tenant, agent, user, name, counts, ids, notes, prints from erasing
where :id is null or id = :id order by n;

-- shutting --
-- Its names go with the stage `named`, and from then on the user may come back.
select 1 from erasing where mark = ? and "by" = 'user' and stage <> 'named';

-- keep --
-- Prints that are taken after the rows went are of nothing: those of whoever was faster stay.
update erasing set notes = :notes, prints = case when stage = 'shut' or prints = x'' then :prints else prints end
where id = :id and stage <> 'named';

-- taken --
update erasing set stage = 'rows', counts = :counts, ids = :ids, at = :at where id = :id;

-- unname --
update erasing set stage = 'named', tenant = null, agent = null, user = null, name = null, ids = '[]',
  notes = coalesce(:notes, notes)
where id = :id;

-- drop_erasing --
delete from erasing where id = ?;

-- add_erased --
insert into erased (mark, "by", at, receipt) values (:mark, :by, :at, :receipt)
on conflict (mark) do update set at = max(at, excluded.at), receipt = excluded.receipt;

-- erased --
select mark, "by", at, receipt from erased where :mark is null or mark = :mark order by at, mark;

-- erased_since --
select 1 from json_each(:marks) where exists (select 1 from erased where mark = value and at >= :began)
or exists (select 1 from erasing where mark = value and at >= :began);

-- tombstones --
-- Of all scopes but the hidden ones.
select scope.id, lower(hex(hash)) from tombstone join scope on scope.n = tombstone.scope where scope.shut <> 2;

-- tombstones_of --
select lower(hex(hash)) from tombstone where scope = ?;

-- hold --
select mark, at, reason, hidden from hold where :mark is null or mark = :mark order by at, mark;

-- keep_hold --
insert into hold (mark, at, reason) values (?, ?, ?) on conflict (mark) do update set reason = excluded.reason;

-- hide --
update hold set hidden = 1 where mark = ?;

-- release --
delete from hold where mark = ?;

-- items --
select n, id, text from item where scope = ? order by n;

-- parts --
select n, id, kind, session, place, slot, replaced_by, valid_to, retracted_at is not null from item
where scope = ? order by id;

-- origins --
select item.id, source.number, source.kind, source.name from source join item on item.n = source.item
where item.scope = ? order by source.item, source.number;

-- cites --
select item.id, cite.number, cited.id from cite join item on item.n = cite.item join item as cited on cited.n = cite.cited
where item.scope = ?;

-- talks --
-- Whole sessions in which a tool was called with an address, or answered under that name.
select item.id, session, role, text, metadata,
  exists (select 1 from source where source.item = item.n and source.name = :name)
from item where scope = :scope and kind = 'message' and session in (
  select session from item where scope = :scope and role = 'assistant' and instr(text, :argument)
  union select session from item join source on source.item = item.n
  where scope = :scope and role = 'tool' and source.name = :name)
order by session, place, item.id;

-- calls --
select text, metadata from item where scope = ? and role = 'assistant' and instr(metadata, '"calls"');

-- strip --
delete from source where item = ? and number = ?;

-- strip_cites --
delete from cite where item = ? and number = ?;

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
with gone as materialized (select item.* from json_each(:ns) join item on item.n = value)
select text from gone union all select metadata from gone where metadata <> '{}'
union all select speaker from gone where speaker is not null union all select slot from gone where slot is not null
union all select subject from gone where subject is not null union all select object from gone where object is not null
union all select relation from gone where relation is not null
union all select name from source join gone on gone.n = source.item where name is not null
union all select note from trial join gone on gone.n = trial.item
union all select episode.text from episode join gone on gone.n = episode.item
union all select episode.data from episode join gone on gone.n = episode.item where data <> '{}';

-- part_vectors --
select substr(vector.windows, 1, :most) from json_each(:ns) as wanted cross join model
join vector on vector.key = (model.n << 40 | wanted.value);

-- session_texts --
select text from episode where scope = ?1 and session = ?2
union all select data from episode where scope = ?1 and session = ?2 and data <> '{}'
union all select text from summary where scope = ?1 and session = ?2
union all select raw.text from raw join episode on episode.scope = raw.scope and episode.id = raw.id
where episode.scope = ?1 and episode.session = ?2;

-- own_texts --
-- With the ids that are given to items: a step that wrote to memory has them for its result.
select sql from sqlite_master union all select key from model union all select name from target
union all select details from audit union all select reason from hold union all select id from item
union all select id from gone;
