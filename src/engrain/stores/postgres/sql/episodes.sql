-- trim_episodes --
-- An array, because the server may otherwise look for them anew for every row.
delete from episode where scope = :scope and id = any(array(
  select id from episode where scope = :scope and session = :session order by happened_at desc, id desc offset :keep))
and not exists (select 1 from hold where subject_hash = :owner)
returning id;
