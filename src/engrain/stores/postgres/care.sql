-- status --
select
  (select count(*) from item),
  (select count(*) from item where valid_to is null and retracted_at is null),
  (select count(*) from scope where exists (select 1 from item where item.scope = scope.scope)),
  (select case when is_called then last_value else 0 end from change),
  (select count(*) from item where not exists (
    select 1 from embedding join model on model.n = embedding.model
    where embedding.scope = item.scope and embedding.item = item.n
      and (%(model)s::text is null or model.key = %(model)s))),
  (select count(*) from sweep),
  (select coalesce(sum(pg_total_relation_size(oid)), 0)::bigint from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r'),
  -- Row-level security shows this role the items of one scope and no more.
  row_security_active('item'::regclass) and not exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = 'item'::regclass and polname = 'upkeep' and (role = 0 or pg_has_role(role, 'usage')));

-- schema --
select value from meta where name = 'schema';

-- indexes --
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

-- broken --
-- Indexes of large scopes that were left half built, and that nobody is building now.
select relname from pg_index join pg_class on pg_class.oid = indexrelid
where relnamespace = current_schema()::regnamespace and starts_with(relname, 'near_') and not (indisvalid and indisready)
  and not exists (select 1 from pg_stat_progress_create_index as building where building.index_relid = indexrelid);

-- spare --
-- Indexes of scopes that are gone or have become small, which nobody is building. None to a role that may not see all.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'i' and starts_with(relname, 'near_')
  and not exists (
    select 1 from embedded
    where relname = 'near_' || model || '_' || replace(scope::text, '-', '') and 2 * count >= %s)
  and not exists (select 1 from pg_stat_progress_create_index as building where building.index_relid = pg_class.oid)
  and (not row_security_active('embedded'::regclass) or exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = 'embedded'::regclass and polname = 'upkeep' and (role = 0 or pg_has_role(role, 'usage'))));

-- checksums --
select current_setting('data_checksums');

-- slots --
-- Slots with more than one open value: the unique index forbids it, unless the file was changed by other hands.
select count(*) from (
  select scope, slot from item where slot is not null and valid_to is null and retracted_at is null
  group by scope, slot having count(*) > 1) as twice;

-- walls --
-- Tables whose rows carry a scope and that no policy, or a policy not forced, protects.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'r' and not (relrowsecurity and relforcerowsecurity)
  and exists (select 1 from pg_attribute where attrelid = pg_class.oid and attname = 'scope' and not attisdropped)
order by relname;

-- role --
select rolsuper or rolbypassrls from pg_roles where rolname = current_user;

-- scopes --
select distinct on (scope.scope) scope.scope, tenant, agent, "user" from item join scope on scope.scope = item.scope
where scope.scope > %s::uuid order by scope.scope limit %s;

-- texts --
select n, text, speaker, slot, retracted_at is not null from item where scope = %s and n > %s order by n limit %s;

-- drop_words --
delete from word where scope = %s and item = any(%s);

-- recount --
update item set passages = %s, words = %s where scope = %s and n = %s;

-- renumber --
update scope set last_change = nextval('change') where scope = %s;

-- misfits --
delete from embedding using model where model.n = embedding.model and embedding.scope = %(scope)s and (
  vector_dims(embedding.vector) <> model.dimension
  or not exists (select 1 from item where item.scope = embedding.scope and item.n = embedding.item));

-- recount_vectors --
insert into embedded (scope, model, count)
select scope, model, count(*) from embedding where scope = %(scope)s group by scope, model
on conflict (scope, model) do update set count = excluded.count;

-- pending --
-- Transactions whose leavings are still to be swept out, and how old the oldest of them is.
select array_agg(after::text), max(age(after::xid)) from sweep;

-- held --
-- How old the oldest moment is that somebody may still look at; null if this role cannot see that of others.
select case when pg_has_role(current_user, 'pg_read_all_stats', 'usage') or (
    select rolsuper from pg_roles where rolname = current_user) then
  greatest(
    (select coalesce(max(age(backend_xmin)), 0) from pg_stat_activity
      where (datname = current_database() or datname is null) and pid <> pg_backend_pid()),
    (select coalesce(max(age(xmin)), 0) from pg_replication_slots),
    (select coalesce(max(age(transaction)), 0) from pg_prepared_xacts where database = current_database())) end;

-- sweeping --
-- Whether a sweep of ours has been at work, or in line, for so many seconds: one more would only wait behind it.
select exists (select 1 from pg_stat_activity
  where datname = current_database() and usename = current_user and pid <> pg_backend_pid() and state = 'active'
    and starts_with(query, %s) and query_start < clock_timestamp() - make_interval(secs => %s));

-- leavings --
-- Rows that are dead and still there, as the last vacuum counted them.
select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_all_tables
where schemaname = current_schema() and relname = any(%s);

-- unswept --
-- Tables that this role may not vacuum: it would be skipped with no more than a notice. Who may are a table's owner, the
-- database's owner, and from Postgres 17 on whoever was granted MAINTAIN or is in pg_maintain.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relname = any(%s) and not (
  pg_has_role(relowner, 'usage')
  or pg_has_role((select datdba from pg_database where datname = current_database()), 'usage')
  or exists (select 1 from pg_roles where rolname = 'pg_maintain' and pg_has_role(oid, 'usage'))
  or exists (select 1 from aclexplode(relacl)
    where privilege_type = 'MAINTAIN' and (grantee = 0 or pg_has_role(grantee, 'usage'))))
order by relname;

-- swept --
delete from sweep where after = any(%s::xid8[]);
