-- add_scope --
insert into scope (id, tenant, agent, user) values (?, ?, ?, ?);

-- counters --
-- The newest change, then the newest time recorded.
select change, now from counter;

-- set_counters --
-- Once per plan. Times never run backwards, whatever the clocks of other processes say.
update counter set change = :seq, now = max(now, :now) where n = 1;

-- meta --
select value from meta where name = ?;

-- request --
-- The first answer to a request.
select answer from request where scope = ? and id = ?;

-- tombstone --
select 1 from tombstone where scope = ? and hash = ?;

-- add_tombstone --
insert or ignore into tombstone (scope, hash, at) values (?, ?, ?);

-- item_number --
select n from item where scope = ? and id = ?;

-- point_item --
update item set replaced_by = ? where n = ?;
