-- find_meta --
select value from meta where name = :name and {intact:meta};

-- count_commit --
update counter set commits = commits + 1 where n = 1 returning commits;

-- find_commits --
select commits from counter;

-- set_meta --
insert into meta (name, value) values (:name, :value) on conflict (name) do update set value = excluded.value;

-- delete_meta --
-- Only if nobody has set it anew.
delete from meta where name = :name and value = :value;
