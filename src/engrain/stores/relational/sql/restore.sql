-- load_key --
-- Locked: one restore at a time may set it.
select value from meta where name = 'key' {for_update};

-- find_any_row --
select exists (select 1 from item) or exists (select 1 from tombstone) or exists (select 1 from request)
  or exists (select 1 from task) or exists (select 1 from episode) or exists (select 1 from record) or exists (select 1 from hold)
  or exists (select 1 from erasure_receipt) or exists (select 1 from audit);

-- store_key --
update meta set value = :key where name = 'key';

-- find_items_anywhere --
select {scope_key:item}, id, n from item where id {in:ids};

-- find_tasks --
select {scope_key:task}, task, n from task where scope {scope_in:scopes} and task {in:tasks};

-- restore_item --
insert into item (
  id, scope, changed, kind, importance, trust, pinned, traits, passages, occurred_at, recorded_at, valid_from,
  valid_to, retracted_at, expires_at, place, session, speaker, role, slot, access_count, last_accessed, replaced_by,
  hash, subject, relation, object, metadata, text{index_columns}
) values (
  :id, :scope, {change}, :kind, :importance, :trust, :pinned, :traits, :passages, :occurred_at, :recorded_at, :valid_from,
  :valid_to, :retracted_at, :expires_at, :place, :session, :speaker, :role, :slot, :access_count, :last_accessed,
  :replaced_by, :hash, :subject, :relation, :object, :metadata, :text{index_values}
) on conflict {item_id} do update set
  changed = excluded.changed, importance = excluded.importance, trust = excluded.trust, pinned = excluded.pinned,
  traits = excluded.traits, passages = excluded.passages, valid_to = excluded.valid_to,
  retracted_at = excluded.retracted_at, expires_at = excluded.expires_at, access_count = excluded.access_count,
  last_accessed = excluded.last_accessed, replaced_by = excluded.replaced_by, hash = excluded.hash,
  subject = excluded.subject, relation = excluded.relation, object = excluded.object, metadata = excluded.metadata,
  text = excluded.text{index_update};

-- delete_sources --
delete from source where scope = :scope and item = :item;

-- delete_entities --
delete from entity where {+}scope = :scope and item = :item;

-- delete_citations --
delete from citation where scope = :scope and item = :item;

-- restore_source --
insert into source (scope, item, number, kind, name) values (:scope, :item, :number, :kind, :name);

-- restore_entity --
insert into entity (scope, name, item) values (:scope, :name, :item) on conflict do nothing;

-- restore_citation --
insert into citation (scope, item, number, cited, span_start, span_end)
values (:scope, :item, :number, :cited, :span_start, :span_end);

-- mark_item_changed --
update item set changed = {change} where scope = :scope and n = :item;

-- restore_request --
insert into request (scope, id, answer, at) values (:scope, :id, :answer, :at)
on conflict (scope, id) do update set answer = excluded.answer, at = excluded.at;

-- restore_session --
insert into session (scope, session, length, changed) values (:scope, :session, :length, :rank)
on conflict (scope, session) do update set length = excluded.length, changed = excluded.changed;

-- restore_progress --
insert into progress (scope, session, work, upto) values (:scope, :session, :work, :upto)
on conflict (scope, session, work) do update set upto = excluded.upto;

-- restore_trial --
insert into trial (scope, item, task, success, at, note) values (:scope, :item, :task, :success, :at, :note)
on conflict (scope, item, task) do update
set success = excluded.success, at = excluded.at, note = excluded.note;

-- restore_task --
insert into task (
  scope, task, goal, version, status, epoch, worker, lease_until, started_at, ended_at, outcome, deadline
) values (
  :scope, :task, :goal, :version, :status, :epoch, :worker, :until, :started_at, :ended_at, :outcome, :deadline
) on conflict (scope, task) do update set
  goal = excluded.goal, version = excluded.version, status = excluded.status, epoch = excluded.epoch,
  worker = excluded.worker, lease_until = excluded.lease_until, started_at = excluded.started_at,
  ended_at = excluded.ended_at, outcome = excluded.outcome, deadline = excluded.deadline,
  lease_clock = null, ended_clock = null, deadline_clock = null;

-- delete_snapshot --
delete from snapshot where scope = :scope and task = :task;

-- restore_step --
-- A step that is there keeps its place among the others.
insert into step (
  scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at, result, error
) values (
  :scope, :task, :name, :occurrence, :kind, :status, :attempt, :epoch, :input, :key, :version, :began_at, :ended_at,
  :result, :error
) on conflict (scope, task, name, occurrence) do update set
  kind = excluded.kind, status = excluded.status, attempt = excluded.attempt, epoch = excluded.epoch,
  input = excluded.input, key = excluded.key, version = excluded.version, started_at = excluded.started_at,
  ended_at = excluded.ended_at, result = excluded.result, error = excluded.error, large_result = null;

-- restore_event --
insert into event (scope, task, event, at, payload) values (:scope, :task, :event, :at, :payload)
on conflict (scope, task, event) do update set payload = excluded.payload;

-- restore_receipt --
insert into erasure_receipt (subject_hash, subject_kind, at, receipt) values (:subject_hash, :by, :at, :receipt)
on conflict (subject_hash) do update
set subject_kind = excluded.subject_kind, at = excluded.at, receipt = excluded.receipt;

-- restore_hold --
insert into hold (subject_hash, at, reason, hidden) values (:subject_hash, :at, :reason, :hidden)
on conflict (subject_hash) do update set at = excluded.at, reason = excluded.reason, hidden = excluded.hidden;

-- restore_audit_entry --
insert into audit (n, at, what, subject, details, previous, hash)
values (:n, :at, :what, :subject, :details, :previous, :hash)
on conflict (n) do update set at = excluded.at, what = excluded.what, subject = excluded.subject,
  details = excluded.details, previous = excluded.previous, hash = excluded.hash;
