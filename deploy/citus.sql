-- Distribute a store's schema over a Citus cluster, by scope: all rows of one memory are on one node.
--
-- Not tried on Citus: it was not to be had where this was written. A test holds the conditions that Citus states, on
-- the catalog of a plain Postgres: every primary key, unique index and foreign key of these tables begins with the scope.
--
-- Run once as the owner of the tables, on the coordinator, after a first `engrain status` has made the schema:
--   psql "$URL" -v schema=engrain -f citus.sql
-- Known limits: the sequences `change` and `clock` stay on the coordinator; vector indexes of large scopes are per shard.
-- A hold that hides a user copies the user's rows to another scope and deletes the old ones: nothing updates a scope.

set search_path to :"schema", public;

-- Tables of all scopes, small and read with every write.
select create_reference_table('model');
select create_reference_table('hold');
select create_reference_table('erasure');
select create_reference_table('erasure_receipt');

-- Local: meta
-- Local: audit
-- Local: outbox_reader
-- Local: sweep

select create_distributed_table('scope', 'scope');
select create_distributed_table('item', 'scope', colocate_with => 'scope');
select create_distributed_table('source', 'scope', colocate_with => 'scope');
select create_distributed_table('citation', 'scope', colocate_with => 'scope');
select create_distributed_table('entity', 'scope', colocate_with => 'scope');
select create_distributed_table('session', 'scope', colocate_with => 'scope');
select create_distributed_table('summary', 'scope', colocate_with => 'scope');
select create_distributed_table('progress', 'scope', colocate_with => 'scope');
select create_distributed_table('request', 'scope', colocate_with => 'scope');
select create_distributed_table('tombstone', 'scope', colocate_with => 'scope');
select create_distributed_table('deleted_item', 'scope', colocate_with => 'scope');
select create_distributed_table('word', 'scope', colocate_with => 'scope');
select create_distributed_table('embedding', 'scope', colocate_with => 'scope');
select create_distributed_table('embedded', 'scope', colocate_with => 'scope');
select create_distributed_table('episode', 'scope', colocate_with => 'scope');
select create_distributed_table('raw_text', 'scope', colocate_with => 'scope');
select create_distributed_table('trial', 'scope', colocate_with => 'scope');
select create_distributed_table('task', 'scope', colocate_with => 'scope');
select create_distributed_table('large_result', 'scope', colocate_with => 'scope');
select create_distributed_table('step', 'scope', colocate_with => 'scope');
select create_distributed_table('snapshot', 'scope', colocate_with => 'scope');
select create_distributed_table('event', 'scope', colocate_with => 'scope');
select create_distributed_table('record', 'scope', colocate_with => 'scope');
