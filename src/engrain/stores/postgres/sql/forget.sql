-- load_dependents --
with recursive removed as (
  select n, id from item where scope = :scope and n {in:numbers}
  union
  select near.n, near.id from removed cross join lateral (
    select item.n, item.id from citation join item on item.scope = citation.scope and item.n = citation.item
    where citation.scope = :scope and citation.cited = removed.n
    union all
    select old.n, old.id from item as old
    where old.scope = :scope and old.replaced_by = removed.id and old.retracted_at is not null
  ) as near
)
select item.n, item.id, item.kind, item.text, item.session, item.place
from removed join item on item.scope = :scope and item.n = removed.n order by item.n;

-- cut_item --
-- A relation would repeat what was cut out of the text.
update item set text = :text, hash = :hash, traits = :traits, passages = :passages, words = :words, changed = {change},
  subject = null, relation = null, object = null
where scope = :scope and n = :n;
