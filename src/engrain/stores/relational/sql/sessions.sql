-- find_session_length --
select length from session where scope = :scope and session = :session and {intact:session};

-- load_messages --
select {item} from item where scope = :scope and session = :session and place >= :start and kind = 'message'
  and retracted_at is null order by place limit :limit;

-- load_last_messages --
-- The newest first: the caller turns them round.
select {item} from item where scope = :scope and session = :session and kind = 'message' and retracted_at is null
order by place desc limit :limit;

-- list_sessions --
-- Those that still hold an item, last added to first.
select session from session where scope = :scope and {intact:session} and exists (
  select 1 from item where item.scope = :scope and item.session = session.session and item.retracted_at is null)
order by changed desc limit :limit;

-- load_summary --
select text, upto, version, made_by from summary where scope = :scope and session = :session and {intact:summary};

-- store_summary --
insert into summary (scope, session, text, upto, version, made_by)
values (:scope, :session, :text, :upto, :version, :by)
on conflict (scope, session) do update
set text = excluded.text, upto = excluded.upto, version = excluded.version, made_by = excluded.made_by;

-- find_erasure_time --
-- When one of these was last erased, or began to be; 0 if never.
select coalesce(max(at), 0) from (
  select subject_hash, at from erasure_receipt union all select subject_hash, at from erasure) as erased
where subject_hash {in:hashes};

-- load_progress --
select upto from progress where scope = :scope and session = :session and work = :work and {intact:progress};

-- advance_progress --
insert into progress (scope, session, work, upto) values (:scope, :session, :work, :upto)
on conflict (scope, session, work) do update set upto = {greatest}(progress.upto, excluded.upto);

-- list_sessions_behind --
-- Longer than what the work has seen of them, last added to first.
select session.session, coalesce(progress.upto, 0), session.length from session
left join progress on progress.scope = session.scope and progress.session = session.session and progress.work = :work
where session.scope = :scope and session.length > coalesce(progress.upto, 0) order by session.changed desc limit :limit;
