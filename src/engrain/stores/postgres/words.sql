-- hits --
-- Every place where a word of the question stands, in columns: the server's part is to find, the ranking is core.bm25's.
-- Passage, length and count are one number, because each column costs as much as the search.
select array_agg(item), array_agg(term), array_agg((passage::bigint << 40) | (length::bigint << 16) | count)
from word where scope = %(scope)s and term = any(%(terms)s);
