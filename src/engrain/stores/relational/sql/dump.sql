-- dump_items --
-- {ordered_join} keeps the rows in the order of the items' index: sorted, each page would read all.
select {item}, item.hash, item.traits, scope.tenant, scope.agent, scope."user"
from item {ordered_join} scope on scope.scope = item.scope
where item.id > :a and {within:item} order by item.id limit :limit;

-- dump_citing_items --
select item.n, item.id, scope.tenant, scope.agent, scope."user" from item {ordered_join} scope on scope.scope = item.scope
where item.id > :a and {within:item}
  and exists (select 1 from citation where citation.scope = item.scope and citation.item = item.n)
order by item.id limit :limit;

-- dump_citations --
select citation.item, citation.number, cited.id, span_start, span_end from item
join citation on citation.scope = item.scope and citation.item = item.n
join item as cited on cited.scope = citation.scope and cited.n = citation.cited
where item.id {in:ids} order by citation.item, citation.number, citation.n;

-- dump_tombstones --
select scope.tenant, scope.agent, scope."user", hash from tombstone join scope on scope.scope = tombstone.scope
where ({scope_order:tombstone}, hash) > ({scope_value:a}, :b) and {within:tombstone}
order by {scope_order:tombstone}, hash limit :limit;

-- dump_requests --
select scope.tenant, scope.agent, scope."user", request.id, answer from request join scope on scope.scope = request.scope
where ({scope_order:request}, request.id) > ({scope_value:a}, :b) and {within:request}
order by {scope_order:request}, request.id limit :limit;

-- dump_sessions --
-- A session without a length only counts episodes, and a restore counts them again.
select scope.tenant, scope.agent, scope."user", session, length, changed from session
join scope on scope.scope = session.scope
where length > 0 and ({scope_order:session}, session) > ({scope_value:a}, :b) and {within:session}
order by {scope_order:session}, session limit :limit;

-- dump_summaries --
select scope.tenant, scope.agent, scope."user", session, text, upto, version, made_by from summary
join scope on scope.scope = summary.scope
where ({scope_order:summary}, session) > ({scope_value:a}, :b) and {within:summary}
order by {scope_order:summary}, session limit :limit;

-- dump_progress --
select scope.tenant, scope.agent, scope."user", session, work, upto from progress
join scope on scope.scope = progress.scope
where ({scope_order:progress}, session, work) > ({scope_value:a}, :b, :c) and {within:progress}
order by {scope_order:progress}, session, work limit :limit;

-- dump_episodes --
select scope.tenant, scope.agent, scope."user", raw_text.text, raw_text.expires_at, {episode} from episode
join scope on scope.scope = episode.scope
left join raw_text on raw_text.scope = episode.scope and raw_text.id = episode.id
where ({scope_order:episode}, episode.id) > ({scope_value:a}, :b) and {within:episode}
order by {scope_order:episode}, episode.id limit :limit;

-- dump_trials --
select scope.tenant, scope.agent, scope."user", item.id, task, success, at, note from trial
join item on item.scope = trial.scope and item.n = trial.item join scope on scope.scope = trial.scope
where ({scope_order:trial}, item.id, task) > ({scope_value:a}, :b, :c) and {within:trial}
order by {scope_order:trial}, item.id, task limit :limit;

-- dump_tasks --
select {task} from task join scope on scope.scope = task.scope
left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where ({scope_order:task}, task.task) > ({scope_value:a}, :b) and {within:task}
order by {scope_order:task}, task.task limit :limit;

-- dump_tasks_with_steps --
-- From this task on.
select {scope_key:task}, scope.tenant, scope.agent, scope."user", task.task from task
join scope on scope.scope = task.scope
where ({scope_order:task}, task.task) >= ({scope_value:a}, :b) and {within:task}
  and exists (select 1 from step where step.scope = task.scope and step.task = task.n)
order by {scope_order:task}, task.task limit :limit;

-- dump_events --
select scope.tenant, scope.agent, scope."user", task, event, payload from event
join scope on scope.scope = event.scope
where ({scope_order:event}, task, event) > ({scope_value:a}, :b, :c) and {within:event}
order by {scope_order:event}, task, event limit :limit;

-- dump_receipts --
select subject_hash, subject_kind, at, receipt from erasure_receipt where subject_hash > :a
order by subject_hash limit :limit;

-- dump_holds --
select subject_hash, at, reason, hidden from hold where subject_hash > :a order by subject_hash limit :limit;

-- find_change_token --
-- Changes with every item of these scopes that is removed, every tombstone of theirs, and every erasure that begins or
-- ends. Words that were forgotten before leave no new tombstone. Counted: of two scopes the lower number may come last.
select (select count(*) from tombstone where scope {scope_ids:ids}),
  (select count(*) from deleted_item where scope {scope_ids:ids}), (select count(*) from erasure_receipt),
  (select max(at) from erasure_receipt), (select count(*) from erasure), (select max(at) from erasure);
