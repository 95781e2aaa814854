-- put_record --
insert into record (scope, changed, at, expires_at, space, key, hash, body)
values (:scope, {change}, :at, :expires_at, :space, :key, :hash, :body)
on conflict (scope, space, key) do update set changed = excluded.changed, at = excluded.at,
  expires_at = excluded.expires_at, hash = excluded.hash, body = excluded.body;

-- keep_record --
-- An expired record does not exist.
insert into record (scope, changed, at, expires_at, space, key, hash, body)
values (:scope, {change}, :at, :expires_at, :space, :key, :hash, :body)
on conflict (scope, space, key) do update set changed = excluded.changed, at = excluded.at,
  expires_at = excluded.expires_at, hash = excluded.hash, body = excluded.body
where record.expires_at <= :at;

-- load_record_hashes --
select key, hash from record where scope = :scope and space = :space and key {in:keys} and {unexpired};

-- load_records --
select {record} from record where scope = :scope and space = :space and key {in:keys} and {unexpired};

-- scan_records_ascending --
select {record} from record
where scope = :scope and space = :space and key >= :low and key < :high and {unexpired} order by key limit :limit;

-- scan_records_descending --
select {record} from record
where scope = :scope and space = :space and key >= :low and key < :high and {unexpired} order by key desc limit :limit;

-- scan_records_newest --
-- Keys are sorted first, so that only the bodies that are asked for are read.
select {record} from record where scope = :scope and space = :space and key in (
  select key from record where scope = :scope and space = :space and key >= :low and key < :high
    and changed < :before and {unexpired} order by changed desc limit :limit)
order by changed desc;

-- list_record_keys --
select key from record
where scope = :scope and space = :space and key >= :low and key < :high and {unexpired} order by key limit :limit;

-- find_record_change --
select changed from record where scope = :scope and space = :space and key = :key;

-- delete_records --
delete from record where scope = :scope and space = :space and key >= :low and key < :high returning key;

-- delete_attachments --
delete from record where scope = :scope and space = :space and key >= :low and key < :high;

-- find_record_scopes --
select tenant, agent, "user" from scope where state = 0 and tenant {same} cast(:tenant as text) and exists (
  select 1 from record where record.scope = scope.scope and space = :space and key >= :low and key < :high
    and {unexpired});

-- count_scope_records --
select count(*) from record where scope = :scope;

-- count_all_records --
select count(*) from record;

-- list_expired_records --
select space, key, expires_at from record where {+}scope = :scope and expires_at <= :at
  and not exists (select 1 from hold where subject_hash = :owner) order by space, key;

-- delete_expired_records --
delete from record where (scope, space, key) in (
  select scope, space, key from record where expires_at <= :at and scope {not_scope_in:on_hold} limit :limit)
returning key;

-- dump_record_sizes --
select length(body) from record join scope on scope.scope = record.scope
where ({scope_order:record}, space, key) > ({scope_value:a}, :b, :c) and {within:record}
order by {scope_order:record}, space, key limit :limit;

-- dump_records --
select scope.tenant, scope.agent, scope."user", space, key, changed, at, expires_at, body from record
join scope on scope.scope = record.scope
where ({scope_order:record}, space, key) > ({scope_value:a}, :b, :c) and {within:record}
order by {scope_order:record}, space, key limit :limit;

-- restore_record --
insert into record (scope, changed, at, expires_at, space, key, hash, body)
values (:scope, :rank, :written_at, :expires_at, :space, :key, :hash, :body)
on conflict (scope, space, key) do update set changed = excluded.changed, at = excluded.at,
  expires_at = excluded.expires_at, hash = excluded.hash, body = excluded.body;
