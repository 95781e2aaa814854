-- count_store --
select
  (select count(*) from item),
  (select count(*) from item where valid_to is null and retracted_at is null),
  (select count(*) from scope where exists (select 1 from item where item.scope = scope.scope)),
  (select change from counter where n = 0),
  (select count(*) from item where not exists (
    select 1 from model join vector on vector.key = (model.n << 40 | item.n)
    where :model is null or model.key = :model)),
  (select count(*) from meta where name = 'purge'),
  (select count(*) from record);

-- count_index_faults --
-- Items without words, vectors without an item, vectors without codes or codes without a vector.
select
  (select count(*) from item left join words on words.item = item.n where words.item is null),
  (select count(*) from vector left join item on item.n = (vector.key & 1099511627775) where item.n is null),
  (select count(*) from vector left join code on code.key = vector.key where code.key is null)
    + (select count(*) from code left join vector on vector.key = code.key where vector.key is null);

-- count_owners --
-- Items of a scope that names nobody, and scopes with items that name a user.
select
  (select count(*) from item join scope on scope.scope = item.scope
    where scope.tenant is null and scope.agent is null and scope.user is null and scope.state = 0),
  (select count(*) from scope where scope.user is not null
    and exists (select 1 from item where item.scope = scope.scope));

-- count_embedded --
-- Items with vectors of each model, counted in the smaller of the two tables.
select model.key, (select count(*) from code where code.key between model.n << 40 and (model.n + 1 << 40) - 1)
from model;

-- find_vector_keys --
select vector.key from model join vector on vector.key between model.n << 40 and (model.n + 1 << 40) - 1
where model.key = :model limit :limit;

-- find_misfit_vectors --
-- Vectors of a wrong size, without an item, or without codes, and codes without a vector.
select vector.key from vector
left join item on item.n = (vector.key & :mask) left join code on code.key = vector.key
where vector.key between :first and :last
  and (length(vector.windows) % :width <> 0 or item.n is null or code.key is null)
union
select code.key from code left join vector on vector.key = code.key
where code.key between :first and :last and vector.key is null;

-- load_indexed_texts --
select n, text, speaker, slot from item where n > :after order by n limit :limit;

-- load_texts_between --
select n, text from item where n between :first and :last;

-- set_passages --
update item set passages = :passages where n = :n;

-- mark_changed --
update item set changed = :change where n = :n;
