-- newest --
-- The number of a scope and the newest changes in it, of items that are there and of items that went.
select scope, (select max(changed) from item where item.scope = scope.scope), (select max(change) from deleted_item where deleted_item.scope = scope.scope)
from scope where id = ?;

-- roster --
-- Page by page: the rows are still in the processor's cache when columns are made of them. The end is null for an item
-- that is open, and before all time for one that was never so.
select n, id, valid_from,
  case
    when retracted_at is not null then -9223372036854775808
    when valid_to is null then expires_at
    when expires_at is null then valid_to
    else min(valid_to, expires_at)
  end,
  passages
from item where scope = :scope and n > :after order by n limit :page;

-- roster_changed --
select n, id, valid_from,
  case
    when retracted_at is not null then -9223372036854775808
    when valid_to is null then expires_at
    when expires_at is null then valid_to
    else min(valid_to, expires_at)
  end,
  passages
from item where scope = :scope and changed > :seen order by n;

-- gone --
select n from deleted_item where scope = :scope and change > :seen;

-- details --
select n, kind, session, speaker, role, place, coalesce(occurred_at, recorded_at), traits, importance, pinned, trust
from item where scope = :scope and n > :after order by n limit :page;

-- details_changed --
select n, kind, session, speaker, role, place, coalesce(occurred_at, recorded_at), traits, importance, pinned, trust
from item where scope = :scope and changed > :seen order by n;

-- sources_range --
-- Named sources, the last one first; an item's first one then comes last.
select item, name from source where scope = :scope and item between :first and :last and name <> '' order by item, number desc;

-- sources_scope --
-- The same for a scope whose items are few among others, and for what changed.
select s.item, s.name from item i join source s on s.scope = i.scope and s.item = i.n
where i.scope = :scope and i.changed > :seen and s.name <> '' order by s.item, s.number desc;

-- words_range --
select item, pairs from words where item > :after and item <= :last order by item limit :page;

-- words_scope --
select w.item, w.pairs from item i join words w on w.item = i.n
where i.scope = :scope and i.n > :after order by i.n limit :page;

-- words_changed --
-- A null says that the words are gone.
select i.n, w.pairs from item i left join words w on w.item = i.n
where i.scope = :scope and i.changed > :seen order by i.n;

-- model --
select n, dimension from model where key = ?;

-- codes_range --
select key - :base, windows from code where key > :base + :after and key <= :base + :last order by key limit :page;

-- codes_scope --
select i.n, c.windows from item i join code c on c.key = :base + i.n
where i.scope = :scope and i.n > :after order by i.n limit :page;

-- codes_changed --
select i.n, c.windows from item i left join code c on c.key = :base + i.n
where i.scope = :scope and i.changed > :seen order by i.n;

-- vectors --
select windows from vector where key in (select value from json_each(?)) order by key;
