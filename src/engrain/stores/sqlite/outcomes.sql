-- add --
-- The first word on a task stands.
insert into trial (item, task, at, success, note) values (?, ?, ?, ?, ?) on conflict do nothing;

-- tallies --
select item.id, sum(trial.success), count(*), max(trial.at) from item join trial on trial.item = item.n
where +item.scope = ? and item.id in (select value from json_each(?)) group by item.n;

-- trials --
select task, success, at, note from trial where item = (select n from item where scope = ? and id = ?)
order by at desc, task desc limit ?;
