-- hits --
-- Every place where a word of the question stands, in columns: the server's part is to find, the ranking is core.bm25's.
-- Passage, length and count are one number, because each column costs as much as the search.
select array_agg(item), array_agg(term), array_agg((passage::bigint << 40) | (length::bigint << 16) | count)
from word where scope = %(scope)s and term = any(%(terms)s);

-- hits_of --
-- The same, in these items.
select array_agg(item), array_agg(term), array_agg((passage::bigint << 40) | (length::bigint << 16) | count)
from word where scope = %(scope)s and item = any(%(items)s) and term = any(%(terms)s);

-- changed --
-- Whether something went since, and what else changed.
select exists (select 1 from deleted_item where scope = %(scope)s and change > %(since)s),
  (select array_agg(n) from item where scope = %(scope)s and changed > %(since)s);
