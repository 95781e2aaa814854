-- count_erased_rows --
-- In all erased scopes, so that nothing is missed whatever hash they have.
select count(*) from {table} where scope in (select scope from scope where state = 3) or scope {scope_ids:ids};

-- count_index_orphans --
-- Vectors do not go with an item by themselves.
select 'vector', count(*) from deleted_item join model join vector on vector.key = (model.n << 40 | deleted_item.n)
where deleted_item.id {in:ids} and not exists (select 1 from item where item.n = deleted_item.n);

-- count_scope_vectors --
select count(*) from item join model join vector on vector.key = (model.n << 40 | item.n)
where item.scope {scope_in:keys};

-- delete_scope_vectors --
delete from vector where key in (select model.n << 40 | item.n from item join model where item.scope = :scope);

-- delete_scope_codes --
delete from code where key in (select model.n << 40 | item.n from item join model where item.scope = :scope);

-- load_tombstones --
select tombstone.scope, scope.id, hash from tombstone join scope on scope.scope = tombstone.scope;

-- load_scope_names --
select tenant, agent, user from scope where :key is null or scope = :key;

-- load_column --
select {column} from {table} where (:key is null or scope = :key) and length({column}) > 2;

-- load_vector_pieces --
select substr(vector.windows, 1, :most) from item join model join vector on vector.key = (model.n << 40 | item.n)
where :key is null or item.scope = :key;

-- load_item_texts --
with removed as materialized (select item.* from item where item.n {in:numbers})
select text from removed union all select metadata from removed where metadata <> '{}'
union all select speaker from removed where speaker is not null union all select slot from removed where slot is not null
union all select subject from removed where subject is not null
union all select object from removed where object is not null
union all select relation from removed where relation is not null
union all select name from source join removed on removed.scope = source.scope and removed.n = source.item
  where name is not null
union all select note from trial join removed on removed.scope = trial.scope and removed.n = trial.item
union all select episode.text from episode join removed on removed.n = episode.item
union all select episode.data from episode join removed on removed.n = episode.item where data <> '{}';

-- load_item_vector_pieces --
select substr(vector.windows, 1, :most) from item cross join model
join vector on vector.key = (model.n << 40 | item.n) where item.n {in:numbers};

-- load_session_texts --
select text from episode where scope = :scope and session = :session
union all select data from episode where scope = :scope and session = :session and data <> '{}'
union all select text from summary where scope = :scope and session = :session
union all select raw_text.text from raw_text join episode using (scope, id)
where episode.scope = :scope and episode.session = :session;

-- load_own_texts --
-- With the ids that are given to items: a step that wrote to memory has them for its result.
select sql from sqlite_master union all select key from model union all select name from outbox_reader
union all select details from audit union all select reason from hold union all select id from item
union all select id from deleted_item;
