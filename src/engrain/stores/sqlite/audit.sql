-- add --
insert into audit (n, at, what, subject, details, previous, hash) values (?, ?, ?, ?, ?, ?, ?);

-- entries --
select n, at, what, subject, details, previous, hash from audit where n > ? order by n limit ?;
