-- held --
-- What a write must know of its task: who may write. Others who write to it wait.
select n, epoch, worker, status from task where scope = %s and task = %s for update;

-- times --
-- The time to record, and the server's own.
select tick(%s), (extract(epoch from clock_timestamp()) * 1000000)::bigint;

-- task --
select {task} from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where task.scope = %s and task.task = %s;

-- tasks --
-- Newest start first.
select {task} from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (%(scope)s::uuid is null or task.scope = %(scope)s) and (%(status)s::text[] is null or status = any(%(status)s))
  and (not %(stale)s or coalesce(lease_clock <= %(clock)s, lease_until <= %(now)s, false))
order by started_at desc, task.n desc limit %(limit)s;

-- overdue --
-- Those that others write to at this moment are left for the next time.
select scope, n from task where ended_at is null and deadline <= %s
  and exists (select 1 from scope where scope.scope = task.scope and scope.state = 0) order by n for update skip locked;

-- by_number --
select {task} from task join scope on scope.scope = task.scope left join snapshot on snapshot.scope = task.scope and snapshot.task = task.n
where (task.scope, task.n) in (select * from unnest(%s::uuid[], %s::bigint[]));

-- add_task --
insert into task (scope, task, goal, version, status, epoch, started_at, deadline)
values (%(scope)s, %(task)s, %(goal)s, %(version)s, 'running', 0, %(now)s, %(deadline)s) on conflict do nothing;

-- claim --
update task set status = 'running', epoch = epoch + 1, worker = %(worker)s, lease_until = %(until)s, lease_clock = %(mark)s
where scope = %(scope)s and n = %(n)s;

-- extend --
update task set lease_until = %s, lease_clock = %s where scope = %s and n = %s;

-- end --
-- With a new state, and held by nobody.
update task set status = %(status)s, outcome = coalesce(%(outcome)s, outcome), ended_at = %(ended)s, worker = null,
  lease_until = null, lease_clock = null, epoch = epoch + %(more)s
where (scope, n) in (select * from unnest(%(scopes)s::uuid[], %(n)s::bigint[]));

-- prune --
with old as (delete from task where ended_at < %s and scope <> all(%s::uuid[]) returning scope, task),
events as (delete from event using old where event.scope = old.scope and event.task = old.task)
select count(*) from old;

-- remove --
with old as (delete from task where scope = %s and n = %s returning scope, task)
delete from event using old where event.scope = old.scope and event.task = old.task;

-- step --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at, result, error, n
from step where scope = %s and task = %s and name = %s and occurrence = %s;

-- steps --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at, result, error, n
from step where (scope, task) = (select scope, n from task where scope = %s and task = %s) order by n;

-- unsettled --
select name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at, result, error, n
from step where (scope, task) = (select scope, n from task where scope = %s and task = %s) and status in ('intent', 'ambiguous') order by n;

-- add_step --
-- Nothing, if it is there.
insert into step (scope, task, name, occurrence, kind, status, attempt, epoch, input, key, version, started_at, ended_at,
  result, error)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict (scope, task, name, occurrence) do nothing
returning n;

-- begin_again --
update step set kind = %(kind)s, status = 'intent', attempt = %(attempt)s, epoch = %(epoch)s, input = %(input)s,
  key = %(key)s, version = %(version)s, started_at = %(now)s, ended_at = null, result = null, error = null
where scope = %(scope)s and n = %(n)s;

-- settle --
update step set status = %s, ended_at = %s, result = %s, error = %s where scope = %s and n = %s;

-- keep --
insert into snapshot (scope, task, body) values (%s, %s, %s) on conflict (scope, task) do update set body = excluded.body;

-- add_event --
insert into event (scope, task, event, at, payload) values (%s, %s, %s, %s, %s) on conflict do nothing returning at;

-- event --
select payload from event where scope = %s and task = %s and event = %s;
