-- load_hold --
select subject_hash, at, reason, hidden from hold where subject_hash = :subject_hash;

-- load_holds --
select subject_hash, at, reason, hidden from hold order by at, subject_hash;

-- store_hold --
insert into hold (subject_hash, at, reason) values (:subject_hash, :at, :reason)
on conflict (subject_hash) do update set reason = excluded.reason;

-- hide_hold --
update hold set hidden = true where subject_hash = :subject_hash;

-- delete_hold --
delete from hold where subject_hash = :subject_hash;
