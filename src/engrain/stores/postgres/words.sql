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
-- that of core.bm25, which has the last word; here it is cut to nine digits, so that equals stay equal whatever the order
-- in which they were added up. A higher number is a newer item.
with hit as materialized (
  select word.item, word.passage, word.length, word.term, word.count, {where} as fits
  from word join item on item.n = word.item
  where word.scope = %(scope)s and word.term = any(%(terms)s) and {visible}
),
frequency as materialized (
  select term, found, ln(1 + (%(passages)s - found + 0.5) / (found + 0.5)) as weight
  from (select term, count(*)::double precision as found from hit group by term) as counted
),
passage as (
  select item, floor(1e9 * sum(weight * count * (%(saturation)s + 1)
    / (count + %(saturation)s * (1 - %(share)s + %(share)s * length / %(average)s)))) as score
  from hit join frequency using (term) where fits group by item, passage
),
chosen as materialized (
  select item from passage group by item order by max(score) desc, item desc limit %(limit)s
)
select null, 0, 0, array_agg(term), array_agg(found::bigint) from frequency
union all
select item.id, passage, min(length), array_agg(term), array_agg(count::bigint)
from chosen join hit using (item) join item on item.n = chosen.item group by item.id, passage;

-- counts --
-- The same for given items.
with hit as materialized (
  select word.item, word.passage, word.length, word.term, word.count
  from word join item on item.n = word.item
  where word.scope = %(scope)s and word.term = any(%(terms)s) and {visible}
)
select null, 0, 0, array_agg(term), array_agg(found) from (select term, count(*) as found from hit group by term) as each
union all
select item.id, passage, min(length), array_agg(term), array_agg(count::bigint)
from item join hit on hit.item = item.n where item.scope = %(scope)s and item.id = any(%(ids)s)
group by item.id, passage;
