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
with recursive gone (n, id) as (
  select n, id from item where n in (select value from json_each(:start))
  union
  select near.n, near.id from gone join item as near on near.n in (
    select cite.item from cite where cite.cited = gone.n
    union all
    select old.n from item as old where old.replaced_by = gone.id and old.retracted_at is not null and +old.scope = :scope
  )
)
select n, id from gone order by n;

-- cited_spans --
-- What the removed items cite in items that stay; a summary has no words of its own to take back, nor has a cite of 0:0.
select cite.item, cite.cited, cite.start, cite."end", length(item.text) from cite
join item on item.n = cite.cited join item as citing on citing.n = cite.item and citing.kind <> 'summary'
where cite.item in (select value from json_each(:gone)) and cite.cited not in (select value from json_each(:gone))
  and cite."end" is not 0
order by cite.rowid;

-- cites_of --
-- Who cites these items, and which part of them.
select item, cited, start, "end" from cite where cited in (select value from json_each(?));

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
insert into gone (seq, scope, n, id) values (?, ?, ?, ?);

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
delete from entity where item = ?;

-- cut_episodes --
delete from episode where item = ?;

-- cites_into --
select rowid, item, start, "end" from cite where cited = ? and (start is not null or "end" is not null);

-- move_cite --
update cite set start = ?, "end" = ? where rowid = ?;

-- mark --
update item set changed = ? where n = ?;

-- uncover --
-- Whoever sums up what was said before this comes too late. One without text says where the window was cleared.
insert into summary (scope, session, upto, version, "by", text) values (?1, ?2, 0, 1, '', '')
on conflict (scope, session) do update set version = version + 1,
  upto = case when upto > ?3 and text <> '' then 0 else upto end,
  "by" = case when upto > ?3 and text <> '' then '' else "by" end,
  text = case when upto > ?3 then '' else text end;
