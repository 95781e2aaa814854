-- add --
insert into audit (n, at, what, subject, details, previous, hash) values (?, ?, ?, ?, ?, ?, ?);

-- last --
select coalesce(max(n), 0) from audit;

-- entries --
select n, at, what, subject, details, previous, hash from audit where n > ? order by n limit ?;

-- begun --
-- What comes with an entry.
select 1 from erased union all select 1 from hold limit 1;
