-- add_large_result --
-- The update locks the row, so that nobody deletes it as unused meanwhile.
insert into large_result (scope, hash, body) values (:scope, :hash, :body)
on conflict (scope, hash) do update set hash = excluded.hash;
