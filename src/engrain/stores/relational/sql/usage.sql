-- lock_known_scope --
select 1 from scope where scope = :scope {for_update};

-- add_uses --
update item set access_count = access_count + :count, last_accessed = {greatest}(coalesce(last_accessed, 0), :at)
where {+}scope = :scope and id {in:ids};
