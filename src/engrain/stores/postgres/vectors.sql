-- looking --
-- The model, how many vectors of it the scope has, and now.
select model.n, model.dimension, coalesce(embedded.count, 0),
  greatest(coalesce(%(clock)s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), (select last_value from clock))
from model left join embedded on embedded.model = model.n and embedded.scope = %(scope)s where model.key = %(model)s;

-- exact --
with compared as materialized (
  select embedding.item, embedding.vector <#> %(vector)s::real[]::vector as distance
  from embedding join item on item.n = embedding.item
  where embedding.scope = %(scope)s and embedding.model = %(model)s and {visible} and {where}
)
select item.id, -min(distance), (select -avg(distance) from compared) from compared join item on item.n = compared.item
group by item.id order by min(distance), item.id desc limit %(limit)s;

-- cosines --
select item.id, -min(embedding.vector <#> %(vector)s::real[]::vector)
from item join embedding on embedding.scope = item.scope and embedding.model = %(model)s and embedding.item = item.n
where item.scope = %(scope)s and item.id = any(%(ids)s) and {visible} group by item.id;
