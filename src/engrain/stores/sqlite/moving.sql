-- item --
-- A cross join, here and below, so that the rows come in the order of an index: sorted, each page would read all.
select {item}, item.hash, item.traits, scope.tenant, scope.agent, scope.user
from item cross join scope on scope.scope = item.scope
where item.id > :a and scope.id between :first and :last order by item.id limit :limit;

-- item_vectors --
select vector.key & 1099511627775, model.key, model.dimension, vector.windows
from json_each(:ns) as wanted cross join model join vector on vector.key = (model.n << 40 | wanted.value);

-- citing --
-- The items that cite.
select item.n, item.id, scope.tenant, scope.agent, scope.user from item cross join scope on scope.scope = item.scope
where item.id > :a and scope.id between :first and :last
  and exists (select 1 from citation where citation.scope = item.scope and citation.item = item.n) order by item.id limit :limit;

-- tombstone --
select scope.tenant, scope.agent, scope.user, lower(hex(hash)) from tombstone join scope on scope.scope = tombstone.scope
where scope.state <> 3 and (scope.id, lower(hex(hash))) > (:a, :b)
  and scope.id between :first and :last order by scope.id, hash limit :limit;

-- request --
select scope.tenant, scope.agent, scope.user, request.id, answer from request join scope on scope.scope = request.scope
where (scope.id, request.id) > (:a, :b)
  and scope.id between :first and :last order by scope.id, request.id limit :limit;

-- session --
-- One without a length only counts episodes, which are counted again.
select scope.tenant, scope.agent, scope.user, session, length, changed from session join scope on scope.scope = session.scope
where length > 0 and (scope.id, session) > (:a, :b)
  and scope.id between :first and :last order by scope.id, session limit :limit;

-- summary --
select scope.tenant, scope.agent, scope.user, session, text, upto, version, made_by
from summary join scope on scope.scope = summary.scope
where (scope.id, session) > (:a, :b)
  and scope.id between :first and :last order by scope.id, session limit :limit;

-- progress --
select scope.tenant, scope.agent, scope.user, session, work, upto from progress join scope on scope.scope = progress.scope
where (scope.id, session, work) > (:a, :b, :c)
  and scope.id between :first and :last order by scope.id, session, work limit :limit;

-- episode --
select {episode}, raw_text.text, raw_text.expires_at, scope.tenant, scope.agent, scope.user
from episode join scope on scope.scope = episode.scope
left join raw_text on raw_text.scope = episode.scope and raw_text.id = episode.id
where (scope.id, episode.id) > (:a, :b)
  and scope.id between :first and :last order by scope.id, episode.id limit :limit;

-- trial --
select scope.tenant, scope.agent, scope.user, item.id, task, success, at, note
from trial join item on item.n = trial.item join scope on scope.scope = trial.scope
where (scope.id, item.id, task) > (:a, :b, :c)
  and scope.id between :first and :last order by scope.id, item.id, task limit :limit;

-- task --
select {task}
from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (scope.id, task.task) > (:a, :b)
  and scope.id between :first and :last order by scope.id, task.task limit :limit;

-- stepped --
-- The tasks from this one on.
select task.scope, task.n, scope.tenant, scope.agent, scope.user, task.task from task join scope on scope.scope = task.scope
where (scope.id, task.task) >= (:a, :b)
  and scope.id between :first and :last and exists (select 1 from step where step.scope = task.scope and step.task = task.n)
order by scope.id, task.task limit :limit;

-- event --
select scope.tenant, scope.agent, scope.user, task, event, payload from event join scope on scope.scope = event.scope
where (scope.id, task, event) > (:a, :b, :c)
  and scope.id between :first and :last order by scope.id, task, event limit :limit;

-- grave --
-- Of scopes that were erased: their ids are "shut:" and a keyed hash.
select substr(scope.id, 6), lower(hex(hash)) from tombstone join scope on scope.scope = tombstone.scope
where scope.state = 3 and (scope.id, lower(hex(hash))) > ('shut:' || :a, :b) order by scope.id, hash limit :limit;

-- erased --
select subject_hash, subject_kind, at, receipt from erasure_receipt where subject_hash > ? order by subject_hash limit ?;

-- held --
select subject_hash, at, reason, hidden from hold where subject_hash > ? order by subject_hash limit ?;

-- inhabited --
select exists (select 1 from item) or exists (select 1 from tombstone) or exists (select 1 from request)
  or exists (select 1 from task) or exists (select 1 from episode) or exists (select 1 from hold)
  or exists (select 1 from erasure_receipt) or exists (select 1 from audit);

-- standing --
-- Changes with every item of these scopes that is removed, every tombstone of theirs, and every erasure that begins or
-- ends. Words that were forgotten before leave no new tombstone.
with own as materialized (select scope from scope where id in (select value from json_each(?)))
select (select count(*) from tombstone where scope in own), (select max(change) from deleted_item where scope in own),
  (select count(*) from erasure_receipt), (select max(at) from erasure_receipt), (select count(*) from erasure),
  (select max(at) from erasure);

-- there --
-- In whatever memory.
select id, n, scope from item where id in (select value from json_each(?));

-- last_item --
select coalesce((select seq from sqlite_sequence where name = 'item'), 0);

-- add_item --
insert into item (
  n, scope, changed, id, kind, importance, trust, pinned, traits, occurred_at, recorded_at, valid_from, valid_to,
  retracted_at, expires_at, place, session, speaker, role, slot, access_count, last_accessed, replaced_by, text,
  passages, hash, metadata, subject, relation, object
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- keep_item --
update item set
  changed = :changed, importance = :importance, trust = :trust, pinned = :pinned, traits = :traits,
  passages = :passages, valid_to = :valid_to, retracted_at = :retracted_at, expires_at = :expires_at,
  access_count = :access_count, last_accessed = :last_accessed, replaced_by = :replaced_by, hash = :hash,
  subject = :subject, relation = :relation, object = :object, metadata = :metadata, text = :text
where n = :n;

-- drop_sources --
delete from source where scope = ? and item = ?;

-- drop_entities --
delete from entity where +scope = ? and item = ?;

-- drop_cites --
delete from citation where scope = ? and item = ?;

-- keep_tombstone --
insert or ignore into tombstone (scope, hash, at) values (?, ?, ?);

-- keep_grave --
insert into scope (id, state) select ?, 3 where not exists (select 1 from scope where id = ?);

-- keep_erased --
insert or replace into erasure_receipt (subject_hash, subject_kind, at, receipt) values (?, ?, ?, ?);

-- keep_hold --
insert or replace into hold (subject_hash, at, reason, hidden) values (?, ?, ?, ?);

-- keep_entry --
insert or replace into audit (n, at, what, subject, details, previous, hash) values (?, ?, ?, ?, ?, ?, ?);

-- keep_request --
insert or replace into request (scope, id, answer, at) values (?, ?, ?, ?);

-- keep_session --
insert into session (scope, session, length, changed) values (:scope, :session, :length, :changed)
on conflict (scope, session) do update set length = :length, changed = :changed;

-- keep_progress --
insert or replace into progress (scope, session, work, upto) values (?, ?, ?, ?);

-- keep_trial --
insert or replace into trial (scope, item, task, at, success, note) values (?, ?, ?, ?, ?, ?);

-- keep_task --
insert into task (
  scope, task, goal, version, status, epoch, worker, lease_until, started_at, ended_at, outcome, deadline
) values (
  :scope, :task, :goal, :version, :status, :epoch, :worker, :until, :started_at, :ended_at, :outcome, :deadline
) on conflict (scope, task) do update set
  goal = :goal, version = :version, status = :status, epoch = :epoch, worker = :worker, lease_until = :until,
  started_at = :started_at, ended_at = :ended_at, outcome = :outcome, deadline = :deadline,
  lease_clock = null, ended_clock = null, deadline_clock = null;

-- drop_snapshot --
delete from snapshot where scope = ? and task = ?;

-- keep_step --
-- One that is there keeps its place among the others.
insert into step (scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at,
  ended_at, result, large_result, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict (scope, task, name, occurrence) do update set
  kind = excluded.kind, status = excluded.status, attempt = excluded.attempt, epoch = excluded.epoch,
  input = excluded.input, key = excluded.key, version = excluded.version, started_at = excluded.started_at,
  ended_at = excluded.ended_at, result = excluded.result, large_result = excluded.large_result, error = excluded.error;

-- keep_event --
insert or replace into event (scope, task, event, at, payload) values (?, ?, ?, ?, ?);

-- entries --
select n, at, what, subject, details, previous, hash from audit where n > ? order by n limit ?;

-- keep_summary --
insert or replace into summary (scope, session, text, upto, version, made_by)
values (:scope, :session, :text, :upto, :version, :by);
