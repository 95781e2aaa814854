-- looking --
-- The model, how many vectors of it the scope has, whether they have an index of their own, and now.
select model.n, model.dimension, coalesce(embedded.count, 0),
  exists (select 1 from pg_index
    where indexrelid = to_regclass(format('near_%%s_%%s', model.n, %(name)s::text)) and indisvalid and indisready),
  greatest(coalesce(%(clock)s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), (select last_value from clock))
from model left join embedded on embedded.model = model.n and embedded.scope = %(scope)s where model.key = %(model)s;

-- exact --
-- All of them, in columns.
select array_agg(item), array_agg(vector <#> %(vector)s::real[]::vector)
from embedding where scope = %(scope)s and model = %(model)s;

-- widen --
-- Search goes on until enough hold; and the order of the index is not given up for a sort.
select set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', %s, true),
  set_config('enable_sort', 'off', true);

-- near --
-- Those that the index names, each with its cosine by the full vector, and whether it passes the filter: inside the walk
-- through the index, a filter that little passes would lead far from the nearest.
select item.id, -distance, {where} from (
  select embedding.item, embedding.vector <#> %(vector)s::real[]::vector as distance
  from embedding join item on item.scope = embedding.scope and item.n = embedding.item
  where embedding.scope = %(scope)s and embedding.model = %(model)s and {visible}
  order by embedding.vector::halfvec({dimension}) <#> %(vector)s::real[]::halfvec({dimension}) limit %(limit)s
) as named join item on item.n = named.item;

-- passing --
-- The items that hold then and match, up to one more than are few.
select array_agg(n) from (select n from item where scope = %(scope)s and {visible} and {where} limit %(most)s) as passing;

-- mean --
select vector_send(avg(vector)) from embedding where scope = %(scope)s and model = %(model)s;

-- cosines --
select array_agg(item), array_agg(vector <#> %(vector)s::real[]::vector)
from embedding where scope = %(scope)s and model = %(model)s and item = any(%(items)s);
