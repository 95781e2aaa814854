-- find_meta --
select value from meta where name = :name and {intact:meta};

-- find_commits --
select commits from counter where n = 0;

-- set_meta --
insert into meta (name, value) values (:name, :value) on conflict (name) do update set value = excluded.value;

-- delete_meta --
-- Only if nobody has set it anew.
delete from meta where name = :name and value = :value;
