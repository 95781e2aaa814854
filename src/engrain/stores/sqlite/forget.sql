-- asked --
-- The item, and the versions that corrections took away on the way to it.
with recursive asked (n, id) as (
  select n, id from item where scope = :scope and id = :id
  union
  select old.n, old.id from asked
  join item as old on old.replaced_by = asked.id and old.retracted_at is not null and +old.scope = :scope
)
select n from asked;

-- closure --
-- These items, what they corrected, what cites any of it, and so on.
with recursive removed (n, id) as (
  select n, id from item where n in (select value from json_each(:start))
  union
  select near.n, near.id from removed join item as near on near.n in (
    select citation.item from citation where citation.scope = :scope and citation.cited = removed.n
    union all
    select old.n from item as old where old.replaced_by = removed.id and old.retracted_at is not null and +old.scope = :scope
  )
)
select n, id from removed order by n;

-- cited_spans --
-- What the removed items cite in items that stay; a summary has no words of its own to take back, nor has a citation of 0:0.
select citation.item, citation.cited, citation.span_start, citation.span_end, length(item.text) from citation
join item on item.n = citation.cited join item as citing on citing.n = citation.item and citing.kind <> 'summary'
where citation.scope = :scope and citation.item in (select value from json_each(:gone)) and citation.cited not in (select value from json_each(:gone))
  and citation.span_end is not 0
order by citation.n;

-- cites_of --
-- Who cites these items, and which part of them.
select item, cited, span_start, span_end from citation where scope = ? and cited in (select value from json_each(?));

-- forgotten --
select id, text, session, place from item where n = ?;

-- changed --
select 1 from item where n in (select value from json_each(:numbers)) and changed > :since limit 1;

-- own_words --
select n from item where kind <> 'summary' and n in (select value from json_each(?));

-- add_tombstone --
insert or ignore into tombstone (scope, hash, at) values (?, ?, ?);

-- add_gone --
-- So that readers of the change sequence learn of it.
insert into deleted_item (change, scope, n, id) values (?, ?, ?, ?);

-- remove --
-- Sources, cites, entities, words, episodes and trials go along.
delete from item where n = ?;

-- cut_from --
select id, text, session, place, speaker, role, slot from item where n = ?;

-- cut --
-- A relation would say in other fields what was cut out of the text.
update item set text = :text, hash = :hash, traits = :traits, passages = :passages, changed = :changed,
  subject = null, relation = null, object = null
where n = :n;

-- cut_entities --
delete from entity where +scope = ? and item = ?;

-- cut_episodes --
delete from episode where +scope = ? and item = ?;

-- cites_into --
select n, item, span_start, span_end from citation where scope = ? and cited = ? and (span_start is not null or span_end is not null);

-- move_cite --
update citation set span_start = ?, span_end = ? where n = ?;

-- mark --
update item set changed = ? where n = ?;

-- uncover --
-- Whoever sums up what was said before this comes too late. One without text says where the window was cleared.
insert into summary (scope, session, upto, version, made_by, text) values (?1, ?2, 0, 1, '', '')
on conflict (scope, session) do update set version = version + 1,
  upto = case when upto > ?3 and text <> '' then 0 else upto end,
  made_by = case when upto > ?3 and text <> '' then '' else made_by end,
  text = case when upto > ?3 then '' else text end;
