-- add_trial --
-- The first word on a task stands.
insert into trial (scope, item, task, at, success, note)
select scope, n, :task, :at, :success, :note from item where {+}scope = :scope and id = :id
on conflict do nothing returning at;

-- count_trials --
select item.id, count(*) filter (where success), count(*) filter (where not success), max(trial.at)
from item join trial on trial.scope = item.scope and trial.item = item.n
where {+}item.scope = :scope and item.id {in:ids} and {intact:trial} group by item.id;

-- load_trials --
select task, success, at, note from item join trial on trial.scope = item.scope and trial.item = item.n
where {+}item.scope = :scope and item.id = :id and {intact:trial} order by at desc, task desc limit :limit;
