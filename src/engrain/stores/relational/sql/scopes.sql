-- load_scopes --
-- Those that are not erased.
select {scope_key:scope}, tenant, agent, "user", state from scope where state <> 3 order by scope;

-- find_user_scopes --
-- Exactly this user in this tenant, whatever the agent.
select {scope_key:scope}, tenant, agent, "user", state from scope
where "user" = :user and tenant {same} cast(:tenant as text) order by scope;

-- lock_user_scopes --
select {scope_key:scope}, tenant, agent, "user", state from scope
where "user" = :user and tenant {same} cast(:tenant as text) order by scope {for_update};

-- store_scope_state --
update scope set state = :state where scope = {scope_value:key};
