-- asked --
-- The item, and the versions that corrections took away on the way to it.
with recursive asked as (
  select n, id from item where scope = %(scope)s and id = %(id)s
  union
  select old.n, old.id from asked join item as old
  on old.scope = %(scope)s and old.replaced_by = asked.id and old.retracted_at is not null
)
select n from asked;

-- closure --
-- These items, what they corrected, what cites any of it, and so on.
with recursive removed as (
  select n, id from item where n = any(%(start)s)
  union
  select near.n, near.id from removed cross join lateral (
    select item.n, item.id from cite join item on item.n = cite.item where cite.cited = removed.n
    union all
    select old.n, old.id from item as old
    where old.scope = %(scope)s and old.replaced_by = removed.id and old.retracted_at is not null
  ) as near
)
select item.n, item.id, item.kind, item.text, item.session, item.place from removed join item on item.n = removed.n
order by item.n;

-- cited_spans --
-- What the removed items cite in items that stay; a summary has no words of its own to take back, nor has a cite of 0:0.
select cite.item, cite.cited, cite."from", cite."to", char_length(cited.text)
from cite join item as cited on cited.n = cite.cited join item on item.n = cite.item
where cite.item = any(%(gone)s) and not cite.cited = any(%(gone)s) and item.kind <> 'summary'
  and cite."to" is distinct from 0
order by cite.n;

-- cites_of --
-- Who cites these items, and which part of them.
select item, cited, "from", "to" from cite where cited = any(%s);

-- changed --
select 1 from item where n = any(%(numbers)s) and changed > %(since)s limit 1;

-- add_tombstone --
insert into tombstone (scope, hash, at) values (%s, %s, %s) on conflict do nothing;

-- add_gone --
-- So that readers of the change sequence learn of it.
insert into gone (seq, scope, id) values (nextval('change'), %s, %s);

-- remove_words --
delete from word where item = any(%s);

-- remove_vectors --
with removed as (delete from embedding where item = any(%s) returning scope, model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;

-- remove --
-- Sources, cites and entities go along.
delete from item where n = any(%s);

-- cut_from --
select id, text, session, place, speaker, role, slot from item where n = %s;

-- cut --
-- A relation would say in other fields what was cut out of the text.
update item set text = %(text)s, hash = %(hash)s, traits = %(traits)s, passages = %(passages)s, words = %(words)s,
  changed = nextval('change'), subject = null, relation = null, object = null
where n = %(n)s;

-- cut_entities --
delete from entity where item = %s;

-- cites_into --
select n, item, "from", "to" from cite where cited = %s and ("from" is not null or "to" is not null);

-- move_cite --
update cite set "from" = %s, "to" = %s where n = %s;

-- mark --
update item set changed = nextval('change') where n = %s;

-- uncover --
-- Whoever sums up what was said before this comes too late. One without text says where the window was cleared.
insert into session (scope, session, summary, upto, version) values (%(scope)s, %(session)s, '', 0, 1)
on conflict (scope, session) do update set version = session.version + 1,
  upto = case when session.upto > %(place)s and session.summary <> '' then 0 else coalesce(session.upto, 0) end,
  made_by = case when session.upto > %(place)s and session.summary <> '' then '' else session.made_by end,
  summary = case when session.upto > %(place)s then '' else coalesce(session.summary, '') end;

-- remove_episodes --
delete from episode where scope = %s and item = any(%s);

-- remove_trials --
delete from trial where scope = %s and procedure = any(%s);

-- sweep_later --
insert into sweep (after) values (pg_current_xact_id());
