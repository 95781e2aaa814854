-- newest --
-- The number of a scope and the newest changes in it, of items that are there and of items that went.
select n, (select max(changed) from item where item.scope = scope.n), (select max(seq) from gone where gone.scope = scope.n)
from scope where id = ?;

-- roster --
select n, id, valid_from, valid_to, retracted_at, expires_at, passages
from item where scope = ? and changed > ? order by changed;

-- gone --
select n from gone where scope = ? and seq > ?;

-- details --
select n, kind, session, speaker, role, place, coalesce(occurred_at, recorded_at), recorded_at,
  traits, passages, importance, pinned, trust
from item where scope = ? and changed > ?;

-- sources_range --
-- Named sources, the last one first; an item's first one then comes last.
select item, name from source where item between ? and ? and name <> '' order by item, number desc;

-- sources_scope --
-- The same for a scope whose items are few among others.
select s.item, s.name from item i join source s on s.item = i.n
where i.scope = ? and i.changed > ? and s.name <> '' order by s.item, s.number desc;

-- words_range --
select item, pairs from words where item between ? and ? order by item;

-- words_scope --
select w.item, w.pairs from item i join words w on w.item = i.n where i.scope = ? order by w.item;

-- words_changed --
-- A null says that the words are gone.
select i.n, w.pairs from item i left join words w on w.item = i.n where i.scope = ? and i.changed > ? order by i.n;

-- model --
select n, dimension from model where key = ?;

-- codes_range --
select key, windows from code where key between ? and ? order by key;

-- codes_scope --
select c.key, c.windows from item i join code c on c.key = (? | i.n) where i.scope = ? order by c.key;

-- codes_changed --
select i.n, c.windows from item i left join code c on c.key = (? | i.n)
where i.scope = ? and i.changed > ? order by i.n;

-- vectors --
select windows from vector where key in (select value from json_each(?)) order by key;
