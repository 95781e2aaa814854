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
