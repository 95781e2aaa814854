-- newest --
-- Now, and the number of the scope's last change.
select greatest(coalesce(%(clock)s, (extract(epoch from clock_timestamp()) * 1000000)::bigint), last_value),
  (select last_change from scope where scope = %(scope)s)
from clock;

-- census --
-- Who is not visible, how much the visible have of passages and words, and between which moments that holds.
select array_agg(n) filter (where not ({visible})), coalesce(sum(passages) filter (where {visible}), 0)::bigint,
  coalesce(sum(words) filter (where {visible}), 0)::bigint,
  max(greatest(
    case when valid_from <= %(at)s then valid_from end,
    case when valid_to <= %(at)s then valid_to end,
    case when expires_at <= %(at)s then expires_at end)),
  min(least(
    case when valid_from > %(at)s then valid_from end,
    case when valid_to > %(at)s then valid_to end,
    case when expires_at > %(at)s then expires_at end))
from item where scope = %(scope)s;

-- fitting --
-- Of these items, those that match.
select array_agg(n) from item where scope = %(scope)s and n = any(%(items)s) and {where};

-- fitting_all --
select array_agg(n) from item where scope = %(scope)s and {where};

-- ids --
select n, id from item where scope = %s and n = any(%s);

-- numbers --
select id, n from item where scope = %s and id = any(%s);
