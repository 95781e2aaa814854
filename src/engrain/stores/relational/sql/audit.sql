-- create_audit_head --
insert into meta (name, value) values ('audit', '[0, "00000000000000000000000000000000", ""]') on conflict do nothing;

-- lock_audit_head --
select value from meta where name = 'audit' {for_update};

-- load_audit_head --
select value from meta where name = 'audit';

-- store_audit_head --
update meta set value = :value where name = 'audit';

-- find_last_audit_entry --
select coalesce(max(n), 0) from audit;

-- add_audit_entry --
insert into audit (n, at, what, subject, details, previous, hash)
values (:n, :at, :what, :subject, :details, :previous, :hash);

-- load_audit_entries --
select n, at, what, subject, details, previous, hash from audit where n > :after order by n limit :limit;

-- find_audited_act --
-- An erasure and a hold come with an entry.
select 1 from erasure_receipt union all select 1 from hold limit 1;
