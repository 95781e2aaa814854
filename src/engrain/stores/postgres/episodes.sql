-- known --
select 1 from item where scope = %s and id = %s;

-- same --
-- The same thing that happened before, in this session, and has not expired by then.
select {episode} from episode
where scope = %(scope)s and session = %(session)s and key = %(key)s and id <> %(id)s
  and not exists (select 1 from hold where subject_hash = %(mark)s)
  and (expires_at is null or expires_at > %(at)s);

-- drop --
delete from episode where scope = %s and id = any(%s) returning id;

-- add --
insert into episode (scope, id, session, kind, text, importance, happened_at, expires_at, count, data, item, key)
values (%(scope)s, %(id)s, %(session)s, %(kind)s, %(text)s, %(importance)s, %(happened_at)s, %(expires_at)s, %(count)s,
  %(data)s, (select n from item where item.scope = %(scope)s and item.id = %(item)s), %(key)s);

-- add_raw --
insert into raw_text (scope, id, expires_at, text) values (%(scope)s, %(id)s, %(raw_until)s, %(raw)s);

-- trim --
-- An array, because the server may otherwise look for them anew for every row.
delete from episode where scope = %(scope)s and id = any(array(
  select id from episode where scope = %(scope)s and session = %(session)s
  order by happened_at desc, id desc offset %(keep)s))
  and not exists (select 1 from hold where subject_hash = %(mark)s)
returning id;

-- recent --
select {episode} from episode where scope = %(scope)s and (expires_at is null or expires_at > %(at)s)
order by happened_at desc, episode.id desc limit %(limit)s;

-- recent_in --
select {episode} from episode
where scope = %(scope)s and session = %(session)s and (expires_at is null or expires_at > %(at)s)
order by happened_at desc, episode.id desc limit %(limit)s;

-- raw --
select raw_text.text from episode join raw_text using (scope, id)
where scope = %(scope)s and id = %(id)s and raw_text.expires_at > %(at)s
  and (episode.expires_at is null or episode.expires_at > %(at)s);

-- drop_raw --
delete from raw_text where expires_at <= %s and scope <> all(%s::uuid[]);

-- expire --
delete from episode where expires_at <= %s and scope <> all(%s::uuid[]) returning id;

-- sweep_later --
insert into sweep (after) values (pg_current_xact_id());
