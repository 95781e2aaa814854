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
  select n, id from item where scope = %(scope)s and n = any(%(start)s)
  union
  select near.n, near.id from removed cross join lateral (
    select item.n, item.id from citation join item on item.scope = citation.scope and item.n = citation.item where citation.scope = %(scope)s and citation.cited = removed.n
    union all
    select old.n, old.id from item as old
    where old.scope = %(scope)s and old.replaced_by = removed.id and old.retracted_at is not null
  ) as near
)
select item.n, item.id, item.kind, item.text, item.session, item.place from removed join item on item.scope = %(scope)s and item.n = removed.n
order by item.n;

-- cited_spans --
-- What the removed items cite in items that stay; a summary has no words of its own to take back, nor has a citation of 0:0.
select citation.item, citation.cited, citation.span_start, citation.span_end, char_length(cited.text)
from citation join item as cited on cited.scope = citation.scope and cited.n = citation.cited join item on item.scope = citation.scope and item.n = citation.item
where citation.scope = %(scope)s and citation.item = any(%(gone)s) and not citation.cited = any(%(gone)s) and item.kind <> 'summary'
  and citation.span_end is distinct from 0
order by citation.n;

-- cites_of --
-- Who cites these items, and which part of them.
select item, cited, span_start, span_end from citation where scope = %s and cited = any(%s);

-- changed --
select 1 from item where scope = %(scope)s and n = any(%(numbers)s) and changed > %(since)s limit 1;

-- add_tombstone --
insert into tombstone (scope, hash, at) values (%s, %s, %s) on conflict do nothing;

-- add_gone --
-- So that readers of the change sequence learn of it.
insert into deleted_item (scope, change, n, id) values (%s, nextval('change'), %s, %s);

-- remove_words --
delete from word where scope = %s and item = any(%s);

-- remove_vectors --
with removed as (delete from embedding where scope = %s and item = any(%s) returning scope, model),
counted as (select scope, model, count(*) as count from removed group by scope, model)
update embedded set count = embedded.count - counted.count from counted
where embedded.scope = counted.scope and embedded.model = counted.model;

-- remove --
-- Its sources, citations, entities, episodes and trials go along.
delete from item where scope = %s and n = any(%s);

-- cut_from --
select id, text, session, place, speaker, role, slot from item where scope = %s and n = %s;

-- cut --
-- A relation would say in other fields what was cut out of the text.
update item set text = %(text)s, hash = %(hash)s, traits = %(traits)s, passages = %(passages)s, words = %(words)s,
  changed = nextval('change'), subject = null, relation = null, object = null
where scope = %(scope)s and n = %(n)s;

-- cut_entities --
delete from entity where scope = %s and item = %s;

-- cites_into --
select n, item, span_start, span_end from citation where scope = %s and cited = %s and (span_start is not null or span_end is not null);

-- move_cite --
update citation set span_start = %s, span_end = %s where scope = %s and n = %s;

-- mark --
update item set changed = nextval('change') where scope = %s and n = %s;

-- uncover --
-- Whoever sums up what was said before this comes too late. One without text says where the window was cleared.
insert into summary (scope, session, upto, version, made_by, text) values (%(scope)s, %(session)s, 0, 1, '', '')
on conflict (scope, session) do update set version = summary.version + 1,
  upto = case when summary.upto > %(place)s and summary.text <> '' then 0 else summary.upto end,
  made_by = case when summary.upto > %(place)s and summary.text <> '' then '' else summary.made_by end,
  text = case when summary.upto > %(place)s then '' else summary.text end;

-- remove_episodes --
delete from episode where scope = %s and item = any(%s);

-- sweep_later --
insert into sweep (after) values (pg_current_xact_id());
