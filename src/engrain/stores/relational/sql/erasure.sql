-- add_erasure --
insert into erasure (id, subject_hash, subject_kind, stage, at, tenant, agent, "user", name, scopes, notes)
values (:id, :subject_hash, :subject_kind, 'blocked', :at, :tenant, :agent, :user, :name, :scopes, :notes)
on conflict (id) do nothing;

-- load_erasures --
select id, subject_hash, subject_kind, stage, at, tenant, agent, "user", name, scopes, counts, ids, notes, fingerprints
from erasure where (cast(:id as text) is null or id = :id) and {intact:erasure} order by n;

-- store_fingerprints --
-- Fingerprints that are taken after the rows were deleted are of nothing: those of whoever was faster stay.
update erasure set notes = :notes,
  fingerprints = case when stage = 'blocked' or length(fingerprints) = 0 then :fingerprints else fingerprints end
where id = :id and stage <> 'anonymized';

-- store_counts --
update erasure set stage = 'deleted', counts = :counts, ids = :ids, at = :at where id = :id;

-- update_counts --
update erasure set counts = :counts, ids = :ids where id = :id;

-- anonymize_erasure --
-- The ids of the items that were removed, or of a user the hashes of the scopes, say where to look for rows that are left.
update erasure set stage = 'anonymized', tenant = null, agent = null, "user" = null, name = null, scopes = '[]', ids = :ids,
  at = :at, notes = coalesce(:notes, notes)
where id = :id;

-- delete_erasure --
delete from erasure where id = :id;

-- add_receipt --
insert into erasure_receipt (subject_hash, subject_kind, at, receipt)
values (:subject_hash, :subject_kind, :at, :receipt)
on conflict (subject_hash) do update set at = {greatest}(erasure_receipt.at, excluded.at), receipt = excluded.receipt;

-- load_receipts --
select subject_hash, subject_kind, at, receipt from erasure_receipt
where cast(:subject_hash as text) is null or subject_hash = :subject_hash order by at, subject_hash;

-- find_tombstone_of --
select 1 from tombstone where scope {scope_ids:ids} and hash = :hash;

-- count_rows --
select count(*) from {table} where scope {scope_in:keys};

-- delete_rows --
delete from {table} where scope = :scope;

-- count_scope_rows --
select count(*) from {table} where scope {scope_ids:ids};

-- load_texts --
select n, id, text from item where scope = :scope order by n;

-- load_item_lineage --
select n, id, kind, session, place, slot, replaced_by, valid_to, retracted_at is not null from item
where scope = :scope order by id;

-- load_source_lineage --
select item.id, source.number, source.kind, source.name from source
join item on item.scope = source.scope and item.n = source.item
where source.scope = :scope order by source.item, source.number;

-- load_citation_lineage --
select item.id, citation.number, cited.id from citation
join item on item.scope = citation.scope and item.n = citation.item
join item as cited on cited.scope = citation.scope and cited.n = citation.cited
where citation.scope = :scope;

-- load_tool_sessions --
-- Whole sessions in which a tool was called with an address, or answered under that name.
select item.id, session, role, text, metadata,
  exists (select 1 from source where source.scope = item.scope and source.item = item.n and source.name = :name)
from item where scope = :scope and kind = 'message' and session in (
  select session from item where scope = :scope and role = 'assistant' and {find_text}(text, :argument) > 0
  union select session from source join item on item.scope = source.scope and item.n = source.item
  where source.scope = :scope and role = 'tool' and source.name = :name)
order by session, place, item.id;

-- load_tool_calls --
select text, metadata from item
where scope = :scope and role = 'assistant' and {find_text}(metadata, '"calls"') > 0;

-- load_removable --
select n, id, kind, text, session, place from item where {+}scope = :scope and n {in:numbers} order by n;

-- delete_source --
delete from source where scope = :scope and item = :n and number = :number;

-- delete_source_citations --
delete from citation where scope = :scope and item = :n and number = :number;

-- store_trust --
update item set trust = :trust, changed = {change} where scope = :scope and n = :n;

-- reopen_item --
-- Not if the same words stand open again by now.
update item set retracted_at = null, valid_to = :valid_to, replaced_by = :replaced_by, changed = {change}
where scope = :scope and n = :n and not exists (
  select 1 from item as same where same.scope = :scope and same.hash = item.hash and same.n <> item.n
  and item.slot is null and same.slot is null and same.session is null and same.occurred_at is null
  and same.valid_to is null and same.retracted_at is null);

-- repoint_item --
update item set replaced_by = :replaced_by where scope = :scope and n = :n;

-- set_back_progress --
update progress set upto = {least}(upto, :place) where scope = :scope and session = :session;

-- load_requests --
select id, answer from request where scope = :scope;

-- delete_request --
delete from request where scope = :scope and id = :id;

-- count_session_rows --
select count(*) from {table} where scope = :scope and session = :session;

-- delete_session_rows --
delete from {table} where scope = :scope and session = :session;

-- list_named_sessions --
-- By every row that names one, because a search for leftovers goes by it.
select session from session where scope = :scope union select session from summary where scope = :scope
union select session from progress where scope = :scope union select session from episode where scope = :scope
union select session from item where scope = :scope and session is not null;

-- list_sources --
select distinct name from source where scope = :scope and name is not null;

-- list_ids --
select id from item where scope = :scope;

-- find_older_rows --
select 1 where exists (select 1 from item where scope = :scope and recorded_at <= :at)
  or exists (select 1 from episode where scope = :scope and happened_at <= :at)
  or exists (select 1 from task where scope = :scope and started_at <= :at)
  or exists (select 1 from record where scope = :scope and at <= :at);

-- find_newer_rows --
select 1 where exists (select 1 from item where scope = :scope and recorded_at > :at)
  or exists (select 1 from episode where scope = :scope and happened_at > :at)
  or exists (select 1 from task where scope = :scope and started_at > :at)
  or exists (select 1 from record where scope = :scope and at > :at);

-- find_concurrent_rows --
-- Older rows that have the store's time. An episode has its writer's, whose clock may be behind.
select 1 where exists (select 1 from item where scope = :scope and recorded_at <= :at)
  or exists (select 1 from task where scope = :scope and started_at <= :at)
  or exists (select 1 from record where scope = :scope and at <= :at);

-- load_older_items --
select n, id, kind, text, session, place from item where scope = :scope and recorded_at <= :at order by n;

-- delete_older_events --
delete from event where scope = :scope and task in (
  select task from task where scope = :scope and started_at <= :at);

-- delete_older_tasks --
delete from task where scope = :scope and started_at <= :at;

-- delete_older_records --
delete from record where scope = :scope and at <= :at;

-- count_older_items --
select count(*) from item where {+}scope = :scope and id {in:ids} and recorded_at <= :at;

-- count_session_leftovers --
-- Besides its items. The version tells whether a summary that says something is old. The others have no time of their
-- own: where nothing was said since they are old, unless the erasure is complete, when none of them was left.
with complete as (select 1 from erasure_receipt where subject_hash = :subject_hash and at >= :at)
select 'episode', count(*) from episode where scope = :scope and session = :session and happened_at <= :at
union all select kind, count(*) from (
  select 'summary' as kind from summary where scope = :scope and session = :session and version <= :version
    and (text <> '' or not exists (select 1 from complete))
  union all select 'progress' from progress where scope = :scope and session = :session
    and not exists (select 1 from complete)
  union all select 'session' from session where scope = :scope and session = :session
    and not exists (select 1 from complete)) as rest
where not exists (select 1 from item where scope = :scope and session = :session and recorded_at > :at)
  and not exists (select 1 from episode where scope = :scope and session = :session and happened_at > :at)
group by kind;
