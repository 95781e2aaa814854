-- find_scope --
select scope from scope where id = :id;

-- add_erased_scope --
insert into scope (id, state) values (:id, 3) on conflict do nothing;

-- block_scope --
update scope set id = :hash, state = :state where scope = :key;

-- show_scope --
update scope set id = :id, state = 0 where scope = :key;

-- anonymize_scope --
update scope set id = :hash, tenant = null, agent = null, user = null, state = 3 where scope = :key;
