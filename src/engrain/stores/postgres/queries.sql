-- add_scope --
insert into scope (scope, tenant, agent, "user") values (%s, %s, %s, %s) on conflict (scope) do nothing;

-- adopt --
select adopt(%s, %s);

-- lock_scope --
-- Writers of one scope wait for each other here: numbers are taken and committed in one order, and what is decided on
-- what is stored stays true until the commit.
select last_change from scope where scope = %s and is_open(state) for no key update;

-- begin_write --
select tick(%s), open_change();

-- moment --
select greatest(coalesce(%s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), last_value) from clock;

-- end_write --
-- The number of the last change, which is nobody else's before the commit.
update scope set last_change = currval('change') where scope = %s returning last_change;

-- request --
-- The first answer to a request.
select answer from request where scope = %s and id = %s;

-- tombstone --
select 1 from tombstone where scope = %s and hash = %s;

-- point_item --
update item set replaced_by = %s where scope = %s and id = %s;

-- scopes --
select tenant, agent, "user" from scope where state = 0;

-- model --
select n, dimension from model where key = %s;

-- add_model --
insert into model (key, dimension) values (%s, %s) on conflict (key) do nothing;

-- known_size --
-- What the server believes to be in the table; less than nothing before it has looked.
select reltuples from pg_class where oid = 'item'::regclass;
