-- load_same_episodes --
-- Those of the same key in the same session that have not expired by then. A hold keeps them apart.
select {episode} from episode {indexed_by:episode_key}
where scope = :scope and session = :session and key = :key and id <> :id and (expires_at is null or expires_at > :at)
  and not exists (select 1 from hold where subject_hash = :owner);

-- add_episode --
insert into episode (scope, item, happened_at, expires_at, count, importance, id, session, kind, key, data, text)
values (:scope, :item, :happened_at, :expires_at, :count, :importance, :id, :session, :kind, :key, :data, :text);

-- add_raw_text --
insert into raw_text (scope, id, expires_at, text) values (:scope, :id, :expires_at, :text);

-- delete_episode --
-- Its raw text is deleted with it, here and wherever an episode is deleted.
delete from episode {indexed_by:episode_id} where scope = :scope and id = :id;

-- delete_episodes --
delete from episode {indexed_by:episode_id} where scope = :scope and id {in:ids} returning id;

-- load_recent_episodes --
select {episode} from episode where scope = :scope and (expires_at is null or expires_at > :at)
order by happened_at desc, episode.id desc limit :limit;

-- load_recent_session_episodes --
select {episode} from episode {indexed_by:episode_session}
where scope = :scope and session = :session and (expires_at is null or expires_at > :at)
order by happened_at desc, episode.id desc limit :limit;

-- load_raw_text --
select raw_text.text from episode join raw_text using (scope, id)
where episode.scope = :scope and episode.id = :id and raw_text.expires_at > :at and {intact:raw_text}
  and (episode.expires_at is null or episode.expires_at > :at);

-- delete_expired_episodes --
delete from episode where (scope, id) in (
  select scope, id from episode where expires_at <= :at and scope {not_scope_in:on_hold} limit :limit) returning id;

-- delete_expired_raw_texts --
delete from raw_text where (scope, id) in (
  select scope, id from raw_text where expires_at <= :at and scope {not_scope_in:on_hold} limit :limit) returning id;
