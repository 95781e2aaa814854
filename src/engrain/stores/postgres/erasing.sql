-- first_head --
insert into meta (name, value) values ('audit', '[0, "00000000000000000000000000000000", ""]') on conflict do nothing;

-- lock_head --
select value from meta where name = 'audit' for update;

-- head --
select value from meta where name = 'audit';

-- set_head --
update meta set value = %s where name = 'audit';

-- add_entry --
insert into audit (n, at, what, subject, details, previous, hash) values (%s, %s, %s, %s, %s, %s, %s);

-- last_entry --
select coalesce(max(n), 0) from audit;

-- entries --
select n, at, what, subject, details, previous, hash from audit where n > %s order by n limit %s;

-- begun --
-- What comes with an entry of the audit log.
select 1 from erased union all select 1 from hold limit 1;

-- lock --
select pg_advisory_xact_lock(hashtext(current_schema() || %s::text), hashtext(%s));

-- lock_shared --
select pg_advisory_xact_lock_shared(hashtext(current_schema() || %s::text), hashtext(%s));

-- scopes_of --
-- Exactly this user in this tenant, whatever the agent.
select id::text, tenant, agent, "user", shut from scope
where "user" = %(user)s::text and tenant is not distinct from %(tenant)s::text order by id for update;

-- scopes_seen --
select id::text, tenant, agent, "user", shut from scope
where "user" = %(user)s::text and tenant is not distinct from %(tenant)s::text order by id;

-- named --
select id::text, tenant, agent, "user", shut from scope order by id;

-- shut --
update scope set shut = %s where id = any(%s::uuid[]);

-- rename_scope --
update scope set id = %(new)s::uuid, shut = %(shut)s where id = %(old)s::uuid;

-- drop_scopes --
delete from scope where id = any(%s::uuid[]);

-- put_aside --
select adopt(%s, %s);

-- scoped --
-- Every table with rows of a scope that there is, but for what keeps the erased out.
select relname from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind in ('r', 'p')
  and attname = 'scope' and atttypid = 'uuid'::regtype and not attisdropped and relname not in ('tombstone', 'gone')
order by relname;

-- texts --
select id, text from item where scope = %s order by n;

-- entomb --
insert into tombstone (scope, hash, at) select %s, unnest(%s::bytea[]), %s on conflict do nothing;

-- add_all_gone --
insert into gone (seq, scope, id) select nextval('change'), scope, id from item where scope = %s;

-- add_erasing --
insert into erasing (id, mark, made_by, stage, at, tenant, agent, "user", name, scopes, notes)
values (%(id)s, %(mark)s, %(by)s, 'rows', %(at)s, %(tenant)s, %(agent)s, %(user)s, %(name)s, %(scopes)s, %(notes)s)
on conflict (id) do nothing;

-- pass --
select tick(%s);

-- erasing --
select id, mark, made_by, stage, at, tenant, agent, "user", name, scopes, counts, ids, notes, prints from erasing
where %(id)s::text is null or id = %(id)s order by n;

-- keep --
update erasing set notes = %(notes)s, prints = %(prints)s where id = %(id)s and stage <> 'named';

-- taken --
update erasing set counts = %(counts)s, ids = %(ids)s where id = %(id)s;

-- unname --
-- The ids of the items that went, or of a user those under which the scopes were put aside, are kept: by them is looked
-- for what was passed over.
update erasing set stage = 'named', tenant = null, agent = null, "user" = null, name = null, ids = %(ids)s, scopes = '[]',
  at = %(at)s, notes = coalesce(%(notes)s::text, notes)
where id = %(id)s;

-- drop_erasing --
delete from erasing where id = %s;

-- add_erased --
insert into erased (mark, made_by, at, receipt) values (%(mark)s, %(by)s, %(at)s, %(receipt)s)
on conflict (mark) do update set at = greatest(erased.at, excluded.at), receipt = excluded.receipt;

-- erased --
select mark, made_by, at, receipt from erased where %(mark)s::text is null or mark = %(mark)s order by at, mark;

-- erased_since --
select 1 from erased where mark = any(%(marks)s) and at >= %(began)s
union all select 1 from erasing where mark = any(%(marks)s) and at >= %(began)s;

-- all_tombstones --
select scope::text, encode(hash, 'hex') from tombstone;

-- hold --
select mark, at, reason, hidden from hold where %(mark)s::text is null or mark = %(mark)s order by at, mark;

-- keep_hold --
insert into hold (mark, at, reason) values (%s, %s, %s) on conflict (mark) do update set reason = excluded.reason;

-- hide --
update hold set hidden = true where mark = %s;

-- release --
delete from hold where mark = %s returning mark;

-- renumber --
update item set changed = nextval('change') where scope = %s;

-- older --
-- Anything from before that moment.
select 1 where exists (select 1 from item where scope = %(scope)s and recorded_at <= %(at)s)
  or exists (select 1 from episode where scope = %(scope)s and happened_at <= %(at)s)
  or exists (select 1 from task where scope = %(scope)s and started_at <= %(at)s);

-- late --
-- Of that what has the store's time: an episode has its writer's, whose clock may be behind.
select 1 where exists (select 1 from item where scope = %(scope)s and recorded_at <= %(at)s)
  or exists (select 1 from task where scope = %(scope)s and started_at <= %(at)s);

-- newer --
select 1 where exists (select 1 from item where scope = %(scope)s and recorded_at > %(at)s)
  or exists (select 1 from episode where scope = %(scope)s and happened_at > %(at)s)
  or exists (select 1 from task where scope = %(scope)s and started_at > %(at)s);

-- older_items --
select n, id, text, session, place from item where scope = %(scope)s and recorded_at <= %(at)s order by n;

-- drop_older --
with tasks as (delete from task where scope = %(scope)s and started_at <= %(at)s returning scope, task)
delete from event using tasks where event.scope = tasks.scope and event.task = tasks.task;

-- old_items --
select count(*) from item where scope = %s and id = any(%s) and recorded_at <= %s;

-- parts --
select n, id, kind, session, place, slot, replaced_by, valid_to, retracted_at is not null, text from item
where scope = %s order by id;

-- origins --
select item.id, source.number, source.kind, source.name from source join item on item.n = source.item
where item.scope = %s order by source.item, source.number;

-- cites --
select item.id, cite.number, cited.id from cite join item on item.n = cite.item join item as cited on cited.n = cite.cited
where item.scope = %s;

-- talks --
-- Whole sessions in which a tool was called with an address, or answered under that name.
select item.id, session, role, text, metadata,
  exists (select 1 from source where source.item = item.n and source.name = %(name)s)
from item where scope = %(scope)s and kind = 'message' and session in (
  select session from item where scope = %(scope)s and role = 'assistant' and strpos(text, %(argument)s) > 0
  union select session from item join source on source.item = item.n
  where item.scope = %(scope)s and role = 'tool' and source.name = %(name)s)
order by session, place, item.id;

-- calls --
select text, metadata from item where scope = %(scope)s and role = 'assistant' and strpos(metadata, '"calls"') > 0;

-- strip --
delete from source where item = %s and number = %s;

-- strip_cites --
delete from cite where item = %s and number = %s;

-- trust --
update item set trust = %s, changed = nextval('change') where n = %s;

-- restore --
-- Not if the same words stand open again by now.
update item set retracted_at = null, valid_to = %(ends)s, replaced_by = %(by)s, changed = nextval('change')
where n = %(n)s and not exists (
  select 1 from item as same where same.scope = item.scope and same.hash = item.hash and same.n <> item.n
  and item.slot is null and same.slot is null and same.session is null and same.occurred_at is null
  and same.valid_to is null and same.retracted_at is null);

-- back --
update progress set upto = least(upto, %(place)s) where scope = %(scope)s and session = %(session)s;

-- session_left --
-- Besides its items. Of a summary that says something the version tells whether it is old. The others have no time of
-- their own: where nothing was said since they are old, unless the erasure is complete, when none of them was left.
with complete as (select 1 from erased where mark = %(mark)s and at >= %(at)s)
select 'episode', count(*) from episode
where scope = %(scope)s and session = %(session)s and happened_at <= %(at)s
union all select 'session', count(*) from session where scope = %(scope)s and session = %(session)s
and (not exists (select 1 from complete) or (summary <> '' and version <= %(version)s))
and not exists (select 1 from item where scope = %(scope)s and session = %(session)s and recorded_at > %(at)s)
union all select 'progress', count(*) from progress where scope = %(scope)s and session = %(session)s
and not exists (select 1 from complete)
and not exists (select 1 from item where scope = %(scope)s and session = %(session)s and recorded_at > %(at)s);

-- orphans --
-- Rows of items that went, in tables whose rows do not go with an item by themselves.
with gone_from as (select distinct scope from gone where id = any(%(ids)s))
select 'word', count(*) from word where scope in (select scope from gone_from)
  and not exists (select 1 from item where item.n = word.item)
union all select 'embedding', count(*) from embedding where scope in (select scope from gone_from)
  and not exists (select 1 from item where item.n = embedding.item)
union all select 'trial', count(*) from trial where scope in (select scope from gone_from)
  and procedure = any(%(ids)s)
  and not exists (select 1 from item where item.scope = trial.scope and item.id = trial.procedure)
union all select 'episode', count(*) from episode where scope in (select scope from gone_from)
  and item = any(%(ids)s)
  and not exists (select 1 from item as one where one.scope = episode.scope and one.id = episode.item);

-- sessions --
-- By every row that names one: the look afterwards goes by it.
select session from session where scope = %(scope)s
union select session from episode where scope = %(scope)s
union select session from progress where scope = %(scope)s
union select session from item where scope = %(scope)s and session is not null;

-- item_ids --
select id from item where scope = %(scope)s;

-- names --
select distinct name from source where scope = %(scope)s and name is not null;

-- requests --
select id, answer from request where scope = %s;

-- drop_request --
delete from request where scope = %s and id = %s;

-- entombed --
select hash from tombstone where scope = any(%s::uuid[]) and hash = any(%s);
