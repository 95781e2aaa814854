-- newest --
-- Now, and the number of the scope's last change.
select greatest(coalesce(%(clock)s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), last_value),
  (select seq from scope where id = %(scope)s)
from clock;

-- statistics --
-- Over the visible items; and between which moments the same are visible.
select coalesce(sum(passages) filter (where {visible}), 0)::bigint, coalesce(sum(words) filter (where {visible}), 0)::bigint,
  max(greatest(
    case when valid_from <= %(at)s then valid_from end,
    case when valid_to <= %(at)s then valid_to end,
    case when expires_at <= %(at)s then expires_at end)),
  min(least(
    case when valid_from > %(at)s then valid_from end,
    case when valid_to > %(at)s then valid_to end,
    case when expires_at > %(at)s then expires_at end))
from item where scope = %(scope)s and retracted_at is null;

-- best --
-- How many visible passages have each term; then every passage with a term of the items that come up best. The score is
-- that of core.bm25, which has the last word.
with hit as materialized (
  select word.item, word.passage, word.length, word.term, word.count
  from word join item on item.n = word.item
  where word.scope = %(scope)s and word.term = any(%(terms)s) and {visible}
),
frequency as materialized (select term, count(*) as found from hit group by term),
passage as (
  select item, sum(
    ln(1 + (%(passages)s - found + 0.5) / (found + 0.5))::double precision
    * count * (%(saturation)s + 1) / (count + %(saturation)s * (1 - %(share)s + %(share)s * length / %(average)s))
    order by term) as score
  from hit join frequency using (term) group by item, passage
),
chosen as (
  select passage.item, item.id from passage join item on item.n = passage.item where {where}
  group by passage.item, item.id order by max(score) desc, item.id desc limit %(limit)s
)
select null, 0, 0, array_agg(term), array_agg(found) from frequency
union all
select id, passage, min(length), array_agg(term), array_agg(count::bigint)
from chosen join hit using (item) group by id, passage;

-- counts --
-- The same for given items.
with hit as materialized (
  select word.item, word.passage, word.length, word.term, word.count, item.id
  from word join item on item.n = word.item
  where word.scope = %(scope)s and word.term = any(%(terms)s) and {visible}
)
select null, 0, 0, array_agg(term), array_agg(found) from (select term, count(*) as found from hit group by term) as each
union all
select id, passage, min(length), array_agg(term), array_agg(count::bigint)
from hit where id = any(%(ids)s) group by id, passage;
