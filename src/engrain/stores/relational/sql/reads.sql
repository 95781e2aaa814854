-- load_items --
select {item} from item where {+}scope = :scope and id {in:ids};

-- count_items --
select count(*) from item where scope = :scope and (:history or ({visible})) and {where};

-- load_slots --
select {item} from item
where scope = :scope and slot >= :prefix and substr(slot, 1, length(:prefix)) = :prefix and {visible}
order by slot, valid_from desc, id desc;

-- load_slot --
select {item} from item where scope = :scope and slot = :slot and {visible} order by valid_from desc, id desc limit 1;

-- load_slot_history --
select {item} from item where scope = :scope and slot = :slot order by valid_from, id;

-- load_corrected --
-- The versions that were corrected and led to this one, the newest first.
with recursive chain (n, id) as (
  select n, id from item where {+}scope = :scope and id = :id
  union
  select old.n, old.id from chain
  join item as old on old.replaced_by = chain.id and old.retracted_at is not null and {+}old.scope = :scope
)
select {item} from chain cross join item
where {+}item.scope = :scope and item.n = chain.n and item.id <> :id order by item.recorded_at desc, item.n desc;

-- load_about --
-- The items with a relation of this entity, the newest first.
select {item} from entity join item on item.scope = entity.scope and item.n = entity.item
where entity.scope = :scope and entity.name = :name and {visible} order by item.recorded_at desc, item.n desc;

-- load_citations --
-- Made by these items, or of these items.
select citation.n, item.id, cited.id, citation.span_start, citation.span_end
from item join citation on citation.scope = item.scope and citation.item = item.n
join item as cited on cited.scope = citation.scope and cited.n = citation.cited
where {+}item.scope = :scope and item.id {in:ids} and {intact:citation}
union
select citation.n, item.id, cited.id, citation.span_start, citation.span_end
from item as cited join citation on citation.scope = cited.scope and citation.cited = cited.n
join item on item.scope = citation.scope and item.n = citation.item
where {+}cited.scope = :scope and cited.id {in:ids} and {intact:citation}
order by 1;

-- find_outdated_spans --
-- Spans of these items that are cited by an item that no longer holds, with its number and its slot.
select distinct cited.id, coalesce(citation.span_start, 0), coalesce(citation.span_end, length(cited.text)),
  coalesce(item.retracted_at, item.valid_to), item.n, item.slot
from item as cited join citation on citation.scope = cited.scope and citation.cited = cited.n
join item on item.scope = citation.scope and item.n = citation.item
where {+}cited.scope = :scope and cited.id {in:ids}
  and (item.retracted_at is not null or item.valid_to <= {now}) and not (citation.span_end {same} 0);

-- find_slot_holder --
select text, id from item where scope = :scope and slot = :slot and {visible} order by valid_from desc, id desc limit 1;

-- find_last_version --
-- Follows the corrections to the last one.
with recursive chain (n, next, depth) as (
  select n, replaced_by, 0 from item where scope = :scope and n = :n
  union all
  select item.n, item.replaced_by, depth + 1 from chain join item on item.id = chain.next and {+}item.scope = :scope
  where depth < 10000
)
select item.text, item.id from item
where item.scope = :scope and item.n = (select n from chain order by depth desc limit 1) and {visible};

-- load_changes --
select changed, id, false from item where scope = :scope and changed > :since
union all
select change, id, true from deleted_item where scope = :scope and change > :since
order by 1 limit :limit;

-- list_scopes --
select tenant, agent, "user" from scope where state = 0;

-- list_deleted_items --
-- An item that a restore put back counts as present.
select id from deleted_item where not exists (select 1 from item where item.id = deleted_item.id);

-- find_outbox_reader --
select change from outbox_reader where name = :name;

-- add_outbox_reader --
insert into outbox_reader (name, change) values (:name, 0) on conflict do nothing;

-- store_outbox_position --
insert into outbox_reader (name, change) values (:name, :seq)
on conflict (name) do update set change = {greatest}(outbox_reader.change, excluded.change);

-- list_items_with_traits --
select id from item where scope = :scope and traits <> 0 and traits & :traits <> 0 and {visible} and {where}
order by id desc limit :limit;

-- find_item --
select n from item where {+}scope = :scope and id = :id;

-- find_now --
select {now};

-- count_double_slots --
-- Slots with more than one open value: the unique index forbids it, unless another program changed the rows.
select count(*) from (
  select scope, slot from item where slot is not null and valid_to is null and retracted_at is null
  group by scope, slot having count(*) > 1) as twice;
