-- find_scope --
select scope from scope where id = :id;

-- add_erased_scope --
insert into scope (id, state) values (:id, 3) on conflict do nothing;
