-- find_scope_changes --
-- The number of a scope, the newest changes in it (of items that are there, and of deleted ones), and the newest time
-- that the store has recorded.
select scope.scope, (select max(changed) from item where item.scope = scope.scope),
  (select max(change) from deleted_item where deleted_item.scope = scope.scope), counter.now
from counter left join scope on scope.id = :id where counter.n = 0;

-- load_index_items --
-- Page by page: the rows are still in the processor's cache when columns are made of them. The end is null for an open
-- item, and before all time for a retracted one.
select n, id, valid_from,
  case
    when retracted_at is not null then -9223372036854775808
    when valid_to is null then expires_at
    when expires_at is null then valid_to
    else min(valid_to, expires_at)
  end,
  passages, coalesce(occurred_at, recorded_at), session, place, kind, role, speaker, traits, importance, pinned, trust
from item where scope = :scope and n > :after order by n limit :page;

-- load_changed_index_items --
select n, id, valid_from,
  case
    when retracted_at is not null then -9223372036854775808
    when valid_to is null then expires_at
    when expires_at is null then valid_to
    else min(valid_to, expires_at)
  end,
  passages, coalesce(occurred_at, recorded_at), session, place, kind, role, speaker, traits, importance, pinned, trust
from item where scope = :scope and changed > :since order by n;

-- load_index_sources --
-- The first name of each item comes first.
select item, name from source where scope = :scope and name <> '' order by item, number;

-- load_changed_index_sources --
select item, name from source where scope = :scope and item {in:items} and name <> '' order by item, number;

-- load_deleted_numbers --
select n from deleted_item where scope = :scope and change > :since;

-- load_index_words --
select w.item, w.pairs from item i join words w on w.item = i.n
where i.scope = :scope and i.n > :after order by i.n limit :page;

-- load_changed_index_words --
-- Null for an item whose words are gone.
select i.n, w.pairs from item i left join words w on w.item = i.n
where i.scope = :scope and i.changed > :since order by i.n;

-- load_codes --
select i.n, c.windows from item i join code c on c.key = :base + i.n
where i.scope = :scope and i.n > :after order by i.n limit :page;

-- load_changed_codes --
select i.n, c.windows from item i left join code c on c.key = :base + i.n
where i.scope = :scope and i.changed > :since order by i.n;

-- load_index_vectors --
-- Its reader checks the rows: a call from SQL for each takes three times as long.
select windows, key, checksum from vector where key {in:keys} order by key;

-- load_index_vector --
select windows from vector where key = :key and {intact:vector};

-- find_vector_model --
select n, dimension from model where key = :model;

-- list_vector_models --
select n, dimension from model;

-- add_vector_model --
insert into model (key, dimension) values (:model, :dimension) returning n, dimension;

-- add_index_words --
insert into words (item, pairs, checksum) values (:item, :pairs, :checksum);

-- add_code --
insert into code (key, windows, checksum) values (:key, :windows, :checksum);

-- add_index_vector --
insert into vector (key, windows, checksum) values (:key, :windows, :checksum);

-- delete_index_words --
delete from words where item = :item;

-- delete_code --
delete from code where key = :key;

-- delete_index_vector --
delete from vector where key = :key;
