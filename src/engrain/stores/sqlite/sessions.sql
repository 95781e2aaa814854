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
select summary, upto, version from session where scope = ? and session = ? and summary is not null;

-- version --
select version from session where scope = ? and session = ?;

-- summarize --
insert into session (scope, session, summary, upto, version) values (:scope, :session, :text, :upto, :version)
on conflict (scope, session) do update set summary = excluded.summary, upto = excluded.upto, version = excluded.version;
