-- length --
select length from session where scope = ? and session = ?;

-- read --
select {item} from item
where scope = ? and session = ? and place >= ? and kind = 'message' and retracted_at is null order by place limit ?;

-- last --
-- The newest first: the caller turns them round.
select {item} from item
where scope = ? and session = ? and kind = 'message' and retracted_at is null order by place desc limit ?;

-- sessions --
-- Those that still hold an item, last added to first.
select session from session where scope = ?1 and exists (
  select 1 from item where item.scope = ?1 and item.session = session.session and item.retracted_at is null)
order by changed desc limit ?2;

-- summary --
select text, upto, version, "by" from summary where scope = ? and session = ?;

-- version --
select version from summary where scope = ? and session = ?;

-- erased_at --
-- Done or under way.
select coalesce(max(at), 0) from (select mark, at from erased union all select mark, at from erasing)
where mark in (select value from json_each(?));

-- summarize --
insert or replace into summary (scope, session, text, upto, version, "by")
values (:scope, :session, :text, :upto, :version, :by);

-- progress --
select upto from progress where scope = ? and session = ? and work = ?;

-- advance --
insert into progress (scope, session, work, upto) values (?, ?, ?, ?)
on conflict (scope, session, work) do update set upto = max(upto, excluded.upto);

-- behind --
-- Longer than what the work has seen of them, last added to first.
select session.session, coalesce(progress.upto, 0), session.length from session
left join progress on progress.scope = session.scope and progress.session = session.session and progress.work = ?2
where session.scope = ?1 and session.length > coalesce(progress.upto, 0) order by session.changed desc limit ?3;
