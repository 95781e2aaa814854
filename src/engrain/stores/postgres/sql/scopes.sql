-- block_scope --
select move_scope(cast(:key as uuid), cast(:hash as uuid), cast(:state as smallint));

-- show_scope --
select move_scope(cast(:key as uuid), cast(:id as uuid), 0::smallint);

-- anonymize_scope --
select anonymize_scope(cast(:key as uuid), cast(:id as uuid), cast(:hash as uuid));

-- lock --
-- Ends with the transaction, and costs no round trip of its own.
select pg_advisory_xact_lock(hashtext(current_schema() || cast(:kind as text)), hashtext(:subject));

-- lock_shared --
select pg_advisory_xact_lock_shared(hashtext(current_schema() || cast(:kind as text)), hashtext(:subject));

-- lock_known_scope --
select 1 from scope where scope = :scope and is_open(state) for no key update;

-- lock_scope --
-- Writers of one scope wait for each other here. Change numbers are taken and committed in one order, and what a write
-- has read stays true until its commit.
select last_change from scope where scope = :scope and is_open(state) for no key update;

-- add_scope --
insert into scope (scope, tenant, agent, "user") values (:scope, :tenant, :agent, :user) on conflict (scope) do nothing;

-- adopt_scope --
select adopt(:scope, cast(:erased as uuid));

-- find_model --
select n, dimension from model where key = :key;

-- add_model --
insert into model (key, dimension) values (:key, :dimension) on conflict (key) do nothing;
