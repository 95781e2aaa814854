-- find_item --
select n from item where {+}scope = :scope and id = :id;
