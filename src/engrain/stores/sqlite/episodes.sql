-- same --
-- The same thing in the same session, not expired by then. Here and below the index is named, because left to itself
-- SQLite takes the primary key and reads all of the scope.
select {episode} from episode indexed by episode_key where scope = ? and session = ? and key = ? and id <> ?
  and (expires_at is null or expires_at > ?);

-- add --
-- Not `or replace`, which would go past the trigger that counts.
insert into episode (
  scope, item, happened_at, expires_at, count, importance, id, session, kind, key, data, text
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing;

-- add_raw --
insert into raw_text (scope, id, expires_at, text) values (?, ?, ?, ?);

-- drop --
-- Its raw text goes along, here and wherever an episode goes.
delete from episode where scope = ? and id = ?;

-- how_many --
select episodes from session where scope = ? and session = ?;

-- drop_oldest --
delete from episode indexed by episode_id where scope = :scope and id in (
  select id from episode where scope = :scope and session = :session order by happened_at, id limit :over);

-- recent --
select {episode} from episode where scope = ? and (expires_at is null or expires_at > ?)
order by happened_at desc, id desc limit ?;

-- recent_of --
select {episode} from episode indexed by episode_session
where scope = ? and session = ? and (expires_at is null or expires_at > ?)
order by happened_at desc, id desc limit ?;

-- raw --
select raw_text.text from episode join raw_text using (scope, id)
where episode.scope = :scope and episode.id = :id and raw_text.expires_at > :now
  and (episode.expires_at is null or episode.expires_at > :now);

-- remove --
delete from episode indexed by episode_id where scope = ? and id in (select value from json_each(?));

-- expire --
delete from episode where (scope, id) in (
  select scope, id from episode where expires_at <= ? and scope not in (select value from json_each(?)) limit ?);

-- expire_raw --
delete from raw_text where n in (
  select n from raw_text where expires_at <= ? and scope not in (select value from json_each(?)) limit ?);
