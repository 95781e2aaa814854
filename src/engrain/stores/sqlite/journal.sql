-- held --
-- What a write must know of its task: who may write.
select n, epoch, worker, status from task where scope = ? and task = ?;

-- task --
select task.n, scope.tenant, scope.agent, scope.user, task.task, goal, version, status, epoch, worker, lease_until, started_at,
  ended_at, outcome, deadline, snapshot.body, deadline_clock, lease_clock, ended_clock
from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where task.scope = ? and task.task = ?;

-- tasks --
-- Newest start first. A list of states as JSON; null for all.
select task.n, scope.tenant, scope.agent, scope.user, task.task, goal, version, status, epoch, worker, lease_until, started_at,
  ended_at, outcome, deadline, snapshot.body, deadline_clock, lease_clock, ended_clock
from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (:all or task.scope = :scope) and scope.state = 0 and (:status is null or status in (select value from json_each(:status)))
  and (not :held or lease_until is not null)
order by started_at desc, task.n desc limit :limit;

-- overdue --
select task.n, scope.tenant, scope.agent, scope.user, task.task, goal, version, status, epoch, worker, lease_until, started_at,
  ended_at, outcome, deadline, snapshot.body, deadline_clock, lease_clock, ended_clock
from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where ended_at is null and deadline <= ? and scope.state = 0;

-- ended --
select n, scope, task, ended_at, ended_clock from task where ended_at < ?;

-- add_task --
insert into task (scope, task, goal, version, status, epoch, started_at, deadline, deadline_clock)
values (:scope, :task, :goal, :version, 'running', 0, :now, :deadline, :mark);

-- claim --
update task set status = 'running', epoch = epoch + 1, worker = :worker, lease_until = :until, lease_clock = :mark where n = :n;

-- extend --
update task set lease_until = ?, lease_clock = ? where n = ?;

-- end --
-- With a new state, and held by nobody.
update task set status = :status, outcome = :outcome, ended_at = :ended, ended_clock = :mark, worker = null, lease_until = null,
  lease_clock = null, epoch = epoch + :more where n = :n;

-- drop_task --
delete from task where n = ?;

-- drop_events --
delete from event where scope = ? and task = ?;

-- task_results --
select distinct large_result from step where scope = ? and task = ? and large_result is not null;

-- drop_result --
delete from large_result where n = :n and not exists (select 1 from step where large_result = :n);

-- last_time --
-- When the task's newest step began or ended.
select max(started_at, coalesce(ended_at, 0)) from step where n = (select max(n) from step where scope = ? and task = ?);

-- step --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  coalesce(step.result, large_result.body), error, step.n
from step left join large_result on large_result.n = step.large_result where step.scope = ? and task = ? and name = ? and occurrence = ?;

-- steps --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  coalesce(step.result, large_result.body), error
from step left join large_result on large_result.n = step.large_result where step.scope = ? and task = ? order by step.n;

-- unsettled --
-- They have no result yet.
select name, occurrence, kind, step.status, attempt, step.epoch, input, key, step.version, step.started_at, step.ended_at,
  result, error
from step join task on task.scope = step.scope and task.n = step.task
where task.scope = ? and task.task = ? and step.status in ('intent', 'ambiguous') order by step.n;

-- add_step --
-- Nothing, if the lease is over or the step is there.
insert into step (scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at,
  ended_at, result, large_result, error)
select scope, n, ?, ?, ?, ?, ?, epoch, ?, ?, ?, ?, ?, ?, ?, ? from task where scope = ? and task = ? and epoch = ? and worker = ?
on conflict (scope, task, name, occurrence) do nothing;

-- begin_again --
update step set kind = :kind, status = 'intent', attempt = :attempt, epoch = :epoch, input = :input, key = :key,
  version = :version, started_at = :now, ended_at = null, result = null, large_result = null, error = null where n = :n;

-- finish --
-- Nothing, if the lease is over or the step is not open.
update step set status = ?, ended_at = max(?, started_at), result = ?, large_result = ?, error = ?
where scope = ? and task = (select n from task where scope = ? and task = ? and epoch = ? and worker = ?)
  and name = ? and occurrence = ? and status in ('intent', 'ambiguous')
returning name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at;

-- settle --
update step set status = ?, ended_at = ?, result = ?, large_result = ?, error = ? where n = ?;

-- result --
select n from large_result where scope = ? and hash = ?;

-- add_result --
insert into large_result (scope, hash, body) values (?, ?, ?);

-- keep --
insert into snapshot (scope, task, body) values (?, ?, ?) on conflict (scope, task) do update set body = excluded.body;

-- add_event --
insert into event (scope, task, event, at, payload) values (?, ?, ?, ?, ?) on conflict do nothing;

-- event --
select payload from event where scope = ? and task = ? and event = ?;

-- set_now --
update counter set now = max(now, ?) where n = 1;
