-- hidden --
-- Tables of which row-level security shows this role one scope at a time and no more.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'r' and row_security_active(pg_class.oid)
  and not exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = pg_class.oid and polname = 'upkeep' and (role = 0 or pg_has_role(role, 'usage')))
order by relname;

-- item --
select {item}, item.hash, item.traits, scope.tenant, scope.agent, scope."user"
from item join scope on scope.scope = item.scope where item.id > %(a)s and {within}
order by item.id limit %(limit)s;

-- item_vectors --
select embedding.item, model.key, vector_send(embedding.vector)
from embedding join model on model.n = embedding.model
where (embedding.scope, embedding.item) in (select scope, n from item where id = any(%s))
order by embedding.item, model.key, embedding.number;

-- citing --
-- The items that cite, each with its cites: by source; within one, in the order they were given.
select item.id, scope.tenant, scope.agent, scope."user",
  (select json_agg(json_build_array(citation.number, cited.id, citation.span_start, citation.span_end) order by citation.number, citation.n)
    from citation join item as cited on cited.scope = citation.scope and cited.n = citation.cited where citation.scope = item.scope and citation.item = item.n)
from item join scope on scope.scope = item.scope
where item.id > %(a)s and {within}
  and exists (select 1 from citation where citation.scope = item.scope and citation.item = item.n) order by item.id limit %(limit)s;

-- tombstone --
select scope.tenant, scope.agent, scope."user", encode(hash, 'hex')
from tombstone join scope on scope.scope = tombstone.scope
where (tombstone.scope, hash) > (%(a)s::uuid, decode(%(b)s, 'hex')) and {within}
order by tombstone.scope, hash limit %(limit)s;

-- request --
select scope.tenant, scope.agent, scope."user", request.id, answer from request join scope on scope.scope = request.scope
where (request.scope, request.id) > (%(a)s::uuid, %(b)s) and {within}
order by request.scope, request.id limit %(limit)s;

-- session --
select scope.tenant, scope.agent, scope."user", session, length, changed
from session join scope on scope.scope = session.scope
where length > 0 and (session.scope, session) > (%(a)s::uuid, %(b)s) and {within}
order by session.scope, session limit %(limit)s;

-- summary --
select scope.tenant, scope.agent, scope."user", session, text, upto, version, made_by
from summary join scope on scope.scope = summary.scope
where (summary.scope, session) > (%(a)s::uuid, %(b)s) and {within}
order by summary.scope, session limit %(limit)s;

-- progress --
select scope.tenant, scope.agent, scope."user", session, work, upto
from progress join scope on scope.scope = progress.scope
where (progress.scope, session, work) > (%(a)s::uuid, %(b)s, %(c)s) and {within}
order by progress.scope, session, work limit %(limit)s;

-- episode --
select scope.tenant, scope.agent, scope."user", raw_text.text, raw_text.expires_at, {episode}
from episode join scope on scope.scope = episode.scope
left join raw_text on raw_text.scope = episode.scope and raw_text.id = episode.id
where (episode.scope, episode.id) > (%(a)s::uuid, %(b)s) and {within}
order by episode.scope, episode.id limit %(limit)s;

-- trial --
select scope.tenant, scope.agent, scope."user", item.id, task, success, at, note
from trial join scope on scope.scope = trial.scope join item on item.scope = trial.scope and item.n = trial.item
where (trial.scope, item.id, task) > (%(a)s::uuid, %(b)s, %(c)s) and {within}
order by trial.scope, item.id, task limit %(limit)s;

-- task --
select {task} from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (task.scope, task.task) > (%(a)s::uuid, %(b)s) and {within}
order by task.scope, task.task limit %(limit)s;

-- stepped --
-- The tasks from this one on.
select scope.tenant, scope.agent, scope."user", task.task from task join scope on scope.scope = task.scope
where (task.scope, task.task) >= (%(a)s::uuid, %(b)s) and {within}
  and exists (select 1 from step where step.scope = task.scope and step.task = task.n)
order by task.scope, task.task limit %(limit)s;

-- event --
select scope.tenant, scope.agent, scope."user", task, event, payload from event join scope on scope.scope = event.scope
where (event.scope, task, event) > (%(a)s::uuid, %(b)s, %(c)s) and {within}
order by event.scope, task, event limit %(limit)s;

-- one_restorer --
-- One restores at a time.
select pg_advisory_xact_lock(hashtext(current_schema()), hashtext('restore'));

-- key --
select value from meta where name = 'key';

-- grave --
-- Of somebody who was erased: under the keyed hash of a scope that is not there.
select replace(scope::text, '-', ''), encode(hash, 'hex') from tombstone
where (scope, hash) > (%(a)s::uuid, decode(%(b)s, 'hex'))
  and not exists (select 1 from scope as there where there.scope = tombstone.scope)
order by scope, hash limit %(limit)s;

-- erased --
select subject_hash, subject_kind, at, receipt from erasure_receipt where subject_hash > %s order by subject_hash limit %s;

-- held --
select subject_hash, at, reason, hidden from hold where subject_hash > %s order by subject_hash limit %s;

-- inhabited --
select exists (select 1 from item) or exists (select 1 from tombstone) or exists (select 1 from request)
  or exists (select 1 from task) or exists (select 1 from episode) or exists (select 1 from hold)
  or exists (select 1 from erasure_receipt) or exists (select 1 from audit);

-- set_key --
update meta set value = %s where name = 'key';

-- standing --
-- Changes with every item of these scopes that is removed, every tombstone of theirs, and every erasure that begins or
-- ends. Words that were forgotten before leave no new tombstone. Counted: of two scopes the lower number may come last.
select (select count(*) from tombstone where scope = any(%(ids)s::uuid[])),
  (select count(*) from deleted_item where scope = any(%(ids)s::uuid[])), (select count(*) from erasure_receipt),
  (select max(at) from erasure_receipt), (select count(*) from erasure), (select max(at) from erasure);

-- lock_scopes --
-- In their order, so that two who lock several do not wait for each other.
select scope from scope where scope = any(%s::uuid[]) and is_open(state) order by scope for no key update;

-- numbers --
select replace(scope::text, '-', ''), id, n from item where id = any(%s);

-- keep_item --
-- The exact digits of `filters` came as a text.
insert into item (
  id, scope, changed, kind, importance, trust, pinned, traits, passages, words, occurred_at, recorded_at, valid_from,
  valid_to, retracted_at, expires_at, place, session, speaker, role, slot, access_count, last_accessed, replaced_by,
  hash, subject, relation, object, metadata, filters, text
)
select
  id, scope, nextval('change'), kind, importance, trust, pinned, traits, passages, words, occurred_at, recorded_at,
  valid_from, valid_to, retracted_at, expires_at, place, session, speaker, role, slot, access_count, last_accessed,
  replaced_by, hash, subject, relation, object, metadata, (filters #>> '{}')::jsonb, text
from json_populate_recordset(null::item, %s)
on conflict (scope, id) do update set
  changed = excluded.changed, importance = excluded.importance, trust = excluded.trust, pinned = excluded.pinned,
  traits = excluded.traits, passages = excluded.passages, words = excluded.words, valid_to = excluded.valid_to,
  retracted_at = excluded.retracted_at, expires_at = excluded.expires_at, access_count = excluded.access_count,
  last_accessed = excluded.last_accessed, replaced_by = excluded.replaced_by, hash = excluded.hash,
  subject = excluded.subject, relation = excluded.relation, object = excluded.object, metadata = excluded.metadata,
  filters = excluded.filters, text = excluded.text;

-- drop_sources --
delete from source where (scope, item) in (select scope, n from item where id = any(%s));

-- drop_entities --
delete from entity where (scope, item) in (select scope, n from item where id = any(%s));

-- drop_cites --
delete from citation where (scope, item) in (select scope, n from item where id = any(%s));

-- keep_source --
insert into source (scope, item, number, kind, name)
select scope, item, number, kind, name from json_populate_recordset(null::source, %s);

-- keep_entity --
insert into entity (scope, name, item)
select scope, name, item from json_populate_recordset(null::entity, %s) on conflict do nothing;

-- keep_cite --
insert into citation (scope, item, number, cited, span_start, span_end)
select scope, item, number, cited, span_start, span_end from json_populate_recordset(null::citation, %s);

-- mark_items --
update item set changed = nextval('change') where id = any(%s);

-- keep_tombstone --
insert into tombstone (scope, hash, at)
select scope, hash, at from json_populate_recordset(null::tombstone, %s) on conflict do nothing;

-- keep_erased --
insert into erasure_receipt (subject_hash, subject_kind, at, receipt)
select subject_hash, subject_kind, at, receipt from json_populate_recordset(null::erasure_receipt, %s)
on conflict (subject_hash) do update set subject_kind = excluded.subject_kind, at = excluded.at, receipt = excluded.receipt;

-- keep_hold --
insert into hold (subject_hash, at, reason, hidden)
select subject_hash, at, reason, hidden from json_populate_recordset(null::hold, %s)
on conflict (subject_hash) do update set at = excluded.at, reason = excluded.reason, hidden = excluded.hidden;

-- keep_entry --
insert into audit (n, at, what, subject, details, previous, hash)
select n, at, what, subject, details, previous, hash from json_populate_recordset(null::audit, %s)
on conflict (n) do update set at = excluded.at, what = excluded.what, subject = excluded.subject,
  details = excluded.details, previous = excluded.previous, hash = excluded.hash;

-- keep_head --
insert into meta (name, value) values ('audit', %s) on conflict (name) do update set value = excluded.value;

-- keep_request --
insert into request (scope, id, answer, at)
select scope, id, answer, at from json_populate_recordset(null::request, %s)
on conflict (scope, id) do update set answer = excluded.answer, at = excluded.at;

-- keep_session --
insert into session (scope, session, length, changed)
select scope, session, length, changed from json_populate_recordset(null::session, %s)
on conflict (scope, session) do update set length = excluded.length, changed = excluded.changed;

-- reach_change --
-- A session's rank is a number of the sequence: the next one is above it.
select setval('change', %(rank)s) from change where last_value < %(rank)s;

-- keep_summary --
insert into summary (scope, session, text, upto, version, made_by)
select scope, session, text, upto, version, made_by from json_populate_recordset(null::summary, %s)
on conflict (scope, session) do update
set text = excluded.text, upto = excluded.upto, version = excluded.version, made_by = excluded.made_by;

-- keep_progress --
insert into progress (scope, session, work, upto)
select scope, session, work, upto from json_populate_recordset(null::progress, %s)
on conflict (scope, session, work) do update set upto = excluded.upto;

-- keep_episode --
insert into episode (scope, id, session, kind, text, importance, happened_at, expires_at, count, data, item, key)
select scope, id, session, kind, text, importance, happened_at, expires_at, count, data, item, key
from json_populate_recordset(null::episode, %s);

-- keep_raw --
insert into raw_text (scope, id, expires_at, text)
select scope, id, expires_at, text from json_populate_recordset(null::raw_text, %s);

-- keep_trial --
insert into trial (scope, item, task, success, at, note)
select scope, item, task, success, at, note from json_populate_recordset(null::trial, %s)
on conflict (scope, item, task) do update
set success = excluded.success, at = excluded.at, note = excluded.note;

-- keep_task --
insert into task (scope, task, goal, version, status, epoch, worker, lease_until, started_at, ended_at, outcome, deadline)
select scope, task, goal, version, status, epoch, worker, lease_until, started_at, ended_at, outcome, deadline
from json_populate_recordset(null::task, %s)
on conflict (scope, task) do update set
  goal = excluded.goal, version = excluded.version, status = excluded.status, epoch = excluded.epoch,
  worker = excluded.worker, lease_until = excluded.lease_until, lease_clock = null, started_at = excluded.started_at,
  ended_at = excluded.ended_at, outcome = excluded.outcome, deadline = excluded.deadline;

-- drop_snapshots --
delete from snapshot where scope = any(%s::uuid[]) and task = any(%s);

-- keep_snapshot --
insert into snapshot (scope, task, body) select scope, task, body from json_populate_recordset(null::snapshot, %s);

-- keep_step --
-- One that is there keeps its place among the others.
insert into step (scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  result, error)
select scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  result, error
from json_populate_recordset(null::step, %s)
on conflict (scope, task, name, occurrence) do update set
  kind = excluded.kind, status = excluded.status, attempt = excluded.attempt, epoch = excluded.epoch,
  input = excluded.input, key = excluded.key, version = excluded.version, started_at = excluded.started_at,
  ended_at = excluded.ended_at, result = excluded.result, error = excluded.error;

-- task_numbers --
select replace(scope::text, '-', ''), task, n from task where scope = any(%s::uuid[]) and task = any(%s);

-- keep_event --
insert into event (scope, task, event, at, payload)
select scope, task, event, at, payload from json_populate_recordset(null::event, %s)
on conflict (scope, task, event) do update set payload = excluded.payload;

-- end_restore --
update scope set last_change = currval('change') where scope = any(%s::uuid[]);

-- reach_time --
select tick(%s);
