-- models --
-- Items with vectors of each model.
select model.key, count(distinct embedding.item) from embedding join model on model.n = embedding.model group by model.key;

-- scopes --
select distinct scope.scope, tenant, agent, "user" from embedded join scope on scope.scope = embedded.scope
join model on model.n = embedded.model where model.key = %s and embedded.count > 0;

-- items --
select distinct embedding.item from embedding join model on model.n = embedding.model
where embedding.scope = %s and model.key = %s limit %s;

-- drop --
with removed as (
  delete from embedding using model
  where embedding.scope = %(scope)s and embedding.item = any(%(items)s) and embedding.model = model.n
    and model.key = %(model)s
  returning embedding.scope, embedding.model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;

-- mark --
update item set changed = nextval('change') where scope = %s and n = any(%s);

-- renumber --
update scope set last_change = nextval('change') where scope = %s;
