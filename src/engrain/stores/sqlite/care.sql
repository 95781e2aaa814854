-- status --
select
  (select count(*) from item),
  (select count(*) from item where valid_to is null and retracted_at is null),
  (select count(*) from scope where exists (select 1 from item where item.scope = scope.scope)),
  (select change from counter),
  (select count(*) from item where not exists (
    select 1 from model join vector on vector.key = (model.n << 40 | item.n)
    where :model is null or model.key = :model)),
  (select count(*) from meta where name = 'purge');

-- pending --
select 1 from meta where name = 'purge';

-- indexes --
-- Items without words, vectors without an item, vectors without codes or codes without a vector.
select
  (select count(*) from item left join words on words.item = item.n where words.item is null),
  (select count(*) from vector left join item on item.n = (vector.key & 1099511627775) where item.n is null),
  (select count(*) from vector left join code on code.key = vector.key where code.key is null)
    + (select count(*) from code left join vector on vector.key = code.key where vector.key is null);

-- slots --
-- Slots with more than one open value: the unique index forbids it, unless the file was changed by other hands.
select count(*) from (
  select scope, slot from item where slot is not null and valid_to is null and retracted_at is null
  group by scope, slot having count(*) > 1);

-- texts --
select n, text, speaker, slot from item where n > ? order by n limit ?;

-- texts_of --
select n, text from item where n between ? and ?;

-- seq --
select change from counter;

-- set_seq --
update counter set change = ? where n = 1;

-- rebuilt --
update item set passages = ?, changed = ? where n = ?;

-- marked --
update item set changed = ? where n = ?;

-- models --
select n, dimension from model;

-- misfits --
-- Vectors of a wrong size, without an item, or without codes, and codes without a vector.
select vector.key, vector.key & :mask from vector
left join item on item.n = (vector.key & :mask) left join code on code.key = vector.key
where vector.key between :first and :last
  and (length(vector.windows) % :width <> 0 or item.n is null or code.key is null)
union
select code.key, code.key & :mask from code left join vector on vector.key = code.key
where code.key between :first and :last and vector.key is null;

-- drop_vector --
delete from vector where key = ?;

-- drop_code --
delete from code where key = ?;

-- embedded --
-- Items with vectors of each model, counted in the smaller of the two tables.
select model.key, (select count(*) from code where code.key between model.n << 40 and (model.n + 1 << 40) - 1)
from model;

-- vectors_of_model --
select vector.key from model join vector on vector.key between model.n << 40 and (model.n + 1 << 40) - 1
where model.key = ? limit ?;
