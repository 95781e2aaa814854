-- settings --
-- What a commit survives; whether this connection is encrypted, and whether it leaves the machine.
select current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'),
  coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false),
  inet_server_addr() is null or inet_server_addr() <<= '127.0.0.0/8' or host(inet_server_addr()) = '::1';

-- unwritable --
-- Whether it is a standby, and whether transactions of this role only read unless they say otherwise.
select pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on';

-- owners --
-- Items of a scope that names nobody, and scopes with items that name a user.
select
  (select count(*) from item join scope on scope.scope = item.scope
    where scope.tenant is null and scope.agent is null and scope."user" is null),
  (select count(*) from scope
    where scope."user" is not null and exists (select 1 from item where item.scope = scope.scope));

-- large --
-- The vectors of this scope that are enough for an index, by model, and whether it is there.
select count, exists (select 1 from pg_index join pg_class on pg_class.oid = indexrelid
    where relnamespace = current_schema()::regnamespace and indisvalid
      and relname = 'near_' || embedded.model || '_' || replace(embedded.scope::text, '-', ''))
from embedded join model on model.n = embedded.model
where embedded.scope = %s and count >= %s and dimension <= %s;
