-- advance_time --
update counter set now = max(now, :at) where n = 1;

-- advance_change --
update counter set change = max(change, :change_number) where n = 1;
