-- advance_time --
select tick(cast(:at as bigint));

-- advance_change --
select setval('change', cast(:change_number as bigint)) from change where last_value < :change_number;
