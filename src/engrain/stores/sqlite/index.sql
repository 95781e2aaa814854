-- newest --
-- The number of a scope and the newest changes in it, of items that are there and of items that went.
select n, (select max(changed) from item where item.scope = scope.n), (select max(seq) from gone where gone.scope = scope.n)
from scope where id = ?;

-- roster --
-- Page by page: the first rows are still in the processor's cache when their columns are made of them.
select n, id, valid_from, valid_to, retracted_at, expires_at, passages
from item where scope = :scope and n > :after order by n limit :page;

-- roster_changed --
select n, id, valid_from, valid_to, retracted_at, expires_at, passages
from item where scope = :scope and changed > :seen order by n;

-- gone --
select n from gone where scope = :scope and seq > :seen;

-- details --
select n, kind, session, speaker, role, place, coalesce(occurred_at, recorded_at), recorded_at,
  traits, passages, importance, pinned, trust
from item where scope = :scope and n > :after order by n limit :page;

-- details_changed --
select n, kind, session, speaker, role, place, coalesce(occurred_at, recorded_at), recorded_at,
  traits, passages, importance, pinned, trust
from item where scope = :scope and changed > :seen order by n;

-- sources_range --
-- Named sources, the last one first; an item's first one then comes last.
select item, name from source where item between :first and :last and name <> '' order by item, number desc;

-- sources_scope --
-- The same for a scope whose items are few among others, and for what changed.
select s.item, s.name from item i join source s on s.item = i.n
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
