-- count_erased_rows --
select count(*) from {table} where scope {scope_ids:ids};

-- count_index_orphans --
-- Rows of removed items, in tables whose rows do not go with an item by themselves.
with removed as (select distinct scope from deleted_item where id {in:ids})
select 'word', count(*) from word where scope in (select scope from removed)
  and not exists (select 1 from item where item.scope = word.scope and item.n = word.item)
union all select 'embedding', count(*) from embedding where scope in (select scope from removed)
  and not exists (select 1 from item where item.scope = embedding.scope and item.n = embedding.item);

-- count_scope_vectors --
select count(*) from embedding where scope {scope_in:keys};

-- load_tombstones --
select replace(scope::text, '-', ''), replace(scope::text, '-', ''), hash from tombstone;
