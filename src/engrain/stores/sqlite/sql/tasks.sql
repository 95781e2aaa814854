-- add_large_result --
insert into large_result (scope, hash, body) values (:scope, :hash, :body) on conflict do nothing;
