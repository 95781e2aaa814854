-- numbers --
select id, n from item where scope = %s and id = any(%s);

-- add_words --
insert into word (scope, item, term, passage, length, count)
select %s, * from unnest(%s::bigint[], %s::integer[], %s::integer[], %s::integer[], %s::integer[]);

-- add_vectors --
-- All of them lie in one array, one after the other.
insert into embedding (scope, model, item, number, vector)
select %(scope)s, %(model)s, item, number, (every.values)[(place - 1) * %(dimension)s + 1 : place * %(dimension)s]::vector
from unnest(%(items)s::bigint[], %(numbers)s::integer[]) with ordinality as given (item, number, place),
  (select %(values)s::real[] as values) as every;

-- count_vectors --
insert into embedded (scope, model, count) values (%s, %s, %s)
on conflict (scope, model) do update set count = embedded.count + excluded.count;

-- drop_vectors --
with removed as (
  delete from embedding using model
  where embedding.scope = %(scope)s and embedding.item = any(%(items)s) and embedding.model = model.n
    and model.key = %(model)s
  returning embedding.scope, embedding.model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;
