-- advance_time --
-- The counter has its checksum from each statement.
update counter set now = max(now, :at), checksum = row_checksum(n, change, max(now, :at), commits)
where n = 0 and {intact:counter};

-- advance_change --
update counter set change = max(change, :change_number),
  checksum = row_checksum(n, max(change, :change_number), now, commits)
where n = 0 and {intact:counter};
