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

-- lock_open_scope --
select 1 from scope where scope = :scope and is_open(state) for no key update;

-- lock_scope --
-- Writers of one scope wait for each other here: change numbers are taken and committed in one order, and a decision on
-- what is stored stays right until the commit.
select last_change from scope where scope = :scope and is_open(state) for no key update;

-- add_scope --
insert into scope (scope, tenant, agent, "user") values (:scope, :tenant, :agent, :user) on conflict (scope) do nothing;

-- adopt_scope --
-- The tombstones of a scope that was erased before become those of the new one.
select adopt(:scope, :hash);
