-- store_last_change --
-- The number of the last change, which is nobody else's before the commit.
update scope set last_change = currval('change') where scope = :scope returning last_change;

-- store_last_changes --
update scope set last_change = currval('change') where scope {scope_in:keys} returning last_change;

-- begin_changes --
select tick(cast(:clock as bigint)), open_change();

-- lock_scopes --
-- In their order, so that two who lock several do not wait for each other.
select scope from scope where scope {scope_in:keys} and is_open(state) order by scope for no key update;

-- delete_words --
delete from word where scope = :scope and item {in:numbers};

-- delete_vectors --
with removed as (delete from embedding where scope = :scope and item {in:numbers} returning scope, model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;

-- mark_purge --
insert into sweep (after) values (pg_current_xact_id());

-- store_metadata --
update item set metadata = :metadata, filters = :filters where scope = :scope and id = :id;

-- delete_retracted_words --
-- A retracted item is found at no moment.
delete from word where scope = :scope and item = (select n from item where scope = :scope and id = :id);

-- find_model --
select n, dimension from model where key = :model;

-- add_model --
insert into model (key, dimension) values (:model, :dimension) on conflict (key) do nothing;
