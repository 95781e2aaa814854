-- find_scope --
select scope, state from scope where id = :id;

-- add_erased_scope --
insert into scope (id, state) values (:id, 3) on conflict do nothing;

-- block_scope --
update scope set id = :hash, state = :state where scope = :key;

-- show_scope --
update scope set id = :id, state = 0 where scope = :key;

-- anonymize_scope --
update scope set id = :hash, tenant = null, agent = null, user = null, state = 3 where scope = :key;

-- add_scope --
insert into scope (id, tenant, agent, user) values (:id, :tenant, :agent, :user) returning scope;

-- reopen_scope --
update scope set id = :id, tenant = :tenant, agent = :agent, user = :user, state = 0 where scope = :key;

-- find_user_erasure --
-- Its names go with the stage `named`, and from then on the user may come back.
select 1 from erasure where subject_hash = :subject_hash and subject_kind = 'user' and stage <> 'anonymized';
