-- owners --
-- Items of a scope that names nobody, and scopes with items that name a user.
select
  (select count(*) from item join scope on scope.scope = item.scope
    where scope.tenant is null and scope.agent is null and scope.user is null and scope.state = 0),
  (select count(*) from scope where scope.user is not null and exists (select 1 from item where item.scope = scope.scope));
