-- store_last_change --
-- The number of the last change, which is nobody else's before the commit.
update scope set last_change = currval('change') where scope = :scope returning last_change;

-- mark_purge --
insert into sweep (after) values (pg_current_xact_id());
