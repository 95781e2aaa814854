-- closure --
-- The item, what cites it, what cites that; the item itself first.
with recursive gone (n) as (
  select n from item where scope = :scope and id = :id
  union
  select cite.item from gone join cite on cite.cited = gone.n
)
select item.n, item.id from gone join item on item.n = gone.n order by item.id <> :id, item.n;

-- cited_spans --
-- What the removed items cite in items that stay.
select cite.item, cite.cited, cite.start, cite."end", length(item.text) from cite join item on item.n = cite.cited
where cite.item in (select value from json_each(:gone)) and cite.cited not in (select value from json_each(:gone))
order by cite.rowid;

-- forgotten --
select id, text, session, place from item where n = ?;

-- add_tombstone --
insert or ignore into tombstone (scope, hash, at) values (?, ?, ?);

-- add_gone --
-- So that readers of the change sequence learn of it.
insert into gone (seq, scope, n, id) values (?, ?, ?, ?);

-- remove --
-- Sources, cites, entities and words go along.
delete from item where n = ?;

-- cut_from --
select id, text, session, place, speaker, role from item where n = ?;

-- cut --
update item set text = :text, hash = :hash, traits = :traits, passages = :passages, changed = :changed where n = :n;

-- cites_into --
select rowid, item, start, "end" from cite where cited = ? and (start is not null or "end" is not null);

-- move_cite --
update cite set start = ?, "end" = ? where rowid = ?;

-- mark --
update item set changed = ? where n = ?;

-- uncover --
update session set summary = null, upto = null, version = 0 where scope = ? and session = ? and upto > ?;
