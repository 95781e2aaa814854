-- find_scope_moment --
-- Now, and the number of the scope's last change.
select {now}, (select last_change from scope where scope = :scope);

-- load_visibility --
-- The hidden items, the passages and words of the visible ones, and the moments between which that holds.
select array_agg(n) filter (where not ({visible_at})),
  coalesce(sum(passages) filter (where {visible_at}), 0)::bigint,
  coalesce(sum(words) filter (where {visible_at}), 0)::bigint,
  max(greatest(
    case when valid_from <= :at then valid_from end,
    case when valid_to <= :at then valid_to end,
    case when expires_at <= :at then expires_at end)),
  min(least(
    case when valid_from > :at then valid_from end,
    case when valid_to > :at then valid_to end,
    case when expires_at > :at then expires_at end))
from item where scope = :scope;

-- filter_items --
select array_agg(n) from item where scope = :scope and n = any(:items) and {where};

-- filter_scope --
select array_agg(n) from item where scope = :scope and {where};

-- load_item_ids --
select n, id from item where scope = :scope and n = any(:items);

-- load_item_numbers --
select id, n from item where scope = :scope and id = any(:ids);

-- load_postings --
-- All postings of these terms, in columns: the server finds them, and core.text.bm25 ranks them.
-- Passage, length and count are one number, because each column costs as much as the search.
select array_agg(item), array_agg(term), array_agg((passage::bigint << 40) | (length::bigint << 16) | count)
from word where scope = :scope and term = any(:terms);

-- load_item_postings --
select array_agg(item), array_agg(term), array_agg((passage::bigint << 40) | (length::bigint << 16) | count)
from word where scope = :scope and item = any(:items) and term = any(:terms);

-- load_changed_items --
-- Whether an item was removed since, and the numbers of changed ones.
select exists (select 1 from deleted_item where scope = :scope and change > :since),
  (select array_agg(n) from item where scope = :scope and changed > :since);

-- find_vector_model --
-- The model, how many vectors of it the scope has, whether they have an index of their own, and now.
select model.n, model.dimension, coalesce(embedded.count, 0),
  exists (select 1 from pg_index
    where indexrelid = to_regclass('near_' || model.n || '_' || cast(:name as text)) and indisvalid and indisready),
  {now}
from model left join embedded on embedded.model = model.n and embedded.scope = :scope where model.key = :model;

-- compare_vectors --
-- All vectors of the scope, in columns.
select array_agg(item), array_agg(vector <#> cast(:vector as real[])::vector)
from embedding where scope = :scope and model = :model;

-- compare_item_vectors --
select array_agg(item), array_agg(vector <#> cast(:vector as real[])::vector)
from embedding where scope = :scope and model = :model and item = any(:items);

-- compare_vectors_by_id --
select array_agg(item), array_agg(vector <#> cast(:vector as real[])::vector)
from embedding where scope = :scope and model = :model
  and item = any(array(select n from item where scope = :scope and id {in:ids}));

-- widen_index_search --
-- The search goes on until enough vectors pass, and the order of the index is not given up for a sort.
select set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', :width, true),
  set_config('enable_sort', 'off', true);

-- search_vector_index --
-- Each item that the index names, with its cosine by the full vector, and whether it passes the filter. Inside the walk
-- through the index, a filter that few items pass would lead far from the nearest.
select item.id, -distance, {where} from (
  select embedding.item, embedding.vector <#> cast(:vector as real[])::vector as distance
  from embedding join item on item.scope = embedding.scope and item.n = embedding.item
  where embedding.scope = :scope and embedding.model = :model and {visible_at}
  order by embedding.vector::halfvec({dimension}) <#> cast(:vector as real[])::halfvec({dimension}) limit :limit
) as named join item on item.scope = :scope and item.n = named.item;

-- list_passing_items --
-- Visible items that pass the filter, up to a limit.
select array_agg(n) from (
  select n from item where scope = :scope and {visible_at} and {where} limit :limit) as passing;

-- find_mean_vector --
select vector_send(avg(vector)) from embedding where scope = :scope and model = :model;

-- count_vectors_by_model --
-- Items with vectors of each model.
select model.key, count(distinct embedding.item) from embedding join model on model.n = embedding.model group by model.key;

-- list_scopes_of_model --
select distinct tenant, agent, "user" from embedded join scope on scope.scope = embedded.scope
join model on model.n = embedded.model where model.key = :model and embedded.count > 0;

-- list_items_of_model --
select distinct embedding.item from embedding join model on model.n = embedding.model
where embedding.scope = :scope and model.key = :model limit :limit;

-- delete_model_vectors --
with removed as (
  delete from embedding using model
  where embedding.scope = :scope and embedding.item = any(:items) and embedding.model = model.n and model.key = :model
  returning embedding.scope, embedding.model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;

-- mark_changed_items --
update item set changed = {change} where scope = :scope and n = any(:items);

-- add_words --
insert into word (scope, item, term, passage, length, count)
select :scope, * from unnest(
  cast(:items as bigint[]), cast(:terms as integer[]), cast(:passages as integer[]), cast(:lengths as integer[]),
  cast(:counts as integer[]));

-- add_vectors --
-- The values of all vectors are one array.
insert into embedding (scope, model, item, number, vector)
select :scope, :model, item, number, (every.values)[(place - 1) * :dimension + 1 : place * :dimension]::vector
from unnest(cast(:items as bigint[]), cast(:numbers as integer[])) with ordinality as given (item, number, place),
  (select cast(:vectors as real[]) as values) as every;

-- add_vector_count --
insert into embedded (scope, model, count) values (:scope, :model, :count)
on conflict (scope, model) do update set count = embedded.count + excluded.count;
