-- load_hold --
select subject_hash, at, reason, hidden from hold where subject_hash = :subject_hash;

-- load_holds --
select subject_hash, at, reason, hidden from hold order by at, subject_hash;

-- load_scopes --
-- Those that are not erased.
select scope, tenant, agent, "user", state from scope where state <> 3 order by scope;
