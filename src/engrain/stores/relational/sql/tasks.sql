-- lock_task --
-- What a write must know of its task. Others who write to it wait, and the times are read after the wait.
-- In order: the store's time, the wall clock, and the clock that judges leases (null: the store's time does).
select scope, n, epoch, worker, status, ended_at, lease_until, lease_clock,
  {tick}, {wall_clock}, {lease_clock}
from (
  select scope, n, epoch, worker, status, ended_at, lease_until, lease_clock from task
  where scope = :scope and task = :task {for_update}) as task;

-- load_task --
select {task} from task join scope on scope.scope = task.scope
left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where task.scope = :scope and task.task = :task;

-- list_tasks --
-- Newest start first.
select {task}, lease_clock, {now}, {lease_clock} from task join scope on scope.scope = task.scope
left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (:all or task.scope = :scope) and scope.state = 0 and (:any_status or status {in:statuses})
  and (not :stale or {may_be_stale})
order by started_at desc, task.n desc limit :limit;

-- add_task --
insert into task (scope, task, goal, version, status, epoch, started_at, deadline)
values (:scope, :task, :goal, :version, 'running', 0, {tick}, :deadline)
on conflict do nothing;

-- claim_task --
update task set status = 'running', epoch = epoch + 1, worker = :worker, lease_until = :lease_until,
  lease_clock = :lease_clock, deadline_clock = coalesce(deadline_clock, :deadline_clock)
where scope = :scope and n = :n;

-- extend_lease --
update task set lease_until = :lease_until, lease_clock = :lease_clock where scope = :scope and n = :n;

-- end_task --
-- Without an outcome the last one stays.
update task set status = :status, outcome = coalesce(:outcome, outcome), ended_at = :ended_at,
  ended_clock = :ended_clock, worker = null, lease_until = null, lease_clock = null, epoch = epoch + :epochs
where scope = :scope and n = :n;

-- lock_overdue_tasks --
-- Those that others write to at this moment are left for the next time.
select scope, n, task, deadline_clock, {tick}, {lease_clock} from (
  select scope, n, task, deadline_clock from task
  where ended_at is null and deadline <= :at
    and exists (select 1 from scope where scope.scope = task.scope and scope.state = 0)
  order by n {skip_locked}) as task;

-- load_ended_tasks --
select scope, n, task, ended_clock, {now}, {lease_clock} from task
where ended_at < :before and scope {not_scope_in:on_hold};

-- delete_tasks --
-- Their steps and snapshots are deleted with them.
delete from task where scope = :scope and n {in:numbers} returning n;

-- delete_events --
delete from event where scope = :scope and task {in:tasks};

-- load_step --
select {step}, step.n from step
left join large_result on large_result.scope = step.scope and large_result.n = step.large_result
where step.scope = :scope and step.task = :task and step.name = :name and step.occurrence = :occurrence;

-- load_steps --
select {step} from step
left join large_result on large_result.scope = step.scope and large_result.n = step.large_result
where step.scope = :scope and step.task = (select n from task where scope = :scope and task = :task) order by step.n;

-- load_unsettled_steps --
select {step} from step
left join large_result on large_result.scope = step.scope and large_result.n = step.large_result
where step.scope = :scope and step.task = (select n from task where scope = :scope and task = :task)
  and step.status in ('intent', 'ambiguous') order by step.n;

-- add_step --
-- Nothing, if it is there.
insert into step (scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  result, large_result, error)
values (:scope, :task, :name, :occurrence, :kind, :status, :attempt, :epoch, :input, :key, :version, :started_at,
  :ended_at, :result, (select n from large_result where scope = :scope and hash = :hash), :error)
on conflict (scope, task, name, occurrence) do nothing returning n;

-- restart_step --
update step set kind = :kind, status = 'intent', attempt = :attempt, epoch = :epoch, input = :input, key = :key,
  version = :version, started_at = :started_at, ended_at = null, result = null, large_result = null, error = null
where scope = :scope and n = :n;

-- settle_step --
-- Nothing, if it is settled or was never begun.
update step set status = :status, ended_at = {greatest}(cast(:now as bigint), started_at), result = :result,
  large_result = (select n from large_result where scope = :scope and hash = :hash), error = :error
where scope = :scope and task = :task and name = :name and occurrence = :occurrence
  and status in ('intent', 'ambiguous')
returning name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at;

-- lock_large_results --
select n from large_result where {+}scope = :scope and n in (
  select large_result from step where scope = :scope and task {in:tasks} and large_result is not null) {for_update};

-- delete_unused_results --
delete from large_result where {+}scope = :scope and n {in:numbers} and not exists (
  select 1 from step where step.scope = large_result.scope and step.large_result = large_result.n);

-- store_snapshot --
insert into snapshot (scope, task, body) values (:scope, :task, :body)
on conflict (scope, task) do update set body = excluded.body;

-- add_event --
insert into event (scope, task, event, at, payload) values (:scope, :task, :event, {now}, :payload)
on conflict do nothing returning at;

-- load_event --
select payload from event where scope = :scope and task = :task and event = :event and {intact:event};
