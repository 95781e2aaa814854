-- load_dependents --
with recursive removed (n, id) as (
  select n, id from item where +scope = :scope and n {in:numbers}
  union
  select near.n, near.id from removed join item as near on near.n in (
    select citation.item from citation where citation.scope = :scope and citation.cited = removed.n
    union all
    select old.n from item as old
    where old.replaced_by = removed.id and old.retracted_at is not null and +old.scope = :scope
  )
)
select item.n, item.id, item.kind, item.text, item.session, item.place
from removed cross join item on item.n = removed.n order by item.n;
