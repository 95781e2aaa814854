-- lock --
select pg_advisory_xact_lock(hashtext(current_schema() || %s::text), hashtext(%s));

-- lock_shared --
select pg_advisory_xact_lock_shared(hashtext(current_schema() || %s::text), hashtext(%s));

-- scopes_of --
-- Exactly this user in this tenant, whatever the agent.
select scope::text, tenant, agent, "user", state from scope
where "user" = %(user)s::text and tenant is not distinct from %(tenant)s::text order by scope for update;

-- scopes_seen --
select scope::text, tenant, agent, "user", state from scope
where "user" = %(user)s::text and tenant is not distinct from %(tenant)s::text order by scope;

-- named --
select scope::text, tenant, agent, "user", state from scope order by scope;

-- shut --
update scope set state = %s where scope = any(%s::uuid[]);

-- rename_scope --
update scope set scope = %(new)s::uuid, state = %(state)s where scope = %(old)s::uuid;

-- drop_scopes --
delete from scope where scope = any(%s::uuid[]);

-- put_aside --
select adopt(%s, %s);

-- scoped --
-- Every table with rows of a scope that there is, but for what keeps the erased out.
select relname from pg_class join pg_attribute on attrelid = pg_class.oid
where relnamespace = (select oid from pg_namespace where nspname = current_schema()) and relkind in ('r', 'p')
  and attname = 'scope' and atttypid = 'uuid'::regtype and not attisdropped and relname not in ('scope', 'tombstone', 'deleted_item')
order by relname;

-- texts --
select id, text from item where scope = %s order by n;

-- entomb --
insert into tombstone (scope, hash, at) select %s, unnest(%s::bytea[]), %s on conflict do nothing;

-- add_all_gone --
insert into deleted_item (scope, change, n, id) select scope, nextval('change'), n, id from item where scope = %s;

-- add_erasing --
insert into erasure (id, subject_hash, subject_kind, stage, at, tenant, agent, "user", name, scopes, notes)
values (%(id)s, %(mark)s, %(by)s, 'rows', %(at)s, %(tenant)s, %(agent)s, %(user)s, %(name)s, %(scopes)s, %(notes)s)
on conflict (id) do nothing;

-- pass --
select tick(%s);

-- erasing --
select id, subject_hash, subject_kind, stage, at, tenant, agent, "user", name, scopes, counts, ids, notes, fingerprints from erasure
where %(id)s::text is null or id = %(id)s order by n;

-- keep --
update erasure set notes = %(notes)s, fingerprints = %(prints)s where id = %(id)s and stage <> 'named';

-- taken --
update erasure set counts = %(counts)s, ids = %(ids)s where id = %(id)s;

-- unname --
-- The ids of the items that went, or of a user those under which the scopes were put aside, are kept: by them is looked
-- for what was passed over.
update erasure set stage = 'named', tenant = null, agent = null, "user" = null, name = null, ids = %(ids)s, scopes = '[]',
  at = %(at)s, notes = coalesce(%(notes)s::text, notes)
where id = %(id)s;

-- drop_erasing --
delete from erasure where id = %s;

-- add_erased --
insert into erasure_receipt (subject_hash, subject_kind, at, receipt) values (%(mark)s, %(by)s, %(at)s, %(receipt)s)
on conflict (subject_hash) do update set at = greatest(erasure_receipt.at, excluded.at), receipt = excluded.receipt;

-- erased --
select subject_hash, subject_kind, at, receipt from erasure_receipt where %(mark)s::text is null or subject_hash = %(mark)s order by at, subject_hash;

-- erased_since --
select 1 from erasure_receipt where subject_hash = any(%(marks)s) and at >= %(began)s
union all select 1 from erasure where subject_hash = any(%(marks)s) and at >= %(began)s;

-- all_tombstones --
select scope::text, encode(hash, 'hex') from tombstone;

-- hold --
select subject_hash, at, reason, hidden from hold where %(mark)s::text is null or subject_hash = %(mark)s order by at, subject_hash;

-- keep_hold --
insert into hold (subject_hash, at, reason) values (%s, %s, %s) on conflict (subject_hash) do update set reason = excluded.reason;

-- hide --
update hold set hidden = true where subject_hash = %s;

-- release --
delete from hold where subject_hash = %s returning subject_hash;

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
select item.id, source.number, source.kind, source.name from source join item on item.scope = source.scope and item.n = source.item
where source.scope = %s order by source.item, source.number;

-- cites --
select item.id, citation.number, cited.id from citation join item on item.scope = citation.scope and item.n = citation.item join item as cited on cited.scope = citation.scope and cited.n = citation.cited
where citation.scope = %s;

-- talks --
-- Whole sessions in which a tool was called with an address, or answered under that name.
select item.id, session, role, text, metadata,
  exists (select 1 from source where source.scope = item.scope and source.item = item.n and source.name = %(name)s)
from item where scope = %(scope)s and kind = 'message' and session in (
  select session from item where scope = %(scope)s and role = 'assistant' and strpos(text, %(argument)s) > 0
  union select session from item join source on source.scope = item.scope and source.item = item.n
  where item.scope = %(scope)s and role = 'tool' and source.name = %(name)s)
order by session, place, item.id;

-- calls --
select text, metadata from item where scope = %(scope)s and role = 'assistant' and strpos(metadata, '"calls"') > 0;

-- strip --
delete from source where scope = %s and item = %s and number = %s;

-- strip_cites --
delete from citation where scope = %s and item = %s and number = %s;

-- trust --
update item set trust = %s, changed = nextval('change') where scope = %s and n = %s;

-- restore --
-- Not if the same words stand open again by now.
update item set retracted_at = null, valid_to = %(ends)s, replaced_by = %(by)s, changed = nextval('change')
where scope = %(scope)s and n = %(n)s and not exists (
  select 1 from item as same where same.scope = item.scope and same.hash = item.hash and same.n <> item.n
  and item.slot is null and same.slot is null and same.session is null and same.occurred_at is null
  and same.valid_to is null and same.retracted_at is null);

-- back --
update progress set upto = least(upto, %(place)s) where scope = %(scope)s and session = %(session)s;

-- session_left --
-- Besides its items. Of a summary that says something the version tells whether it is old. The others have no time of
-- their own: where nothing was said since they are old, unless the erasure is complete, when none of them was left.
with complete as (select 1 from erasure_receipt where subject_hash = %(mark)s and at >= %(at)s)
select 'episode', count(*) from episode
where scope = %(scope)s and session = %(session)s and happened_at <= %(at)s
union all select 'summary', count(*) from summary where scope = %(scope)s and session = %(session)s
and version <= %(version)s and (text <> '' or not exists (select 1 from complete))
and not exists (select 1 from item where scope = %(scope)s and session = %(session)s and recorded_at > %(at)s)
union all select 'session', count(*) from session where scope = %(scope)s and session = %(session)s
and not exists (select 1 from complete)
and not exists (select 1 from item where scope = %(scope)s and session = %(session)s and recorded_at > %(at)s)
union all select 'progress', count(*) from progress where scope = %(scope)s and session = %(session)s
and not exists (select 1 from complete)
and not exists (select 1 from item where scope = %(scope)s and session = %(session)s and recorded_at > %(at)s);

-- orphans --
-- Rows of items that went, in tables whose rows do not go with an item by themselves.
with gone_from as (select distinct scope from deleted_item where id = any(%(ids)s))
select 'word', count(*) from word where scope in (select scope from gone_from)
  and not exists (select 1 from item where item.scope = word.scope and item.n = word.item)
union all select 'embedding', count(*) from embedding where scope in (select scope from gone_from)
  and not exists (select 1 from item where item.scope = embedding.scope and item.n = embedding.item);

-- sessions --
-- By every row that names one: the look afterwards goes by it.
select session from session where scope = %(scope)s
union select session from summary where scope = %(scope)s
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
