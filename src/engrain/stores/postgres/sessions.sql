-- length --
select length from session where scope = %s and session = %s;

-- read --
select {item} from item
where scope = %s and session = %s and place >= %s and kind = 'message' and retracted_at is null order by place limit %s;

-- last --
-- The newest first: the caller turns them round.
select {item} from item
where scope = %s and session = %s and kind = 'message' and retracted_at is null order by place desc limit %s;

-- sessions --
-- Those that still hold an item, last added to first.
select session from session where scope = %(scope)s and exists (
  select 1 from item where item.scope = %(scope)s and item.session = session.session and item.retracted_at is null)
order by changed desc limit %(limit)s;

-- summary --
select summary, upto, version, made_by from session where scope = %s and session = %s and summary is not null;

-- version --
select version from session where scope = %s and session = %s;

-- erased_at --
-- Done or under way.
select coalesce(max(at), 0) from (select mark, at from erased union all select mark, at from erasing) as one
where mark = any(%s);

-- summarize --
insert into session (scope, session, summary, upto, version, made_by)
values (%(scope)s, %(session)s, %(text)s, %(upto)s, %(version)s, %(by)s)
on conflict (scope, session) do update
set summary = excluded.summary, upto = excluded.upto, version = excluded.version, made_by = excluded.made_by;

-- progress --
select upto from progress where scope = %s and session = %s and work = %s;

-- advance --
insert into progress (scope, session, work, upto) values (%s, %s, %s, %s)
on conflict (scope, session, work) do update set upto = greatest(progress.upto, excluded.upto);

-- behind --
select session.session, coalesce(upto_by.upto, 0), length from session
left join progress as upto_by
  on upto_by.scope = session.scope and upto_by.session = session.session and upto_by.work = %s
where session.scope = %s and length > coalesce(upto_by.upto, 0) order by changed desc limit %s;
