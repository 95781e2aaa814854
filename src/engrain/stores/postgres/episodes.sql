-- known --
select 1 from item where scope = %s and id = %s;

-- same --
-- The same thing that happened before, in this session, and has not expired by then.
select {episode} from episode
where scope = %(scope)s and session = %(session)s and key = %(key)s and id <> %(id)s
  and not exists (select 1 from hold where mark = %(mark)s)
  and (expires_at is null or expires_at > %(at)s);

-- drop --
delete from episode where scope = %s and id = any(%s) returning id;

-- add --
insert into episode (scope, id, session, kind, text, importance, happened_at, expires_at, count, data, item, key, raw,
  raw_until)
values (%(scope)s, %(id)s, %(session)s, %(kind)s, %(text)s, %(importance)s, %(happened_at)s, %(expires_at)s, %(count)s,
  %(data)s, %(item)s, %(key)s, %(raw)s, %(raw_until)s);

-- trim --
-- An array, because the server may otherwise look for them anew for every row.
delete from episode where scope = %(scope)s and id = any(array(
  select id from episode where scope = %(scope)s and session = %(session)s
  order by happened_at desc, id desc offset %(keep)s))
  and not exists (select 1 from hold where mark = %(mark)s)
returning id;

-- recent --
select {episode} from episode where scope = %(scope)s and (expires_at is null or expires_at > %(at)s)
order by happened_at desc, id desc limit %(limit)s;

-- recent_in --
select {episode} from episode
where scope = %(scope)s and session = %(session)s and (expires_at is null or expires_at > %(at)s)
order by happened_at desc, id desc limit %(limit)s;

-- raw --
select raw from episode
where scope = %(scope)s and id = %(id)s and raw_until > %(at)s and (expires_at is null or expires_at > %(at)s);

-- drop_raw --
update episode set raw = null, raw_until = null where raw_until <= %s and scope <> all(%s::uuid[]);

-- expire --
delete from episode where expires_at <= %s and scope <> all(%s::uuid[]) returning id;

-- sweep_later --
insert into sweep (after) values (pg_current_xact_id());

-- count --
insert into trial (scope, procedure, task, success, at, note) values (%s, %s, %s, %s, %s, %s)
on conflict do nothing returning at;

-- tallies --
select procedure, count(*) filter (where success), count(*) filter (where not success), max(at) from trial
where scope = %s and procedure = any(%s) group by procedure;

-- trials --
select procedure, task, success, at, note from trial where scope = %s and procedure = %s
order by at desc, task desc limit %s;
