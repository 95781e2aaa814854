-- dump_erased_tombstones --
-- An erased scope has no row; its tombstones stand under a keyed hash.
select replace(scope::text, '-', ''), hash from tombstone
where (scope, hash) > (cast(:a as uuid), :b)
  and not exists (select 1 from scope as there where there.scope = tombstone.scope)
order by scope, hash limit :limit;

-- list_restricted_tables --
-- Tables of which row-level security shows this role one scope at a time and no more.
select relname from pg_class
where relnamespace = current_schema()::regnamespace and relkind = 'r' and row_security_active(pg_class.oid)
  and not exists (
    select 1 from pg_policy, unnest(polroles) as role
    where polrelid = pg_class.oid and polname = 'maintenance' and (role = 0 or pg_has_role(role, 'usage')))
order by relname;

-- dump_vectors --
select model.key, item.id, vector_send(embedding.vector) from item
join embedding on embedding.scope = item.scope and embedding.item = item.n join model on model.n = embedding.model
where item.id {in:ids} order by embedding.item, model.key, embedding.number;
