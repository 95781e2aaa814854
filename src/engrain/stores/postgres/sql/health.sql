-- load_status --
select
  (select count(*) from item),
  (select count(*) from item where valid_to is null and retracted_at is null),
  (select count(*) from scope where exists (select 1 from item where item.scope = scope.scope)),
  (select case when is_called then last_value else 0 end from change),
  (select count(*) from item where not exists (
    select 1 from embedding join model on model.n = embedding.model
    where embedding.scope = item.scope and embedding.item = item.n
      and (cast(:model as text) is null or model.key = :model))),
  (select count(*) from sweep),
  (select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r'),
  -- Row-level security shows this role the items of one scope and no more.
  row_security_active('item'::regclass) and not exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = 'item'::regclass and polname = 'maintenance' and (role = 0 or pg_has_role(role, 'usage'))),
  (select count(*) from record);

-- find_schema_version --
select value from meta where name = 'schema';

-- count_index_errors --
-- Items without words, words and vectors without an item, and scopes whose vectors are miscounted.
select
  (select count(*) from item where words > 0 and retracted_at is null
    and not exists (select 1 from word where word.scope = item.scope and word.item = item.n)),
  (select count(*) from word where not exists (select 1 from item where item.scope = word.scope and item.n = word.item)),
  (select count(*) from embedding where not exists (select 1 from item where item.scope = embedding.scope and item.n = embedding.item)),
  (select count(*) from embedded where count <> (
    select count(*) from embedding where embedding.scope = embedded.scope and embedding.model = embedded.model)),
  (select count(*) from pg_index join pg_class on pg_class.oid = indexrelid
    where relnamespace = current_schema()::regnamespace and not (indisvalid and indisready)
      and not exists (select 1 from pg_stat_progress_create_index as building where building.index_relid = indexrelid));

-- list_broken_indexes --
-- Indexes of large scopes that were left half built, and that nobody is building now.
select relname from pg_index join pg_class on pg_class.oid = indexrelid
where relnamespace = current_schema()::regnamespace and starts_with(relname, 'near_') and not (indisvalid and indisready)
  and not exists (select 1 from pg_stat_progress_create_index as building where building.index_relid = indexrelid);

-- list_unneeded_indexes --
-- Indexes of scopes that are gone or have become small, which nobody is building. None to a role that may not see all.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'i' and starts_with(relname, 'near_')
  and not exists (
    select 1 from embedded
    where relname = 'near_' || model || '_' || replace(scope::text, '-', '') and 2 * count >= :large)
  and not exists (select 1 from pg_stat_progress_create_index as building where building.index_relid = pg_class.oid)
  and (not row_security_active('embedded'::regclass) or exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = 'embedded'::regclass and polname = 'maintenance' and (role = 0 or pg_has_role(role, 'usage'))));

-- find_checksum_setting --
select current_setting('data_checksums');

-- list_unprotected_tables --
-- Tables whose rows carry a scope and that no policy, or a policy not forced, protects.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'r' and not (relrowsecurity and relforcerowsecurity)
  and exists (select 1 from pg_attribute where attrelid = pg_class.oid and attname = 'scope' and not attisdropped)
order by relname;

-- find_role_bypass --
select rolsuper or rolbypassrls from pg_roles where rolname = current_user;

-- list_scopes_with_items --
select distinct on (scope.scope) scope.scope, tenant, agent, "user" from item join scope on scope.scope = item.scope
where scope.scope > cast(:after as uuid) order by scope.scope limit :limit;

-- load_texts_to_index --
select n, text, speaker, slot, retracted_at is not null from item where scope = :scope and n > :after order by n limit :limit;

-- store_word_counts --
update item set passages = :passages, words = :words where scope = :scope and n = :n;

-- bump_last_change --
update scope set last_change = {change} where scope = :scope;

-- delete_misfit_vectors --
delete from embedding using model where model.n = embedding.model and embedding.scope = :scope and (
  vector_dims(embedding.vector) <> model.dimension
  or not exists (select 1 from item where item.scope = embedding.scope and item.n = embedding.item));

-- recount_vectors --
insert into embedded (scope, model, count)
select scope, model, count(*) from embedding where scope = :scope group by scope, model
on conflict (scope, model) do update set count = excluded.count;

-- load_pending_purges --
-- Transactions whose removed rows are still to be vacuumed, and how old the oldest of them is.
select array_agg(after::text), max(age(after::xid)) from sweep;

-- find_oldest_snapshot --
-- The age of the oldest snapshot that a reader may still use; null if this role cannot see those of others.
select case when pg_has_role(current_user, 'pg_read_all_stats', 'usage') or (
    select rolsuper from pg_roles where rolname = current_user) then
  greatest(
    (select coalesce(max(age(backend_xmin)), 0) from pg_stat_activity
      where (datname = current_database() or datname is null) and pid <> pg_backend_pid()),
    (select coalesce(max(age(xmin)), 0) from pg_replication_slots),
    (select coalesce(max(age(transaction)), 0) from pg_prepared_xacts where database = current_database())) end;

-- find_running_vacuum --
-- Whether a vacuum of ours has run or waited for so many seconds: one more would only wait behind it.
select exists (select 1 from pg_stat_activity
  where datname = current_database() and usename = current_user and pid <> pg_backend_pid() and state = 'active'
    and starts_with(query, :command) and query_start < clock_timestamp() - make_interval(secs => :seconds));

-- count_dead_rows --
-- Dead rows that the last vacuum left.
select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables
where schemaname = current_schema() and relname {in:tables};

-- list_unvacuumable_tables --
-- Tables that this role may not vacuum: the server skips them with a notice. A table's owner and the database's owner
-- may; from Postgres 17 on also a role with MAINTAIN or in pg_maintain.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relname {in:tables} and not (
  pg_has_role(relowner, 'usage')
  or pg_has_role((select datdba from pg_database where datname = current_database()), 'usage')
  or exists (select 1 from pg_roles where rolname = 'pg_maintain' and pg_has_role(oid, 'usage'))
  or exists (select 1 from aclexplode(relacl)
    where privilege_type = 'MAINTAIN' and (grantee = 0 or pg_has_role(grantee, 'usage'))))
order by relname;

-- delete_pending_purges --
delete from sweep where after = any(cast(:pending as xid8[]));

-- load_server_settings --
-- The settings of durability, whether this connection is encrypted, and whether it stays on the machine.
select current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
  coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false),
  inet_server_addr() is null or inet_server_addr() <<= '127.0.0.0/8' or host(inet_server_addr()) = '::1';

-- find_write_block --
-- Whether it is a standby, and whether transactions of this role only read unless they say otherwise.
select pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on';

-- count_owned_items --
-- Items of a scope that names nobody, and scopes with items that name a user.
select
  (select count(*) from item join scope on scope.scope = item.scope
    where scope.tenant is null and scope.agent is null and scope."user" is null),
  (select count(*) from scope
    where scope."user" is not null and exists (select 1 from item where item.scope = scope.scope));

-- load_large_models --
-- The vectors of this scope that are enough for an index, by model, and whether it is there.
select count, exists (select 1 from pg_index join pg_class on pg_class.oid = indexrelid
    where relnamespace = current_schema()::regnamespace and indisvalid
      and relname = 'near_' || embedded.model || '_' || replace(embedded.scope::text, '-', ''))
from embedded join model on model.n = embedded.model
where embedded.scope = :scope and count >= :large and dimension <= :widest;
