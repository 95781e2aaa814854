-- find_versions --
-- The item, and the versions that were corrected on the way to it.
with recursive version (n, id) as (
  select n, id from item where {+}scope = :scope and id = :id
  union
  select old.n, old.id from version
  join item as old on old.replaced_by = version.id and old.retracted_at is not null and {+}old.scope = :scope
)
select n from version;

-- load_cited_spans --
-- What these items cite in others. A summary has no words of its own to take back, nor has a citation of 0:0.
select citation.item, citation.cited, citation.span_start, citation.span_end, length(cited.text) from citation
join item as cited on cited.scope = citation.scope and cited.n = citation.cited
join item on item.scope = citation.scope and item.n = citation.item
where citation.scope = :scope and citation.item {in:numbers} and citation.cited {not_in:numbers}
  and item.kind <> 'summary' and not (citation.span_end {same} 0)
order by citation.n;

-- load_citing --
select item, cited, span_start, span_end from citation where scope = :scope and cited {in:numbers};

-- find_changed --
select 1 from item where {+}scope = :scope and n {in:numbers} and changed > :since limit 1;

-- add_tombstone --
insert into tombstone (scope, hash, at) values (:scope, :hash, :at) on conflict do nothing;

-- add_deleted_item --
-- So that readers of the changes learn of it.
insert into deleted_item (change, scope, n, id) values ({change}, :scope, :n, :id);

-- delete_items --
-- Their sources, citations, entities, episodes and trials go along.
delete from item where {+}scope = :scope and n {in:numbers};

-- load_cut_item --
select id, text, session, place, speaker, role, slot from item where scope = :scope and n = :n;

-- cut_item --
-- A relation would repeat what was cut out of the text.
update item set text = :text, hash = :hash, traits = :traits, passages = :passages, changed = {change},
  subject = null, relation = null, object = null
where scope = :scope and n = :n;

-- delete_item_entities --
delete from entity where {+}scope = :scope and item = :n;

-- delete_item_episodes --
delete from episode where {+}scope = :scope and item = :n;

-- load_citations_into --
select n, item, span_start, span_end from citation
where scope = :scope and cited = :n and (span_start is not null or span_end is not null);

-- move_citation --
update citation set span_start = :span_start, span_end = :span_end where {+}scope = :scope and n = :n;

-- reset_summary --
-- The higher version refuses a summary that is being made. One without text says where the window was cleared.
insert into summary (scope, session, upto, version, made_by, text) values (:scope, :session, 0, 1, '', '')
on conflict (scope, session) do update set version = summary.version + 1,
  upto = case when summary.upto > :place and summary.text <> '' then 0 else summary.upto end,
  made_by = case when summary.upto > :place and summary.text <> '' then '' else summary.made_by end,
  text = case when summary.upto > :place then '' else summary.text end;
