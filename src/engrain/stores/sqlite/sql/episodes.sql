-- trim_episodes --
-- The session counts its episodes: to count a thousand for every new one would take longer than to write it.
delete from episode indexed by episode_id where scope = :scope and id in (
  select id from episode indexed by episode_session where scope = :scope and session = :session
  order by happened_at, id limit max(0, coalesce((
    select episodes from session where scope = :scope and session = :session), 0) - :keep))
and not exists (select 1 from hold where subject_hash = :owner)
returning id;
